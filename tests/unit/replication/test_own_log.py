"""What a broker appends to the log of an internal topic by itself, and what its coordinator is told of that log."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidTopic, MessageTooLarge, NoSpace, NotEnoughReplicas, NotLeaderOrFollower
from minilog_broker.replication.led import BeganToLead, HighWatermarkMoved, LedEffect, StoppedLeading
from tests.unit.replication.world import KEY, World, batch

TOLD = (BeganToLead, HighWatermarkMoved, StoppedLeading)


@pytest.fixture
def world() -> World:
    world = World(leader_id=None)
    world.controller.create(KEY, (1, 2, 3), 1, "__groups")
    world.settle()
    return world


def told(world: World, broker_id: int) -> list[LedEffect]:
    """Since it was asked last."""
    broker = world[broker_id]
    found = [each for each in broker.history if isinstance(each, TOLD)]
    broker.history.clear()
    return found


def append(world: World, base_offset: int, *, broker_id: int = 1, epoch: int = 0, rows: int = 1) -> int:
    end = world[broker_id].manager.append_own(KEY, epoch, base_offset, batch(rows), world.now_ms)
    world[broker_id].run()
    return end


def test_the_leader_of_an_internal_partition_is_told_that_it_leads_and_what_is_committed(world: World) -> None:
    assert told(world, 1) == [BeganToLead(KEY, "__groups", 0, 0), HighWatermarkMoved(KEY, 0, 0)]
    assert told(world, 2) == []


def test_nothing_is_told_of_the_partitions_of_others_topics() -> None:
    world = World()
    world.produce(1)
    world.settle()
    assert told(world, 1) == []


def test_its_own_batch_has_its_place_at_once_and_is_committed_by_the_high_watermark(world: World) -> None:
    told(world, 1)
    assert append(world, 0, rows=2) == 2
    assert append(world, 2) == 3
    world.settle()
    assert [each.partition_leader_epoch for each in world[3].headers()] == [0, 0]
    assert told(world, 1)[-1] == HighWatermarkMoved(KEY, 0, 3)


def test_nothing_is_told_to_be_committed_before_the_isr_has_it(world: World) -> None:
    told(world, 1)
    append(world, 0)
    while world[1].disk:
        world[1].work()
    world[1].flush()
    assert told(world, 1) == []


def test_clients_write_nothing_to_an_internal_topic(world: World) -> None:
    answer = world[1].answers[world.produce(1)]
    assert isinstance(answer.error, InvalidTopic)
    assert world[1].ends()[2] == 0


def test_a_new_leader_is_told_where_its_log_ended_and_the_former_that_it_is_over(world: World) -> None:
    append(world, 0, rows=3)
    world.settle()
    told(world, 1)
    world.controller.move(KEY, 2)
    world.settle()
    assert told(world, 1) == [StoppedLeading(KEY)]
    epoch = world.controller.partitions[KEY].leader_epoch
    assert BeganToLead(KEY, "__groups", epoch, 3) in told(world, 2)
    with pytest.raises(NotLeaderOrFollower):
        append(world, 3, epoch=0)
    with pytest.raises(NotLeaderOrFollower):
        append(world, 3, broker_id=2, epoch=0)
    assert append(world, 3, broker_id=2, epoch=epoch) == 4


def test_a_batch_that_is_meant_for_another_place_is_not_appended(world: World) -> None:
    append(world, 0)
    for base_offset in (0, 2):
        with pytest.raises(NotLeaderOrFollower):
            append(world, base_offset)
    assert append(world, 1) == 2


def test_below_min_nothing_is_written(world: World) -> None:
    for broker_id in (2, 3):
        world.cut.add((broker_id, 1))
        world.break_link(world[broker_id].links[1])
        world.controller.fence(broker_id)
    world.settle()
    with pytest.raises(NotEnoughReplicas):
        append(world, 0)
    assert world[1].ends()[2] == 0


def test_a_decision_that_no_follower_could_be_sent_is_refused(world: World) -> None:
    large = batch(2, size_bytes=5 << 20)
    with pytest.raises(MessageTooLarge):
        world[1].manager.append_own(KEY, 0, 0, large, world.now_ms)


def test_appends_that_a_full_disk_dropped_are_told_by_leading_anew_from_where_the_log_ends(world: World) -> None:
    append(world, 0)
    world.settle()
    told(world, 1)
    world[1].files.full = True
    append(world, 1)
    append(world, 2)
    world.settle()
    assert told(world, 1) == [BeganToLead(KEY, "__groups", 0, 1), HighWatermarkMoved(KEY, 0, 1)]
    with pytest.raises(NoSpace):
        append(world, 1)
    world[1].files.full = False
    world.advance(world.settings.no_space_pause_ms + 1)
    assert append(world, 1) == 2


def test_a_broken_disk_ends_the_term(world: World) -> None:
    told(world, 1)
    append(world, 0)
    world[1].files.failing = True
    world.settle()
    assert StoppedLeading(KEY) in told(world, 1)
