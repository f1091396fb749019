"""The single voter: its vote, the start of its epoch, its commits, and what it refuses to start with."""

from __future__ import annotations

import pytest

from minilog.errors import InconsistentClusterId, InconsistentVoters, NotController, StorageError
from minilog_broker.quorum.member import Role
from minilog_broker.quorum.quorum_effects import AppendToLog, PersistVote, QuorumEffect, RecordEpochStart, VoteState
from tests.rules import proves
from tests.unit.quorum.cluster import FOUNDED, TIMESTAMP_US, QuorumCluster, topic_record
from tests.unit.quorum.machine import VOTE_FILE


def alone() -> QuorumCluster:
    cluster = QuorumCluster()
    cluster.start(1)
    cluster.run(50)
    return cluster


def test_the_vote_is_durable_before_anything_else_is_done() -> None:
    cluster = QuorumCluster()
    cluster.start(1)  # the disk does nothing before the world runs
    machine, node = cluster.machine(1), cluster.node(1)
    assert node.role is Role.CANDIDATE
    assert len(machine.commands) == 1
    node.tick(1000.0)
    assert node.take_effects() == []
    cluster.run(10)
    assert machine.votes_written == [VoteState(1, 1)]
    assert cluster.node(1).role is Role.LEADER


@proves("MD.8")
def test_the_epoch_start_is_recorded_before_its_first_entry_which_is_the_leader_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = QuorumCluster()
    seen: list[QuorumEffect] = []
    machine = cluster.machine(1)
    carry_out = machine._carry_out_one

    def carried_out(effect: QuorumEffect) -> None:
        seen.append(effect)
        carry_out(effect)

    monkeypatch.setattr(machine, "_carry_out_one", carried_out)
    cluster.start(1)
    cluster.run(50)
    vote, start, change, founding = seen[:4]
    assert vote == PersistVote(epoch=1, voted_for=1)
    assert isinstance(start, RecordEpochStart)
    assert (start.leader_epoch, start.start_offset) == (1, 0)
    assert isinstance(change, AppendToLog)
    assert change.batches.headers[0].is_control
    assert isinstance(founding, AppendToLog)
    assert founding.batches.first_offset == 1


def test_the_first_metadata_entry_says_which_cluster_it_is_and_who_votes() -> None:
    machine = alone().machine(1)
    assert machine.image.cluster_id
    assert [(voter.broker_id, voter.directory_id) for voter in machine.image.voters] == [(1, machine.directory_id)]


@proves("MD.5")
def test_entries_are_committed_by_their_sync_and_not_before() -> None:
    cluster = alone()
    machine, node = cluster.machine(1), cluster.node(1)
    assert machine.append(topic_record("a")) == FOUNDED + 1
    while machine.log.log_end_offset <= FOUNDED:
        cluster.run(0.1)
    assert node.committed_end_offset == FOUNDED
    assert "a" not in machine.image.topic_ids
    cluster.run(10)
    assert node.committed_end_offset == FOUNDED + 1
    assert "a" in machine.image.topic_ids


@proves("MD.32")
def test_active_only_when_what_opened_the_epoch_is_committed_and_replayed() -> None:
    cluster = QuorumCluster()
    cluster.start(1)
    node = cluster.node(1)
    cluster.run_until(lambda: node.is_leader)
    assert not node.is_active
    with pytest.raises(NotController):
        node.append_records([topic_record("a")], TIMESTAMP_US)
    cluster.run(50)
    assert cluster.node(1).is_active
    assert node.append_records([topic_record("a"), topic_record("b")], TIMESTAMP_US) == FOUNDED + 2


def test_every_start_raises_the_epoch_and_adds_no_second_cluster_record() -> None:
    cluster = QuorumCluster()
    cluster_ids = set()
    for epoch in (1, 2, 3):
        cluster.start(1)
        cluster.run(50)
        assert cluster.node(1).epoch == epoch
        cluster_ids.add(cluster.machine(1).image.cluster_id)
        cluster.stop(1)
    assert len(cluster_ids) == 1
    assert [vote.epoch for vote in cluster.machine(1).votes_written] == [1, 2, 3]


@proves("MD.4")
def test_the_epoch_is_above_the_logs_though_the_vote_was_lost() -> None:
    cluster = alone()
    cluster.stop(1)
    cluster.machine(1).files.lose(VOTE_FILE)
    cluster.start(1)
    assert cluster.node(1).epoch == 2


def test_a_start_that_ended_before_the_cluster_record_is_taken_up() -> None:
    cluster = QuorumCluster()
    machine = cluster.machine(1)
    cluster.start(1)
    cluster.run_until(lambda: machine.log.log_end_offset == 1 == machine.log.durable_end_offset)
    cluster.stop(1, power_loss=True)
    cluster.start(1)
    cluster.run(50)
    assert machine.image.cluster_id
    assert cluster.node(1).is_active


@pytest.mark.parametrize("seed", range(20))
def test_committed_entries_survive_a_loss_of_power(seed: int) -> None:
    cluster = QuorumCluster(seed)
    machine = cluster.machine(1)
    names: set[str] = set()
    for life in range(4):
        cluster.start(1)
        cluster.run(50)
        assert names <= set(machine.image.topic_ids)
        for index in range(cluster.random.randrange(4)):
            machine.append(topic_record(f"t{life}-{index}"))
            cluster.run(cluster.random.uniform(0.0, 3.0))
        names = set(machine.image.topic_ids)
        cluster.stop(1, power_loss=True)


def test_after_a_start_with_other_voters_the_recorded_one_leads() -> None:
    cluster = alone()
    cluster.stop(1)
    cluster.machine(1).voters = (2,)
    cluster.start(1)
    cluster.run(1_000)
    assert cluster.node(1).is_active


@proves("MD.14")
def test_the_only_voter_is_refused_with_another_directory_id_than_the_recorded_one() -> None:
    cluster = alone()
    cluster.stop(1)
    cluster.machine(1).directory_id = bytes(16)
    cluster.start(1)
    assert isinstance(cluster.machine(1).failure, InconsistentVoters)
    assert "directory id" in str(cluster.machine(1).failure)


def test_a_voter_that_knows_its_cluster_but_has_lost_the_log_does_not_begin_a_new_one() -> None:
    cluster = QuorumCluster()
    cluster.machine(1).cluster_id = "some-cluster"
    cluster.start(1)
    assert isinstance(cluster.machine(1).failure, InconsistentClusterId)
    assert "metadata log is empty" in str(cluster.machine(1).failure)


def test_a_leader_whose_own_copy_is_damaged_ends_when_a_follower_says_so() -> None:
    cluster = alone()
    machine = cluster.machine(1)
    machine.append(topic_record("a"))
    cluster.run(50)
    path = f"{machine.log.directory}/{0:020d}.log"
    machine.files.damage(path, len(machine.files.content(path)) - 1, b"\xff")
    cluster.start(2)
    cluster.run(5_000)
    assert isinstance(machine.failure, StorageError)
    assert "metadata log of broker 1 is damaged" in str(machine.failure)
