"""A voter that has promised a later epoch than the leader's, where nobody looks for it: it is not locked out."""

from __future__ import annotations

import pytest

from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.controller.cluster_records import voters_record
from minilog_broker.quorum.member import Role
from minilog_broker.quorum.quorum_effects import VoteState
from tests.unit.quorum.cluster import QuorumCluster, topic_record
from tests.unit.quorum.judges import Judges
from tests.unit.quorum.machine import PORT, QuorumMachine

THREE = (1, 2, 3)
SEEDS = range(8)


def moved_while_it_led(seed: int, *, ahead: int = 1) -> tuple[QuorumCluster, QuorumMachine]:
    """The leader stood for election while it stopped, and starts again at another address. (the world, that voter)"""
    cluster = QuorumCluster(seed, THREE)
    Judges(cluster)
    cluster.start(*THREE)
    cluster.run(1_500)
    change_voters(cluster)
    moved = cluster.leader()
    cluster.stop(moved.node_id)
    cluster.run_until(lambda: bool(cluster.leaders()))
    cluster.run(200)
    moved.write_vote(VoteState(cluster.leader().node.epoch + ahead, moved.node_id, moved.directory_id))  # type: ignore[union-attr]
    moved.host = "elsewhere"
    cluster.start(moved.node_id)
    return cluster, moved


def change_voters(cluster: QuorumCluster, voters: tuple[int, ...] = THREE) -> None:
    cluster.leader().append(voters_record(cluster.machine(each).voter() for each in voters))
    cluster.run(500)


def role(machine: QuorumMachine) -> Role:
    assert machine.node is not None
    return machine.node.role


def is_up_to_date(machine: QuorumMachine) -> bool:
    return machine.image == machine.cluster.leader().image


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ahead", [1, 3, 1_000_000])
def test_a_voter_ahead_replays_commits_and_votes_again_when_its_address_is_recorded(seed: int, ahead: int) -> None:
    cluster, moved = moved_while_it_led(seed, ahead=ahead)
    leader = cluster.leader()
    cluster.run(5_000)
    leader.append(topic_record("while-it-listens"))
    cluster.run(500)
    assert cluster.leader() is leader, "it disturbs nobody"
    assert is_up_to_date(moved), "so its broker registers there, and runs"
    change_voters(cluster)
    cluster.run(3_000)
    assert cluster.leaders() == [leader]
    others = [each for each in THREE if each not in (leader.node_id, moved.node_id)]
    cluster.stop(*others)
    leader.append(topic_record("with-its-vote"))
    cluster.run(500)
    assert "with-its-vote" in leader.image.topic_ids, "its copy counts"


@pytest.mark.parametrize("seed", SEEDS)
def test_its_copy_counts_for_nothing_as_long_as_it_only_listens(seed: int) -> None:
    """It may have voted for another candidate in the epoch that it has promised."""
    cluster, moved = moved_while_it_led(seed)
    leader = cluster.leader()
    cluster.run(5_000)
    assert is_up_to_date(moved)
    third = next(each for each in THREE if each not in (leader.node_id, moved.node_id))
    cluster.stop(third)
    committed = leader.node.committed_end_offset  # type: ignore[union-attr]
    leader.append(topic_record("alone"))
    cluster.run(200)
    assert leader.node is not None
    assert leader.node.committed_end_offset == committed
    cluster.start(third)
    cluster.run(5_000)
    assert {is_up_to_date(machine) for machine in cluster.running()} == {True}


def test_a_voter_ahead_is_free_when_it_is_removed() -> None:
    cluster, moved = moved_while_it_led(0)
    cluster.run(5_000)
    change_voters(cluster, tuple(each for each in THREE if each != moved.node_id))
    cluster.run(3_000)
    assert role(moved) is Role.OBSERVER
    cluster.leader().append(topic_record("after"))
    cluster.run(1_000)
    assert is_up_to_date(moved)


@pytest.mark.parametrize("seed", SEEDS)
def test_when_the_leader_is_lost_it_votes_again(seed: int) -> None:
    cluster, moved = moved_while_it_led(seed)
    cluster.run(5_000)
    lost = cluster.leader().node_id
    cluster.stop(lost)
    cluster.run(3_000)
    cluster.start(lost)
    cluster.run(5_000)
    assert cluster.leader().node_id != moved.node_id, "nobody would find it"
    assert {is_up_to_date(machine) for machine in cluster.running()} == {True}


@pytest.mark.parametrize("leaves", [True, False])
def test_a_leader_that_leaves_does_not_stand_above_the_next_one(*, leaves: bool) -> None:
    """Its streams end before its process does. So it may hear of its successor's epoch while it still leads."""
    cluster = QuorumCluster(0, THREE)
    cluster.start(*THREE)
    cluster.run(1_500)
    leader = cluster.leader()
    assert leader.node is not None
    epoch = leader.node.epoch
    if leaves:
        leader.event(lambda node: node.leave(cluster.now_ms))
    other = next(each for each in THREE if each != leader.node_id)
    told = peer_pb2.BeginQuorumEpochResponse(epoch=epoch + 1, leader_id=-1)
    leader.event(lambda node: node.begin_epoch_answered(other, told, cluster.now_ms))
    cluster.run(20)
    assert leader.read_vote().epoch == (epoch if leaves else epoch + 2)


def test_a_follower_that_leaves_asks_for_no_votes() -> None:
    cluster = QuorumCluster(0, THREE)
    cluster.start(*THREE)
    cluster.run(1_500)
    leaving, leader = next(each for each in cluster.running() if role(each) is Role.FOLLOWER), cluster.leader()
    leaving.event(lambda node: node.leave(cluster.now_ms))
    cluster.stop(leader.node_id)
    cluster.run(3_000)
    assert [each is leaving for each in cluster.leaders()] == [False], "it votes, for the other one"


def register(cluster: QuorumCluster, machine: QuorumMachine) -> None:
    """As its broker does, when it has found the leader."""
    record = records_pb2.BrokerRegistrationRecord(
        broker_id=machine.node_id, directory_id=machine.directory_id, host=machine.host, port=PORT
    )
    cluster.leader().append(records_pb2.MetadataRecord(broker_registration=record))
    cluster.run(200)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ahead", [1, 3])
def test_a_voter_ahead_votes_again_without_a_command_when_its_broker_has_registered(seed: int, ahead: int) -> None:
    cluster, moved = moved_while_it_led(seed, ahead=ahead)
    leader = cluster.leader()
    cluster.run(5_000)
    register(cluster, moved)
    cluster.run(3_000)
    assert cluster.leaders() == [leader], "it stands above the promise"
    cluster.stop(*(each for each in THREE if each not in (leader.node_id, moved.node_id)))
    leader.append(topic_record("with-its-vote"))
    cluster.run(500)
    assert "with-its-vote" in leader.image.topic_ids, "its copy counts"


@pytest.mark.parametrize("seed", SEEDS)
def test_two_of_three_elect_a_leader_where_one_of_them_has_moved(seed: int) -> None:
    """Its address is not recorded. Each needs the other's vote, and then hears the other as its leader."""
    cluster = QuorumCluster(seed, THREE)
    Judges(cluster)
    cluster.start(*THREE)
    cluster.run(1_500)
    change_voters(cluster)
    leader = cluster.leader()
    moved = next(each for each in cluster.running() if each is not leader)
    cluster.stop(moved.node_id)
    moved.host = "elsewhere"
    cluster.start(moved.node_id)
    cluster.run(1_000)
    register(cluster, moved)
    cluster.stop(leader.node_id)
    cluster.run(3_000)
    assert len(cluster.leaders()) == 1
    cluster.leader().append(topic_record("by-two"))
    cluster.run(500)
    assert {"by-two" in machine.image.topic_ids for machine in cluster.running()} == {True}
