"""Epochs that one sick broker names: none is adopted without proof, and voters that stand far apart come together (V11,
V20)."""

from __future__ import annotations

import pytest

from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.quorum.member import MAX_EPOCH
from minilog_broker.quorum.quorum_effects import FetchSnapshot, VoteState
from minilog_broker.quorum.reported_epochs import LEAP_EPOCHS, NEAR_EPOCHS
from tests.rules import proves
from tests.unit.quorum.cluster import QuorumCluster, topic_record
from tests.unit.quorum.judges import Judges
from tests.unit.quorum.machine import QuorumMachine, Ticket

THREE = (1, 2, 3)
FAR = 1 << 20


def quorum(seed: int = 0) -> tuple[QuorumCluster, QuorumMachine, list[QuorumMachine]]:
    """(the world, the leader, the other voters), an observer 8 beside."""
    cluster = QuorumCluster(seed, THREE)
    Judges(cluster)
    cluster.start(*THREE, 8)
    cluster.run(1_000)
    (leader,) = cluster.leaders()
    return cluster, leader, [cluster.machine(each) for each in THREE if each != leader.node_id]


def epochs(cluster: QuorumCluster) -> list[int]:
    """What each has promised. Who only listens names its leader's epoch."""
    return [cluster.node(each)._transitions.epoch for each in THREE]


def is_led(cluster: QuorumCluster) -> bool:
    return any(each.node is not None and each.node.is_active for each in cluster.leaders())


def commits(cluster: QuorumCluster, name: str) -> None:
    end = cluster.leader().append(topic_record(name))
    cluster.run(500)
    assert [machine.image.end_offset for machine in cluster.running()] == [end] * len(cluster.running())


def tell(cluster: QuorumCluster, to: int, epoch: int, leader_id: int) -> peer_pb2.BeginQuorumEpochResponse:
    """BeginQuorumEpoch, in somebody's name."""
    machine, answers = cluster.machine(to), list[peer_pb2.BeginQuorumEpochResponse]()
    begin = peer_pb2.BeginQuorumEpochRequest(
        cluster_id=machine.cluster_id or "", leader_id=leader_id, epoch=epoch, voter_id=to
    )
    machine.event(lambda node: answers.append(node.begin_quorum_epoch(begin, cluster.now_ms)))
    return answers[0]


def ask(cluster: QuorumCluster, to: int, candidate: int, epoch: int, *, pre_vote: bool = False) -> None:
    """A vote, in somebody's name."""
    asked = peer_pb2.VoteRequest(
        cluster_id=cluster.machine(to).cluster_id or "",
        candidate_id=candidate,
        candidate_directory_id=cluster.machine(candidate).directory_id,
        epoch=epoch,
        pre_vote=pre_vote,
        last_end_offset=1 << 40,
        last_epoch=epoch - 1,
        voter_id=to,
        voter_directory_id=cluster.machine(to).directory_id,
        voter_ids=THREE,
    )
    ticket = Ticket(lambda answer: None, real=False)
    cluster.machine(to).event(lambda node: node.vote_request(ticket, asked, cluster.now_ms))


def say(cluster: QuorumCluster, to: int, voter_id: int, epoch: int, leader_id: int = -1) -> None:
    """What a sick voter answers to `to`, on the channel that `to` has opened to it."""
    asked = peer_pb2.VoteRequest(candidate_id=to, voter_id=voter_id, epoch=cluster.node(to).epoch + 1, pre_vote=True)
    response = peer_pb2.VoteResponse(epoch=epoch, leader_id=leader_id)
    cluster.machine(to).event(lambda node: node.vote_answered(voter_id, asked, response, cluster.now_ms, 0))


def deny(
    cluster: QuorumCluster, leader: QuorumMachine, voter_id: int, answer: peer_pb2.BeginQuorumEpochResponse
) -> None:
    """What a sick voter answers to the leader."""
    leader.event(lambda node: node.begin_epoch_answered(voter_id, answer, cluster.now_ms))


@proves("MD.18")
@pytest.mark.parametrize("pause_ms", [0.0, 1.0, 200.0])
def test_seven_messages_part_no_voters_and_depose_nobody(pause_ms: float) -> None:
    """Each names an epoch that its receiver could take for one of this cluster."""
    cluster, leader, _ = quorum()
    before = epochs(cluster)
    for number in range(7):
        to = THREE[number % 3]
        tell(cluster, to, cluster.node(to).epoch + FAR, leader_id=THREE[(number + 1) % 3])
        cluster.run(pause_ms)
    cluster.run(5_000)
    assert epochs(cluster) == before
    assert cluster.leaders() == [leader]
    commits(cluster, "after")


@proves("MD.18")
@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize("ahead", [1, NEAR_EPOCHS, FAR])
@pytest.mark.parametrize("seed", range(3))
def test_votes_that_are_asked_in_the_name_of_others_depose_nobody(seed: int, ahead: int, *, pre_vote: bool) -> None:
    """In the leader's own name, too, and to the leader."""
    cluster, leader, _ = quorum(seed)
    before = epochs(cluster)
    for to in THREE:
        for candidate in THREE:
            if candidate != to:
                ask(cluster, to, candidate, cluster.node(to).epoch + ahead, pre_vote=pre_vote)
                cluster.run(1.0)
    cluster.run(5_000)
    assert epochs(cluster) == before
    assert cluster.leaders() == [leader]
    commits(cluster, "after")


@proves("MD.18")
def test_the_epoch_of_a_single_voter_is_not_believed_while_a_leader_is_heard() -> None:
    """By its followers; the leader goes at most one leap, and stays."""
    cluster, leader, (follower, sick) = quorum()
    before = cluster.node(follower.node_id).epoch
    say(cluster, follower.node_id, sick.node_id, before + 1, sick.node_id)
    say(cluster, follower.node_id, sick.node_id, before + FAR, sick.node_id)
    refusal = peer_pb2.ReplicateResponse(quorum_epoch=before + FAR, quorum_leader_id=sick.node_id)
    refusal.error.code = common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    cluster.machine(8).event(lambda node: node.leader_message(StreamMessage(refusal), cluster.now_ms))
    cluster.run(3_000)
    assert epochs(cluster) == [before] * 3
    assert cluster.node(8).leader_id == leader.node_id
    commits(cluster, "after")


@proves("MD.19")
def test_a_voter_that_names_ever_later_epochs_uses_few_of_them_up() -> None:
    """A leap is at most LEAP_EPOCHS, and each next one waits twice as long."""
    cluster, leader, (_, sick) = quorum()
    before = cluster.node(leader.node_id).epoch
    leaders = set[tuple[int, int]]()
    for _ in range(600):
        current = cluster.leader()
        if current is not sick:
            answer = peer_pb2.BeginQuorumEpochResponse(epoch=MAX_EPOCH - 1, leader_id=-1)
            deny(cluster, current, sick.node_id, answer)
        cluster.run(100)
        leaders.add((cluster.leader().node_id, cluster.node(cluster.leader().node_id).epoch))
    assert cluster.leader() is leader
    assert cluster.node(leader.node_id).epoch <= before + 7 * (LEAP_EPOCHS + 1)
    assert len(leaders) <= 7
    commits(cluster, "after")


@proves("MD.19")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stored", [(0, 3 * FAR, 5 * FAR), (5 * FAR, 0, 0), (2 * FAR, 4 * FAR, 6 * FAR)])
def test_voters_that_stand_far_apart_come_together_after_a_restart(seed: int, stored: tuple[int, int, int]) -> None:
    """What seven messages made of a quorum once: the highest epoch on any disk is reached."""
    cluster, leader, _ = quorum(seed)
    own = cluster.node(leader.node_id).epoch
    cluster.stop(*THREE, 8)
    for node_id, ahead in zip(THREE, stored, strict=True):
        if ahead:
            cluster.machine(node_id).write_vote(VoteState(own + ahead, node_id))
    cluster.start(*THREE, 8)
    cluster.run_until(lambda: is_led(cluster))
    cluster.run_until(lambda: is_led(cluster) and len(set(epochs(cluster))) == 1, within_ms=60_000.0)
    assert cluster.node(1).epoch > own + max(stored)
    cluster.run(1_000)
    commits(cluster, "after")


@proves("MD.19")
@pytest.mark.parametrize("absent", THREE)
def test_two_of_three_that_stand_far_apart_come_together(absent: int) -> None:
    """There is no majority that could prove the later epoch, and a majority that must go on."""
    cluster, leader, _ = quorum()
    own = cluster.node(leader.node_id).epoch
    cluster.stop(*THREE, 8)
    for node_id in THREE:
        cluster.machine(node_id).write_vote(VoteState(own + node_id * FAR, node_id))
    there = [each for each in THREE if each != absent]
    cluster.start(*there, 8)
    cluster.run_until(lambda: is_led(cluster), within_ms=30_000.0)


@proves("MD.20")
def test_an_observer_that_was_told_of_a_later_epoch_finds_the_leader_again() -> None:
    """By one that plays the leader: what an observer follows it forgets where nobody leads."""
    cluster, leader, _ = quorum()
    observer = cluster.node(8)
    message = peer_pb2.ReplicateResponse()
    message.runs.add(leader_epoch=observer.epoch + FAR).partition_id.topic_id = bytes(15) + b"\x01"
    cluster.machine(8).event(lambda node: node.leader_message(StreamMessage(message, [b""]), cluster.now_ms))
    cluster.run(10_000)
    assert observer.leader_id == leader.node_id
    assert observer.epoch == cluster.node(leader.node_id).epoch
    commits(cluster, "after")


@pytest.mark.parametrize("ahead", [1, FAR])
def test_a_snapshot_of_a_later_epoch_than_its_leaders_is_not_fetched(ahead: int) -> None:
    cluster, _, (follower, _) = quorum()
    node = cluster.node(follower.node_id)
    message = peer_pb2.ReplicateResponse()
    message.snapshot_id.end_offset, message.snapshot_id.epoch = 1 << 20, node.epoch + ahead
    node.leader_message(StreamMessage(message), cluster.now_ms)
    assert not [effect for effect in node.take_effects() if isinstance(effect, FetchSnapshot)]
    message.snapshot_id.epoch = node.epoch
    node.leader_message(StreamMessage(message), cluster.now_ms)
    assert [effect for effect in node.take_effects() if isinstance(effect, FetchSnapshot)]
