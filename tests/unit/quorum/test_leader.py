"""The single voter: its vote, the start of its epoch, its commits, and what it refuses to start with."""

from __future__ import annotations

import pytest

from minilog.errors import InconsistentClusterId, InconsistentVoters, InvalidConfig, NotController
from minilog_broker.quorum.effects import PersistVote, VoteState
from minilog_broker.quorum.node import Role
from minilog_broker.replication.effects import AppendToLog, RecordEpochStart
from tests.unit.quorum.world import TIMESTAMP_US, World, directory_id, topic_record


def test_the_vote_is_durable_before_anything_else_is_done() -> None:
    node = World().start(1)
    assert node.take_effects() == [PersistVote(epoch=1, voted_for=1)]
    assert node.role is Role.CANDIDATE
    node.tick(1000.0)
    assert node.take_effects() == []


def test_the_epoch_start_is_recorded_before_its_first_entry_which_is_the_leader_change() -> None:
    node = World().start(1)
    node.take_effects()
    node.vote_persisted(0.0, TIMESTAMP_US)
    start, change, cluster = node.take_effects()
    assert isinstance(start, RecordEpochStart)
    assert (start.leader_epoch, start.start_offset) == (1, 0)
    assert isinstance(change, AppendToLog)
    assert change.batches.headers[0].is_control
    assert isinstance(cluster, AppendToLog)
    assert cluster.batches.first_offset == 1


def test_the_first_metadata_entry_says_which_cluster_it_is_and_who_votes() -> None:
    world = World()
    world.start(1)
    world.settle()
    image = world.machine(1).image
    assert image.cluster_id
    assert [(voter.broker_id, voter.directory_id) for voter in image.voters] == [(1, directory_id(1))]


def test_what_is_appended_is_committed_by_its_sync_and_not_before() -> None:
    world = World()
    node = world.start(1)
    world.write(1)
    assert node.log_end_offset == 2
    assert node.committed_end_offset == 0
    assert node.take_committed() == []
    world.flush(1)
    assert node.committed_end_offset == 2


def test_active_only_when_what_opened_the_epoch_is_committed_and_replayed() -> None:
    world = World()
    node = world.start(1)
    world.write(1)
    with pytest.raises(NotController):
        node.append_records([topic_record("a")], TIMESTAMP_US)
    log = world.machine(1).log
    assert log is not None
    log.flush()
    node.log_flushed(log.durable_end_offset, 0.0)
    assert node.is_leader
    assert not node.is_active
    world.replay(1)
    assert node.is_active
    assert node.append_records([topic_record("a"), topic_record("b")], TIMESTAMP_US) == 4


def test_every_start_raises_the_epoch_and_adds_no_second_cluster_record() -> None:
    world = World()
    for epoch in (1, 2, 3):
        node = world.start(1)
        world.settle()
        assert node.epoch == epoch
        cluster_id = world.machine(1).image.cluster_id
        world.stop(1)
    world.start(1)
    world.settle()
    assert world.machine(1).image.cluster_id == cluster_id
    assert [vote.epoch for vote in world.machine(1).votes_written] == [1, 2, 3, 4]


def test_the_epoch_is_above_the_logs_though_the_vote_was_lost() -> None:
    world = World()
    world.start(1)
    world.settle()
    world.stop(1)
    world.machine(1).vote = VoteState()
    assert world.start(1).take_effects() == [PersistVote(epoch=2, voted_for=1)]


def test_a_start_that_ended_before_the_cluster_record_is_taken_up() -> None:
    world = World()
    world.start(1)
    machine = world.machine(1)
    world.collect(1)
    for _ in range(3):  # the vote, the epoch's start and the leader change
        world._command(machine, world.node(1), machine.commands.popleft())
        world.collect(1)
    assert machine.log is not None
    machine.log.flush()
    world.stop(1, power_loss=True)
    world.start(1)
    world.settle()
    assert machine.image.cluster_id
    assert world.node(1).is_active


@pytest.mark.parametrize("seed", range(20))
def test_what_was_committed_survives_a_loss_of_power(seed: int) -> None:
    world = World(seed)
    machine = world.machine(1)
    machine.files = type(machine.files)(world.random)
    names: set[str] = set()
    for life in range(4):
        node = world.start(1)
        world.settle(for_ms=20)
        assert names <= set(machine.image.topic_ids)
        for index in range(world.random.randrange(4)):
            node.append_records([topic_record(f"t{life}-{index}")], TIMESTAMP_US)
            world.write(1)
            if world.random.random() < 0.6:
                world.flush(1)
        names = set(machine.image.topic_ids)
        world.stop(1, power_loss=True)


def test_a_start_with_other_voters_is_refused() -> None:
    world = World()
    world.start(1)
    world.settle()
    world.stop(1)
    with pytest.raises(InconsistentVoters, match=r"voters \[2\].*\[1\]"):
        world.start(1, voters=(2,))


def test_a_voter_whose_directory_id_is_not_the_recorded_one_is_refused() -> None:
    world = World()
    world.start(1)
    world.settle()
    world.stop(1)
    with pytest.raises(InconsistentVoters, match="directory id"):
        world.start(1, directory=directory_id(9))


def test_a_voter_that_knows_its_cluster_but_has_lost_the_log_does_not_begin_a_new_one() -> None:
    world = World()
    world.machine(1).cluster_id = "some-cluster"
    with pytest.raises(InconsistentClusterId, match="metadata log is empty"):
        world.start(1)


def test_several_voters_are_refused_in_one_sentence_as_long_as_there_is_no_election() -> None:
    with pytest.raises(InvalidConfig, match="give one voter"):
        World().start(1, voters=(1, 2, 3))
