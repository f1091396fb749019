"""Epochs that one sick broker names: none is adopted without proof, and voters that stand far apart come together (V11,
V20)."""

from __future__ import annotations

import pytest

from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.quorum.effects import FetchSnapshot, VoteState
from minilog_broker.quorum.epochs_told import LEAP_EPOCHS, NEAR_EPOCHS
from minilog_broker.quorum.member import MAX_EPOCH
from tests.unit.quorum.judges import Judges
from tests.unit.quorum.machine import Machine, Ticket
from tests.unit.quorum.world import World, topic_record

THREE = (1, 2, 3)
FAR = 1 << 20


def quorum(seed: int = 0) -> tuple[World, Machine, list[Machine]]:
    """(the world, the leader, the other voters), an observer 8 beside."""
    world = World(seed, THREE)
    Judges(world)
    world.start(*THREE, 8)
    world.run(1_000)
    (leader,) = world.leaders()
    return world, leader, [world.machine(each) for each in THREE if each != leader.node_id]


def epochs(world: World) -> list[int]:
    return [world.node(each).epoch for each in THREE]


def is_led(world: World) -> bool:
    return any(each.node is not None and each.node.is_active for each in world.leaders())


def commits(world: World, name: str) -> None:
    end = world.leader().append(topic_record(name))
    world.run(500)
    assert [machine.image.end_offset for machine in world.running()] == [end] * len(world.running())


def tell(world: World, to: int, epoch: int, leader_id: int) -> peer_pb2.BeginQuorumEpochResponse:
    """BeginQuorumEpoch, in somebody's name."""
    machine, answers = world.machine(to), list[peer_pb2.BeginQuorumEpochResponse]()
    begin = peer_pb2.BeginQuorumEpochRequest(
        cluster_id=machine.cluster_id or "", leader_id=leader_id, epoch=epoch, voter_id=to
    )
    machine.event(lambda node: answers.append(node.begin_quorum_epoch(begin, world.now_ms)))
    return answers[0]


def ask(world: World, to: int, candidate: int, epoch: int, *, pre_vote: bool = False) -> None:
    """A vote, in somebody's name."""
    asked = peer_pb2.VoteRequest(
        cluster_id=world.machine(to).cluster_id or "",
        candidate_id=candidate,
        candidate_directory_id=world.machine(candidate).directory_id,
        epoch=epoch,
        pre_vote=pre_vote,
        last_end_offset=1 << 40,
        last_epoch=epoch - 1,
        voter_id=to,
        voter_directory_id=world.machine(to).directory_id,
        voter_ids=THREE,
    )
    ticket = Ticket(lambda answer: None, real=False)
    world.machine(to).event(lambda node: node.vote_request(ticket, asked, world.now_ms))


def say(world: World, to: int, voter_id: int, epoch: int, leader_id: int = -1) -> None:
    """What a sick voter answers to `to`, on the channel that `to` has opened to it."""
    asked = peer_pb2.VoteRequest(candidate_id=to, voter_id=voter_id, epoch=world.node(to).epoch + 1, pre_vote=True)
    response = peer_pb2.VoteResponse(epoch=epoch, leader_id=leader_id)
    world.machine(to).event(lambda node: node.vote_answered(voter_id, asked, response, world.now_ms, 0))


def deny(world: World, leader: Machine, voter_id: int, answer: peer_pb2.BeginQuorumEpochResponse) -> None:
    """What a sick voter answers to the leader."""
    leader.event(lambda node: node.begin_epoch_answered(voter_id, answer, world.now_ms))


@pytest.mark.parametrize("pause_ms", [0.0, 1.0, 200.0])
def test_seven_messages_part_no_voters_and_depose_nobody(pause_ms: float) -> None:
    """Each names an epoch that its receiver could take for one of this cluster."""
    world, leader, _ = quorum()
    before = epochs(world)
    for number in range(7):
        to = THREE[number % 3]
        tell(world, to, world.node(to).epoch + FAR, leader_id=THREE[(number + 1) % 3])
        world.run(pause_ms)
    world.run(5_000)
    assert epochs(world) == before
    assert world.leaders() == [leader]
    commits(world, "after")


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize("ahead", [1, NEAR_EPOCHS, FAR])
@pytest.mark.parametrize("seed", range(3))
def test_votes_that_are_asked_in_the_name_of_others_depose_nobody(seed: int, ahead: int, *, pre_vote: bool) -> None:
    """In the leader's own name, too, and to the leader."""
    world, leader, _ = quorum(seed)
    before = epochs(world)
    for to in THREE:
        for candidate in THREE:
            if candidate != to:
                ask(world, to, candidate, world.node(to).epoch + ahead, pre_vote=pre_vote)
                world.run(1.0)
    world.run(5_000)
    assert epochs(world) == before
    assert world.leaders() == [leader]
    commits(world, "after")


def test_what_one_voter_answers_is_not_believed_while_a_leader_is_heard() -> None:
    """By its followers; the leader goes at most one leap, and stays."""
    world, leader, (follower, sick) = quorum()
    before = world.node(follower.node_id).epoch
    say(world, follower.node_id, sick.node_id, before + 1, sick.node_id)
    say(world, follower.node_id, sick.node_id, before + FAR, sick.node_id)
    refusal = peer_pb2.ReplicateResponse(quorum_epoch=before + FAR, quorum_leader_id=sick.node_id)
    refusal.error.code = common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    world.machine(8).event(lambda node: node.leader_message(StreamMessage(refusal), world.now_ms))
    world.run(3_000)
    assert epochs(world) == [before] * 3
    assert world.node(8).leader_id == leader.node_id
    commits(world, "after")


def test_a_voter_that_names_ever_later_epochs_uses_few_of_them_up() -> None:
    """A leap is at most LEAP_EPOCHS, and each next one waits twice as long."""
    world, leader, (_, sick) = quorum()
    before = world.node(leader.node_id).epoch
    leaders = set[tuple[int, int]]()
    for _ in range(600):
        current = world.leader()
        if current is not sick:
            answer = peer_pb2.BeginQuorumEpochResponse(epoch=MAX_EPOCH - 1, leader_id=-1)
            deny(world, current, sick.node_id, answer)
        world.run(100)
        leaders.add((world.leader().node_id, world.node(world.leader().node_id).epoch))
    assert world.leader() is leader
    assert world.node(leader.node_id).epoch <= before + 7 * (LEAP_EPOCHS + 1)
    assert len(leaders) <= 7
    commits(world, "after")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stored", [(0, 3 * FAR, 5 * FAR), (5 * FAR, 0, 0), (2 * FAR, 4 * FAR, 6 * FAR)])
def test_voters_that_stand_far_apart_come_together_after_a_restart(seed: int, stored: tuple[int, int, int]) -> None:
    """What seven messages made of a quorum once: the highest epoch on any disk is reached."""
    world, leader, _ = quorum(seed)
    own = world.node(leader.node_id).epoch
    world.stop(*THREE, 8)
    for node_id, ahead in zip(THREE, stored, strict=True):
        if ahead:
            world.machine(node_id).write_vote(VoteState(own + ahead, node_id))
    world.start(*THREE, 8)
    world.run_until(lambda: is_led(world))
    world.run_until(lambda: is_led(world) and len(set(epochs(world))) == 1, within_ms=60_000.0)
    assert world.node(1).epoch > own + max(stored)
    world.run(1_000)
    commits(world, "after")


@pytest.mark.parametrize("absent", THREE)
def test_two_of_three_that_stand_far_apart_come_together(absent: int) -> None:
    """There is no majority that could prove the later epoch, and a majority that must go on."""
    world, leader, _ = quorum()
    own = world.node(leader.node_id).epoch
    world.stop(*THREE, 8)
    for node_id in THREE:
        world.machine(node_id).write_vote(VoteState(own + node_id * FAR, node_id))
    there = [each for each in THREE if each != absent]
    world.start(*there, 8)
    world.run_until(lambda: is_led(world), within_ms=30_000.0)


def test_an_observer_that_was_told_of_a_later_epoch_finds_the_leader_again() -> None:
    """By one that plays the leader: what an observer follows it forgets where nobody leads."""
    world, leader, _ = quorum()
    observer = world.node(8)
    message = peer_pb2.ReplicateResponse()
    message.runs.add(leader_epoch=observer.epoch + FAR).partition_id.topic_id = bytes(15) + b"\x01"
    world.machine(8).event(lambda node: node.leader_message(StreamMessage(message, [b""]), world.now_ms))
    world.run(10_000)
    assert observer.leader_id == leader.node_id
    assert observer.epoch == world.node(leader.node_id).epoch
    commits(world, "after")


@pytest.mark.parametrize("ahead", [1, FAR])
def test_a_snapshot_of_a_later_epoch_than_its_leaders_is_not_fetched(ahead: int) -> None:
    world, _, (follower, _) = quorum()
    node = world.node(follower.node_id)
    message = peer_pb2.ReplicateResponse()
    message.snapshot_id.end_offset, message.snapshot_id.epoch = 1 << 20, node.epoch + ahead
    node.leader_message(StreamMessage(message), world.now_ms)
    assert not [effect for effect in node.take_effects() if isinstance(effect, FetchSnapshot)]
    message.snapshot_id.epoch = node.epoch
    node.leader_message(StreamMessage(message), world.now_ms)
    assert [effect for effect in node.take_effects() if isinstance(effect, FetchSnapshot)]
