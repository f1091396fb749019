"""The quorum's core under votes, epochs and sessions that no voter of ours would send: answered, or dropped.

No garbage ends a process, makes two leaders of one epoch, or takes the quorum away for good: afterwards a record is
committed by the three honest voters. One message ends a process by design (InconsistentClusterId): its own leader says,
in its epoch and for its position, that what is committed was never there.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message
from hypothesis import example, given
from hypothesis import strategies as st

from minilog.errors import InconsistentClusterId, MinilogError
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, data_pb2, peer_pb2
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_ID
from tests.rules import proves
from tests.unit.fuzz.messages import Plausible, fuzzing, messages
from tests.unit.quorum.cluster import QuorumCluster, topic_record
from tests.unit.quorum.machine import Ticket

pytestmark = proves("DK.22")

VOTERS = (1, 2, 3)


def plausible(cluster: QuorumCluster) -> Plausible:
    leader = cluster.leader()
    assert leader.node is not None
    epoch, end = leader.node.epoch, leader.node.log_end_offset
    return {
        "cluster_id": (leader.cluster_id, ""),
        "candidate_id": VOTERS,
        "leader_id": VOTERS,
        "voter_id": VOTERS,
        "broker_id": VOTERS,
        "voter_ids": VOTERS,
        "quorum_leader_id": VOTERS,
        "epoch": (epoch, epoch + 1, epoch - 1),
        "leader_epoch": (epoch,),
        "quorum_epoch": (epoch, epoch + 1),
        "last_epoch": (epoch,),
        "last_fetched_epoch": (epoch,),
        "previous_epoch": (epoch,),
        "last_end_offset": (end, end + 1),
        "fetch_offset": (end,),
        "first_offset": (end,),
        "durable_end_offset": (end, end + 1),
        "end_offset": (end, end + 5),
        "position_number": (2,),
        "credit_bytes": (1 << 20,),
        "cluster_metadata": (True,),
        "topic_id": (CLUSTER_METADATA_TOPIC_ID,),
        "partition": (0,),
        "directory_id": tuple(cluster.machine(each).directory_id for each in VOTERS),
        "voter_directory_id": tuple(cluster.machine(each).directory_id for each in VOTERS),
        "candidate_directory_id": tuple(cluster.machine(each).directory_id for each in VOTERS),
        "granted": (True,),
    }


def quorum() -> QuorumCluster:
    cluster = QuorumCluster(seed=7, voters=VOTERS)
    cluster.start(*VOTERS)
    cluster.run_until(lambda: bool(cluster.leaders()) and cluster.leader().image.cluster_id is not None)
    cluster.run(500.0)
    return cluster


PLAUSIBLE = plausible(quorum())
DIVERGED = peer_pb2.ReplicateResponse(
    runs=[
        data_pb2.PartitionRun(
            partition_id=common_pb2.PartitionId(topic_id=CLUSTER_METADATA_TOPIC_ID),
            leader_epoch=PLAUSIBLE["leader_epoch"][0],
            position_number=2,
            diverging_epoch=data_pb2.DivergingEpoch(),
        )
    ]
)
_whom = st.sampled_from(VOTERS)


def send(cluster: QuorumCluster, node_id: int, what: Message) -> None:
    """As the shell hands it to the core."""
    machine, now_ms = cluster.machine(node_id), cluster.now_ms
    match what:
        case peer_pb2.VoteRequest():
            machine.event(lambda node: node.vote_request(Ticket(lambda content: None, real=False), what, now_ms))
        case peer_pb2.BeginQuorumEpochRequest():
            machine.event(lambda node: node.begin_quorum_epoch(what, now_ms))
        case peer_pb2.FetchSnapshotRequest():
            assert machine.node is not None
            try:
                machine.node.snapshot_request(what)
            except MinilogError:
                return
        case peer_pb2.ReplicateRequest():
            machine.event(lambda node: node.open_session(900 + node_id, what, now_ms))
            machine.event(lambda node: node.replicate_request(900 + node_id, what, now_ms))
            machine.event(lambda node: machine.next_message(node, 900 + node_id))
        case peer_pb2.ReplicateResponse():
            machine.event(lambda node: node.leader_message(StreamMessage(what, [b""] * len(what.runs)), now_ms))


def closing(session: int) -> Callable[[QuorumNode], None]:
    return lambda node: node.close_session(session)


def ended(cluster: QuorumCluster) -> list[BaseException]:
    return [machine.failure for machine in cluster.machines.values() if machine.failure is not None]


def goes_on(
    cluster: QuorumCluster, sent: list[tuple[int, Message]], by_design: tuple[type[MinilogError], ...] = ()
) -> None:
    """What was sent is forgotten after a while: one leader, that commits. `by_design` may end a process."""
    for node_id, what in sent:
        send(cluster, node_id, what)
        cluster.run(1.0)
        assert [error for error in ended(cluster) if not isinstance(error, by_design)] == []
        epochs = [machine.node.epoch for machine in cluster.leaders() if machine.node is not None]
        assert len(epochs) == len(set(epochs)), "V11: two lead in one epoch"
    before_ended = ended(cluster)
    if len(before_ended) > 1:
        return  # a majority was told that its committed log is another cluster's
    for node_id in VOTERS:
        cluster.machine(node_id).event(closing(900 + node_id))
    cluster.run(6_000.0)
    leader = cluster.leader()
    assert leader.node is not None
    before, events = leader.node.committed_end_offset, cluster.events
    leader.append(topic_record("t"))
    cluster.run(1_000.0)
    last = cluster.leader().node
    assert last is not None
    assert last.committed_end_offset > before, "nothing is committed any more"
    assert cluster.events - events < 2_000, "work without bound"
    assert ended(cluster) == before_ended


def _sent(kind: type[Message]) -> st.SearchStrategy[list[tuple[int, Message]]]:
    return st.lists(st.tuples(_whom, messages(kind, PLAUSIBLE)), min_size=1, max_size=4)


@fuzzing(40)
@given(_sent(peer_pb2.VoteRequest))
def test_vote_requests(sent: list[tuple[int, Message]]) -> None:
    goes_on(quorum(), sent)


@fuzzing(40)
@given(_sent(peer_pb2.BeginQuorumEpochRequest))
def test_begin_quorum_epoch_requests(sent: list[tuple[int, Message]]) -> None:
    goes_on(quorum(), sent)


@fuzzing(40)
@given(_sent(peer_pb2.ReplicateRequest))
def test_sessions(sent: list[tuple[int, Message]]) -> None:
    goes_on(quorum(), sent)


@fuzzing(40)
@given(_sent(peer_pb2.ReplicateResponse))
@example([(1, DIVERGED), (3, DIVERGED)])
@example([(1, DIVERGED)])
def test_answers_of_a_leader(sent: list[tuple[int, Message]]) -> None:
    goes_on(quorum(), sent, by_design=(InconsistentClusterId,))


def test_a_leader_that_denies_what_is_committed_ends_its_follower_with_words() -> None:
    cluster = quorum()
    send(cluster, 1, DIVERGED)
    (error,) = ended(cluster)
    assert isinstance(error, InconsistentClusterId)
    assert "the leader belongs to another cluster, or has lost its disk" in str(error)


@fuzzing(20)
@given(_sent(peer_pb2.FetchSnapshotRequest))
def test_requests_for_snapshots(sent: list[tuple[int, Message]]) -> None:
    goes_on(quorum(), sent)
