"""Requests with an epoch from the future, in the right cluster's name and in that of any voter: none is believed, none
costs an election, and a client beside them notices nothing (V7, V11, V20)."""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import time
from collections.abc import Iterator

import grpc
import pytest

from minilog import Admin, NewTopic
from minilog.errors import InvalidArgument, UnknownLeaderEpoch, error_from_wire
from minilog.stream_messages import REPLICATE, StreamMessage
from minilog.v1 import peer_pb2, peer_pb2_grpc
from tests.cluster import HOST, STREAM_PORT_OFFSET, Cluster, running_cluster
from tests.integration.clients import Writer, read_all
from tests.integration.well_behaved import unnoticed
from tests.rules import proves
from tests.streams_by_hand import Place, StreamEnded, call_of

pytestmark = [pytest.mark.quiet, proves("MD.18"), pytest.mark.long]

TOPIC = "future"
LARGEST = 2**31 - 1
SOON_S = 10.0
FAR = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("future")) as running:
        with Admin({"bootstrap.servers": running.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
        yield running


@pytest.fixture
def nothing_is_lost(cluster: Cluster) -> Iterator[None]:
    """A writer goes on throughout, as fast as it can; its history is judged."""
    writer = Writer(cluster.bootstrap_servers, TOPIC, name=f"w{time.monotonic_ns()}", in_flight=20)
    writer.wait_for_more(100)
    yield
    writer.wait_for_more(100, SOON_S)
    history = writer.stop()
    assert (history.failed, history.unknown) == ({}, set())
    stored = read_all(cluster.bootstrap_servers, TOPIC)
    mine = {p: [each for each in all_ if each[1].startswith(writer.name.encode())] for p, all_ in stored.items()}
    places = {value: (partition, offset) for partition, records in mine.items() for offset, value in records}
    assert places == history.acknowledged
    for broker_id, process in cluster.processes.items():
        assert process.poll() is None, cluster.log_text(broker_id)[-3000:]
        assert "Traceback" not in cluster.log_text(broker_id)


def directory_id(cluster: Cluster, broker_id: int) -> bytes:
    document, _ = (cluster.data_directory(broker_id) / "broker.json").read_text().split("\n", 1)  # and its checksum
    return bytes.fromhex(json.loads(document)["directory_id"])


class Peer:
    """Speaks as one broker to another."""

    def __init__(self, cluster: Cluster, me: int, to: int) -> None:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            described = admin.describe_cluster()
        self.cluster_id, self.epoch, self.controller = (
            described.cluster_id,
            described.controller_epoch,
            described.controller,
        )
        self.me, self.to, self.cluster = me, to, cluster

    def __enter__(self) -> Peer:
        self.channel = grpc.insecure_channel(f"{HOST}:{self.cluster.ports[self.to]}")
        self.place = Place(self.cluster.ports[self.to] + STREAM_PORT_OFFSET)
        self.stub = peer_pb2_grpc.PeerServiceStub(self.channel)
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def vote(self, epoch: int, *, pre_vote: bool = False, log_end: int = 2**40) -> peer_pb2.VoteResponse:
        request = peer_pb2.VoteRequest(
            cluster_id=self.cluster_id,
            candidate_id=self.me,
            candidate_directory_id=directory_id(self.cluster, self.me) if self.me in self.cluster.ports else bytes(16),
            epoch=epoch,
            pre_vote=pre_vote,
            last_end_offset=log_end,
            last_epoch=epoch - 1,
            voter_id=self.to,
            voter_directory_id=directory_id(self.cluster, self.to),
            voter_ids=self.cluster.voters,
        )
        answer: peer_pb2.VoteResponse = self.stub.Vote(request, timeout=SOON_S)
        return answer

    def begin(self, epoch: int, leader_id: int) -> peer_pb2.BeginQuorumEpochResponse:
        request = peer_pb2.BeginQuorumEpochRequest(
            cluster_id=self.cluster_id, leader_id=leader_id, epoch=epoch, voter_id=self.to
        )
        answer: peer_pb2.BeginQuorumEpochResponse = self.stub.BeginQuorumEpoch(request, timeout=SOON_S)
        return answer


def wait_calm(cluster: Cluster) -> None:
    """Until every voter hears a leader, or is it. While an election is on, a vote may well be granted."""
    deadline = time.monotonic() + SOON_S
    for to in cluster.voters:
        me = next(each for each in cluster.voters if each != to)
        while True:
            with Peer(cluster, me, to) as peer:
                if peer.vote(peer.epoch, pre_vote=True, log_end=0).leader_id > 0:
                    break
            assert time.monotonic() < deadline, f"broker {to} hears no leader"
            time.sleep(0.05)


def pairs(cluster: Cluster) -> Iterator[tuple[int, int]]:
    """Every voter, asked in the name of another one that does not lead; each when all is calm."""
    for to in cluster.voters:
        wait_calm(cluster)
        yield another(cluster, to), to


def another(cluster: Cluster, to: int) -> int:
    """A voter that neither leads nor is `to`."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        controller = admin.describe_cluster().controller
    return next(each for each in cluster.voters if each not in (to, controller))


def controller_epoch(cluster: Cluster) -> int:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        return admin.describe_cluster().controller_epoch


@pytest.mark.usefixtures("nothing_is_lost")
@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize("ahead", [1, 1000, LARGEST])
def test_a_candidate_of_a_later_epoch_deposes_nobody_whom_a_majority_hears(
    cluster: Cluster, ahead: int, pre_vote: bool
) -> None:
    for me, to in pairs(cluster):
        late_before = late_ticks(cluster)
        with Peer(cluster, me, to) as peer:
            granted = peer.vote(min(peer.epoch + ahead, LARGEST), pre_vote=pre_vote).granted
        # Only where a process stood still, on a machine with other work, could a voter not hear its leader.
        assert not granted or late_ticks(cluster) > late_before, cluster.log_text(to)[-3000:]


def late_ticks(cluster: Cluster) -> int:
    return sum(cluster.log_text(broker_id).count("the event loop was late") for broker_id in cluster.processes)


def test_seven_messages_that_each_voter_might_believe_part_nobody(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Each is as far ahead of what its receiver knows as a cluster could just get: they ended the quorum for good."""
    blows = unnoticed(tmp_path, epochs_far_ahead, lambda _: contextlib.nullcontext(cluster))[0].blows
    assert blows >= 7


def epochs_far_ahead(cluster: Cluster) -> Iterator[None]:
    yield
    for number in itertools.count():
        to = cluster.voters[number % 3]
        name = cluster.voters[(number + 1) % 3]
        with Peer(cluster, name, to) as peer:
            told = peer.begin(0, leader_id=name).epoch
            answer = peer.begin(told + FAR, leader_id=name)
            assert isinstance(error_from_wire(answer.error), UnknownLeaderEpoch)
            assert answer.epoch == told
            assert not peer.vote(told + FAR).granted
        time.sleep(0.3)
        yield


@pytest.mark.usefixtures("nothing_is_lost")
def test_a_candidate_that_is_no_voter_gets_no_vote_and_disturbs_nobody(cluster: Cluster) -> None:
    """A voter's log may be behind the candidate's, so a stranger is no error. The voter hears a leader, and says no."""
    before = controller_epoch(cluster)
    for to in cluster.voters:
        with Peer(cluster, 77, to) as peer:
            answer = peer.vote(peer.epoch + 1)
            assert error_from_wire(answer.error) is None
            assert not answer.granted
    assert controller_epoch(cluster) == before


@pytest.mark.usefixtures("nothing_is_lost")
def test_a_leader_of_an_impossible_epoch_is_refused(cluster: Cluster) -> None:
    before = controller_epoch(cluster)
    for me, to in pairs(cluster):
        with Peer(cluster, me, to) as peer:
            answer = peer.begin(LARGEST, leader_id=me)
            assert isinstance(error_from_wire(answer.error), InvalidArgument)
            assert str(LARGEST) in answer.error.message
            stranger = peer.begin(peer.epoch + 1, leader_id=77)
            assert isinstance(error_from_wire(stranger.error), UnknownLeaderEpoch), "the voters are asked first"
    assert controller_epoch(cluster) == before


@pytest.mark.usefixtures("nothing_is_lost")
def test_a_voter_told_of_a_leader_that_is_none_asks_and_keeps_the_right_one(cluster: Cluster) -> None:
    before = controller_epoch(cluster)
    for me, to in pairs(cluster):
        with Peer(cluster, me, to) as peer:
            answer = peer.begin(peer.epoch + 1, leader_id=me)
            assert isinstance(error_from_wire(answer.error), UnknownLeaderEpoch)
            assert answer.epoch == peer.epoch
    assert controller_epoch(cluster) == before
    assert set(cluster.states().values()) == {"running"}


@pytest.mark.usefixtures("nothing_is_lost")
@pytest.mark.parametrize("metadata", [True, False])
def test_a_follower_with_a_leader_epoch_of_the_future_gets_nothing(cluster: Cluster, metadata: bool) -> None:
    for me, to in pairs(cluster):
        with Peer(cluster, me, to) as peer:
            position = peer_pb2.ReplicateRequest(
                broker_id=me,
                broker_epoch=-1 if metadata else LARGEST,
                credit_bytes=1 << 20,
                cluster_metadata=metadata,
                cluster_id=peer.cluster_id,
                directory_id=directory_id(cluster, me),
            )
            where = position.positions.add()
            where.leader_epoch, where.fetch_offset, where.position_number = LARGEST, 2**40, 1
            with contextlib.closing(
                call_of(peer.place, REPLICATE)(iter([StreamMessage(position)]), timeout=1.0)
            ) as sends:
                try:
                    sent = [batches for answer in sends for batches in answer.payloads]
                except StreamEnded:
                    sent = []
            assert not any(sent)
