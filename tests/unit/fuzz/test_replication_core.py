"""The replication core under messages from a broken or hostile peer: it answers on the wire, or drops the session.

Nothing is raised but MinilogError, work is bounded, and what was committed stays: afterwards an honest producer's batch
is acknowledged by all three replicas, with what the messages could reach judged by the invariants.
"""

from __future__ import annotations

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2, metadata_pb2, peer_pb2
from minilog_broker.replication.leader.delete_records import DeleteRecordsRequest
from tests.rules import proves
from tests.unit.fuzz.messages import fuzzing, messages, with_payloads
from tests.unit.replication.cluster import KEY, TOPIC_ID, ReplicaCluster, batch
from tests.unit.replication.judging import ReplicaJudges

pytestmark = proves("DK.22")

MAX_EFFECTS = 2_000
PLAUSIBLE = {
    "topic_id": (TOPIC_ID,),
    "partition": (0,),
    "leader_epoch": (0,),
    "position_number": (1, 2),
    "fetch_offset": (0, 1, 2, 3),
    "first_offset": (2, 3),
    "previous_epoch": (0,),
    "last_fetched_epoch": (0,),
    "last_epoch": (0,),
    "durable_end_offset": (0, 2, 3),
    "credit_bytes": (1 << 20,),
    "broker_id": (2, 3),
    "broker_epoch": (102, 103),
    "high_watermark": (2, 3),
    "log_end_offset": (2, 3),
}
BATCHES = (b"", batch(), batch()[:-1], batch(3) + batch())
_partition_keys = st.builds(
    PartitionKey, st.sampled_from([TOPIC_ID, b"", b"x" * 16, b"x" * 99]), st.sampled_from([0, 1, -1, 2**31 - 1])
)


def cluster_with_two_records() -> ReplicaCluster:
    cluster = ReplicaCluster()
    for _ in range(2):
        cluster.produce(1)
    cluster.settle()
    return cluster


def told(what: Message) -> str:
    return str(what).replace("\n", " ")


def judged(cluster: ReplicaCluster, judges: ReplicaJudges, *, honest: bool = True) -> None:
    """The cluster goes on, and nothing that was committed is gone."""
    cluster.advance(60.0)
    judges.check()
    assert all(len(broker.history) < MAX_EFFECTS for broker in cluster.live()), "work without bound"
    if not honest:
        return
    ticket = cluster.produce(1)
    cluster.advance(30_000.0)
    answer = cluster[1].answers[ticket]
    assert answer.error is None, str(answer.error)
    assert [broker.ends()[2] for broker in cluster.live()] == [3, 3, 3]
    judges.check()


@pytest.mark.dear("it tries many drawn messages")
@fuzzing(60)
@given(st.lists(messages(data_pb2.FetchRequest, PLAUSIBLE), min_size=1, max_size=4))
def test_fetch_requests(requests: list[data_pb2.FetchRequest]) -> None:
    cluster = cluster_with_two_records()
    judges = ReplicaJudges(cluster)
    for broker_id in (1, 2):
        session_id, broker = cluster.session_id(), cluster[broker_id]
        broker.consumers[session_id] = []
        broker.manager.open_consumer_session(session_id, requests[0], cluster.now_ms)
        for request in requests:
            try:
                broker.manager.fetch_request(session_id, request, cluster.now_ms)
            except MinilogError:
                break
            broker.run()
            cluster.settle()
        broker.manager.close_session(session_id, cluster.now_ms)
        broker.consumers_ready.pop(session_id, None)
    judged(cluster, judges)


@pytest.mark.dear("it tries many drawn messages")
@fuzzing(80)
@given(
    st.lists(messages(peer_pb2.ReplicateRequest, PLAUSIBLE), min_size=1, max_size=4),
    st.sampled_from([(2, 102), (3, 1), (2, -1), (1, 101), (9, 102), (-1, 2**63 - 1)]),
)
def test_replicate_requests(requests: list[peer_pb2.ReplicateRequest], who: tuple[int, int]) -> None:
    """A second session as a follower, or as nobody that is known.

    A member of the ISR is believed when it lies about what it has; so nothing is judged after one that spoke for it."""
    cluster = cluster_with_two_records()
    judges, broker, session_id = ReplicaJudges(cluster), cluster[1], cluster.session_id()
    broker.manager.open_follower_session(session_id, *who, cluster.now_ms)
    broker.run()
    for request in requests:
        try:
            broker.manager.replicate_request(session_id, request, cluster.now_ms)
            broker.run()
            for _ in range(20):
                message = broker.next_message(session_id)
                if message is None:
                    break
        except MinilogError:
            break
    broker.manager.close_session(session_id, cluster.now_ms)
    broker.run()
    cluster.advance(60.0)
    assert all(len(each.history) < MAX_EFFECTS for each in cluster.live()), "work without bound"
    if who != (2, 102):
        judged(cluster, judges)


@fuzzing(80)
@given(st.lists(with_payloads(peer_pb2.ReplicateResponse, "runs", PLAUSIBLE, BATCHES), min_size=1, max_size=4))
def test_replicate_responses(responses: list[StreamMessage[peer_pb2.ReplicateResponse]]) -> None:
    """A follower believes its leader's offsets and epochs: it may be led astray, but it goes on."""
    cluster = cluster_with_two_records()
    follower = cluster[2]
    for response in responses:
        try:
            follower.manager.leader_message(1, response, cluster.now_ms)
        except MinilogError:
            break
        follower.run()
        cluster.settle()
    cluster.advance(60.0)
    high_watermark, durable_end, end = follower.ends()
    assert 0 <= high_watermark <= durable_end <= end
    assert len(follower.history) < MAX_EFFECTS, "work without bound"


@fuzzing(80)
@given(
    _partition_keys,
    st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31)]),
    st.sampled_from([0, 1, -1]),
    st.sampled_from([0, 1, 2**32 - 1]),
    st.one_of(st.binary(max_size=100), st.sampled_from([batch(), batch()[:60], batch() + b"x", b""])),
)
def test_produce(key: PartitionKey, epoch: int, acks: int, timeout_ms: int, data: bytes) -> None:
    cluster = cluster_with_two_records()
    broker = cluster[1]
    broker.manager.produce("ticket", key, epoch, acks, timeout_ms, data, cluster.now_ms)
    broker.run()
    cluster.advance(100.0)
    assert acks == 0 or "ticket" in broker.answers
    ReplicaJudges(cluster).check()
    if key != KEY or data != batch():
        assert broker.ends()[2] == 2


@fuzzing(80)
@given(messages(metadata_pb2.ListOffsetsEntry, PLAUSIBLE))
def test_list_offsets(entry: metadata_pb2.ListOffsetsEntry) -> None:
    cluster = cluster_with_two_records()
    try:
        found = cluster[1].list_offsets(entry)
    except MinilogError:
        return
    assert found.log_start_offset <= found.high_watermark <= found.log_end_offset


def test_the_honest_case_is_judged_so() -> None:
    cluster = cluster_with_two_records()
    judged(cluster, ReplicaJudges(cluster))
    with pytest.raises(KeyError):
        cluster[1].answers["nothing"]


@fuzzing(80)
@given(_partition_keys, st.sampled_from([-1, 0, 1, 2**31 - 1]), st.sampled_from([-1, 0, 1, 2, 3, 2**63 - 1, -(2**63)]))
def test_delete_records(key: PartitionKey, leader_epoch: int, before_offset: int) -> None:
    cluster = cluster_with_two_records()
    broker = cluster[1]
    wanted = DeleteRecordsRequest("ticket", before_offset, cluster.now_ms + 100.0)
    broker.manager.delete_records(key, leader_epoch, wanted, 0.0)
    broker.run()
    cluster.advance(1_000.0)
    answer = broker.deleted["ticket"]
    assert answer.error is not None or (key == KEY and answer.low_watermark >= before_offset)
    judged(cluster, ReplicaJudges(cluster), honest=False)
