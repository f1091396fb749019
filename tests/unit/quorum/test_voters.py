"""Founding a cluster, wrong voters and clusters, lost disks and voters replaced."""

from __future__ import annotations

import random

import pytest

from minilog.errors import InconsistentClusterId, InconsistentVoters
from minilog.v1 import records_pb2
from minilog_broker.quorum import transitions
from minilog_broker.quorum.cluster import new_cluster_id
from minilog_broker.quorum.member import Role
from tests.rules import proves
from tests.unit.quorum import cluster as cluster_of_quorum
from tests.unit.quorum.cluster import QuorumCluster, Weather, topic_record
from tests.unit.quorum.judges import Judges
from tests.unit.quorum.machine import QuorumMachine

THREE = (1, 2, 3)


def replaced(machine: QuorumMachine, lost_directory_id: bytes) -> records_pb2.MetadataRecord:
    record = records_pb2.VoterReplacedRecord(
        broker_id=machine.node_id, lost_directory_id=lost_directory_id, directory_id=machine.directory_id
    )
    return records_pb2.MetadataRecord(voter_replaced=record)


def whole(seed: int = 0) -> tuple[QuorumCluster, QuorumMachine, list[QuorumMachine]]:
    cluster = QuorumCluster(seed, THREE)
    Judges(cluster)
    cluster.start(*THREE)
    cluster.run(1_000)
    (leader,) = cluster.leaders()
    return cluster, leader, [cluster.machine(each) for each in THREE if each != leader.node_id]


def emptied(machine: QuorumMachine) -> bytes:
    """It comes back with an empty disk; the directory id it lost."""
    lost = machine.directory_id
    machine.cluster.stop(machine.node_id)
    machine.new_disk()
    machine.cluster.start(machine.node_id)
    return lost


@proves("MD.16")
def test_a_cluster_is_founded_by_all_voters_together_or_not_at_all() -> None:
    cluster = QuorumCluster(0, THREE)
    cluster.start(1, 2)
    cluster.run(10_000)
    assert cluster.leaders() == []
    assert cluster.node(1).epoch == cluster.node(2).epoch == 0
    cluster.start(3)
    cluster.run(1_500)
    assert len(cluster.leaders()) == 1
    assert {voter.broker_id: voter.directory_id for voter in cluster.node(2).voters} == {
        each: cluster.machine(each).directory_id for each in THREE
    }


@proves("MD.16")
def test_two_emptied_disks_found_no_second_cluster() -> None:
    cluster, leader, others = whole()
    cluster.stop(leader.node_id)
    for machine in others:
        emptied(machine)
    cluster.run(5_000)
    assert cluster.leaders() == []
    cluster.start(leader.node_id)
    cluster.run(5_000)
    assert cluster.leaders() == []  # one of three has its disk: no majority, and nothing is made up
    assert [machine.log.log_end_offset for machine in others] == [0, 0]


@proves("MD.14")
def test_voters_that_were_founded_otherwise_end_with_a_sentence() -> None:
    cluster = QuorumCluster(0, THREE)
    cluster.machine(3).voters = (1, 2, 3, 4)
    cluster.start(*THREE)
    cluster.run(3_000)
    assert isinstance(cluster.machine(3).failure, InconsistentVoters)
    assert "[1, 2, 3, 4]" in str(cluster.machine(3).failure)
    assert cluster.machine(1).failure is None
    assert cluster.machine(2).failure is None


@proves("MD.14")
def test_a_voter_with_the_directory_of_another_cluster_ends_with_a_sentence() -> None:
    cluster, _, (other, _) = whole()
    strange, _, _ = whole(seed=5)
    cluster.stop(other.node_id)
    strange.stop(other.node_id)
    other.files = strange.machine(other.node_id).files
    other.directory_id = strange.machine(other.node_id).directory_id
    other.cluster_id = strange.machine(other.node_id).cluster_id
    cluster.start(other.node_id)
    cluster.run(3_000)
    assert isinstance(other.failure, InconsistentClusterId)


@pytest.mark.parametrize("seed", range(5))
def test_a_voter_of_another_cluster_that_knows_it_by_its_log_only_is_refused_all_the_same(seed: int) -> None:
    """It stopped before it heard that its cluster's first entry was committed, and was started with wrong addresses."""
    strange = QuorumCluster(seed, THREE)
    strange.start(*THREE)
    strange.run_until(lambda: any(each.node and each.node.committed_end_offset >= 2 for each in strange.leaders()))
    followers = [strange.machine(each) for each in THREE if strange.machine(each) is not strange.leader()]
    (stranger, *_) = [each for each in followers if each.log.durable_end_offset >= 2]
    strange.stop(stranger.node_id)
    cluster, _, _ = whole(seed=seed + 100)
    machine = cluster.machine(stranger.node_id)
    cluster.stop(machine.node_id)
    cluster.run(2_000)
    machine.files, machine.directory_id, machine.cluster_id = stranger.files, stranger.directory_id, None
    machine.votes_written.clear()
    cluster.start(machine.node_id)
    cluster.run(5_000)
    assert isinstance(machine.failure, InconsistentClusterId)
    assert machine.image.cluster_id != cluster.leader().cluster_id


@proves("MD.17")
def test_a_voter_with_an_empty_disk_watches_and_does_not_vote() -> None:
    cluster, leader, (lost, other) = whole()
    emptied(lost)
    cluster.run(1_000)
    assert lost.node is not None
    assert not lost.node.may_vote
    assert lost.node.role is Role.OBSERVER
    assert lost.image == leader.image
    cluster.stop(leader.node_id)
    cluster.run(5_000)
    assert cluster.leaders() == []  # one true voter is left, and the emptied one is none
    cluster.start(leader.node_id)
    cluster.run(2_000)
    assert len(cluster.leaders()) == 1
    assert lost.node.role is Role.OBSERVER
    assert other.failure is None


@proves("MD.17")
def test_an_emptied_voter_does_not_count_for_a_commit() -> None:
    cluster, leader, (lost, other) = whole()
    emptied(lost)
    cluster.run(1_000)
    cluster.stop(other.node_id)
    end = leader.append(topic_record("a"))
    cluster.run(300)
    assert lost.log.log_end_offset == end
    assert leader.node is not None
    assert leader.node.committed_end_offset < end


@proves("MD.17")
def test_a_replaced_voter_votes_and_counts() -> None:
    cluster, leader, (lost, other) = whole()
    lost_directory_id = emptied(lost)
    cluster.run(1_000)
    leader.append(replaced(lost, lost_directory_id))
    cluster.run(1_000)
    assert lost.node is not None
    assert lost.node.may_vote
    assert lost.node.role is Role.FOLLOWER
    assert {voter.directory_id for voter in leader.image.voters} == {m.directory_id for m in (leader, lost, other)}
    leader.append(topic_record("a"))
    cluster.run(100)
    cluster.stop(leader.node_id)
    cluster.run(2_000)
    assert len(cluster.leaders()) == 1  # lost and other are a majority now
    cluster.stop(*(machine.node_id for machine in cluster.running()))
    cluster.start(lost.node_id, other.node_id)
    cluster.run(2_000)
    assert len(cluster.leaders()) == 1


@proves("MD.17")
def test_a_replacement_needs_the_majority_before_it_too() -> None:
    cluster, leader, (lost, other) = whole()
    lost_directory_id = emptied(lost)
    cluster.run(1_000)
    cluster.stop(other.node_id)
    end = leader.append(replaced(lost, lost_directory_id))
    cluster.run(500)
    assert lost.log.log_end_offset >= end
    assert leader.node is not None
    assert leader.node.committed_end_offset < end  # leader and the new one: half of the old set only
    cluster.start(other.node_id)
    cluster.run(2_000)
    assert cluster.leader().node is not None
    assert all(machine.node is not None and machine.node.committed_end_offset >= end for machine in cluster.running())
    assert lost.node is not None
    assert lost.node.may_vote


def test_entries_held_back_by_the_former_voters_are_committed_with_a_replacement() -> None:
    cluster, leader, (lost, other) = whole()
    lost_directory_id = emptied(lost)
    cluster.run(1_000)
    node = leader.node
    assert node is not None
    other.pause(100)
    replacement = leader.append(replaced(lost, lost_directory_id))
    cluster.run(20)
    end = leader.append(topic_record("a"))
    cluster.run(60)
    assert lost.log.durable_end_offset == end
    assert node.committed_end_offset < replacement
    cluster.run_until(lambda: node.committed_end_offset >= replacement)
    cluster.stop(other.node_id)
    cluster.run(50)
    assert node.committed_end_offset == end  # leader and the new one are a majority, and nobody else is asked any more


@proves("MD.17")
@pytest.mark.parametrize("seed", range(6))
def test_a_replacement_that_is_cut_counts_no_more(seed: int) -> None:
    cluster, leader, (lost, other) = whole(seed)
    lost_directory_id = emptied(lost)
    cluster.run(1_000)
    cluster.cut_off(leader.node_id)
    cluster.cut_off(other.node_id, [lost.node_id])
    leader.append(replaced(lost, lost_directory_id))
    cluster.run(2_500)
    assert cluster.leaders() == []
    cluster.cut.clear()
    cluster.run(3_000)
    new = cluster.leader()
    assert new.node is not None
    assert [voter.directory_id for voter in new.node.voters] == [v.directory_id for v in new.image.voters]
    new.append(topic_record("a"))
    cluster.run(500)
    assert all("a" in machine.image.topic_ids for machine in cluster.running())


@proves("MD.14")
def test_a_start_with_other_voters_goes_on_with_the_recorded_ones() -> None:
    cluster, leader, _ = whole()
    cluster.stop(leader.node_id)
    cluster.run(2_000)
    leader.voters = (leader.node_id,)
    cluster.start(leader.node_id)
    cluster.run(2_000)
    (other,) = cluster.leaders()
    assert other is not leader, "alone it is no majority of the recorded voters"
    assert leader.node is not None
    assert leader.node.role is Role.FOLLOWER
    assert [voter.broker_id for voter in leader.node.voters] == [1, 2, 3]


def test_an_identity_that_was_never_committed_binds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lead in turn while a cluster is founded, for answers take long; only the second one's entry is committed."""
    monkeypatch.setattr(cluster_of_quorum, "REQUEST_TIMEOUT_MS", 5_000.0)
    given = []

    def noted(rng: random.Random) -> str:
        given.append(new_cluster_id(rng))
        return given[-1]

    monkeypatch.setattr(transitions, "new_cluster_id", noted)
    cluster = QuorumCluster(240, THREE)
    cluster.start(*THREE)
    cluster.weather = Weather(delay_ms=(0.1, 1_500.0))
    cluster.run(6_000)
    cluster.weather = Weather()
    cluster.run(6_000)
    assert len(given) > 1, "one cluster id was given only: this seed shows nothing any more"
    assert [cluster.machine(each).failure for each in THREE] == [None, None, None]
    assert len({cluster.machine(each).cluster_id for each in THREE}) == 1
