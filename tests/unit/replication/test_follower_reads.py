"""Consumers read from a follower (KIP-392) what is committed, and are sent to the leader where it cannot tell."""

from __future__ import annotations

import pytest

from minilog.record_batch.header import iterate_headers
from minilog.v1 import common_pb2, data_pb2, metadata_pb2
from tests.unit.replication.world import KEY, World, batch

NOT_HERE = common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def offsets(world: World, broker_id: int, session_id: int) -> list[int]:
    """The base offsets of the batches that a consumer was sent."""
    return [
        header.base_offset
        for _, batches in world.pushed(broker_id, session_id)
        for _, header in iterate_headers(batches)
    ]


def last_run(world: World, broker_id: int, session_id: int) -> data_pb2.PartitionRun:
    return world.runs(broker_id, session_id)[-1]


def later(world: World, ms: float) -> None:
    """All that can happen does, time passes, and all that can happen does."""
    world.settle()
    world.advance(ms)
    world.settle()


def produced(count: int, *, brokers: int = 3) -> World:
    world = World(brokers)
    for _ in range(count):
        world.produce(1)
        later(world, 10)
    return world


def test_a_consumer_reads_from_a_follower_what_is_committed_and_then_what_comes() -> None:
    world = produced(3)
    session_id = world.consume(2, 0, leader_epoch=0)
    world.settle()
    assert offsets(world, 2, session_id) == [0, 1, 2]
    world.produce(1)
    later(world, 20)
    assert offsets(world, 2, session_id) == [0, 1, 2, 3]
    assert last_run(world, 2, session_id).high_watermark == 4


def test_nothing_above_the_followers_high_watermark_is_shown() -> None:
    world = produced(1)
    world.cut.add((3, 1))
    world.break_link(world[3].links[1])  # 3 is in the ISR and hears nothing: nothing more is committed
    session_id = world.consume(2, 0, leader_epoch=0)
    world.produce(1, acks=1)
    later(world, 50)
    assert world[2].ends() == (1, 2, 2)
    assert offsets(world, 2, session_id) == [0]
    world.cut.clear()
    later(world, 1_000)
    assert offsets(world, 2, session_id) == [0, 1]


def test_an_offset_above_the_high_watermark_waits_and_is_never_out_of_range() -> None:
    world = produced(1)
    session_id = world.consume(2, 3, leader_epoch=0, last_fetched_epoch=0)
    world.settle()
    assert not last_run(world, 2, session_id).error.code
    assert not last_run(world, 2, session_id).HasField("diverging_epoch")
    for _ in range(4):
        world.produce(1)
        later(world, 10)
    assert offsets(world, 2, session_id) == [3, 4]


def test_below_the_followers_log_start_is_the_leaders_matter() -> None:
    world = produced(3)
    world[2].logs[KEY].advance_log_start(2)
    world[2].manager.log_start_moved(KEY, world.now_ms)
    session_id = world.consume(2, 1, leader_epoch=0)
    world.settle()
    assert last_run(world, 2, session_id).error.code == NOT_HERE


def test_behind_a_record_of_another_epoch_is_the_leaders_matter() -> None:
    world = produced(2)
    world.controller.move(KEY, 2)
    later(world, 100)
    world.produce(2)
    later(world, 100)
    session_id = world.consume(3, 2, leader_epoch=1, last_fetched_epoch=1)
    world.settle()
    assert last_run(world, 3, session_id).error.code == NOT_HERE
    good = world.consume(3, 2, leader_epoch=1, last_fetched_epoch=0)
    world.settle()
    assert offsets(world, 3, good) == [2]


@pytest.mark.parametrize(("epoch", "code"), [(0, "FENCED_LEADER_EPOCH"), (2, "UNKNOWN_LEADER_EPOCH")])
def test_leader_epochs_are_checked_on_a_follower_too(epoch: int, code: str) -> None:
    world = produced(1)
    world.controller.move(KEY, 2)
    later(world, 100)
    session_id = world.consume(3, 0, leader_epoch=epoch)
    world.settle()
    assert last_run(world, 3, session_id).error.code == common_pb2.ErrorCode.Value(f"ERROR_CODE_{code}")
    assert offsets(world, 3, session_id) == []


def test_a_follower_whose_image_is_behind_waits_for_the_epoch_and_then_sends() -> None:
    world = produced(1)
    world.controller.move(KEY, 2)
    world[3].alive = False
    world.settle()
    world[3].alive = True
    session_id = world.consume(3, 0, leader_epoch=1)
    while session_id in world[3].consumers_ready:
        world.pull_consumer(world[3], session_id)
    assert last_run(world, 3, session_id).error.code == common_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH
    later(world, 1_000)
    assert offsets(world, 3, session_id) == [0]


def test_a_follower_that_loses_its_leader_sends_consumers_away() -> None:
    world = produced(1)
    session_id = world.consume(2, 0, leader_epoch=0)
    world.settle()
    world[1].crash()
    later(world, 10)
    assert last_run(world, 2, session_id).error.code == NOT_HERE
    late = world.consume(2, 0, leader_epoch=0)
    world.settle()
    assert world.runs(2, late) == [], "it waits: whether there is anything to read here, nobody knows yet"


def test_a_follower_that_hears_nothing_of_its_leader_sends_consumers_away() -> None:
    world = produced(1)
    session_id = world.consume(2, 0, leader_epoch=0)
    world.settle()
    world[1].alive = False  # it hangs
    later(world, 700)
    assert last_run(world, 2, session_id).error.code == NOT_HERE


def test_a_follower_that_leaves_the_isr_sends_consumers_away_and_takes_none() -> None:
    world = produced(1)
    session_id = world.consume(3, 0, leader_epoch=0)
    world.settle()
    world.controller.fence(3)
    later(world, 5)
    assert last_run(world, 3, session_id).error.code == NOT_HERE
    again = world.consume(3, 0, leader_epoch=0)
    world.settle()
    assert last_run(world, 3, again).error.code == NOT_HERE
    assert offsets(world, 3, again) == []


def test_a_leader_that_becomes_a_follower_fences_and_serves_the_new_epoch() -> None:
    world = produced(2)
    session_id = world.consume(1, 0, leader_epoch=0)
    world.settle()
    world.controller.move(KEY, 2)
    later(world, 100)
    assert last_run(world, 1, session_id).error.code == common_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    world.produce(2)
    later(world, 20)
    world.fetch(1, session_id, 2, position_number=2, leader_epoch=1, last_fetched_epoch=0)
    world.settle()
    assert offsets(world, 1, session_id) == [0, 1, 2]


def test_a_follower_that_truncates_shows_nothing_of_what_it_cuts() -> None:
    world = World(min_in_sync=1)
    world.produce(1)
    later(world, 50)
    world.cut = {(2, 1), (3, 1)}
    for link in list(world.links()):
        world.break_link(link)
    world.produce(1, acks=1)  # on the old leader's disk alone
    world.settle()
    world.controller.move(KEY, 2)
    world.settle()
    world.produce(2, batch(size_bytes=77))
    session_id = world.consume(1, 0, leader_epoch=1)
    later(world, 1_000)
    world.cut.clear()
    later(world, 1_000)
    pushed = world.pushed(1, session_id)
    found = [(h.base_offset, h.partition_leader_epoch) for _, run in pushed for _, h in iterate_headers(run)]
    assert found == [(0, 0), (1, 1)]


def test_a_deleted_topic_ends_the_reading_from_a_follower() -> None:
    world = produced(1)
    session_id = world.consume(2, 0, leader_epoch=0)
    world.settle()
    world.controller.delete(KEY)
    later(world, 50)
    assert last_run(world, 2, session_id).error.code == NOT_HERE


def test_a_follower_that_registers_anew_never_leaves_a_reader_waiting_in_silence() -> None:
    world = produced(1)
    session_id = world.consume(2, 0, leader_epoch=0)
    world.settle()
    world[2].manager.set_broker_epoch(999, world.now_ms)
    world[2].run()
    later(world, 5)
    assert last_run(world, 2, session_id).error.code == NOT_HERE


def test_offsets_are_told_by_the_leader_only() -> None:
    world = produced(1)
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    assert world[2].manager.list_offsets(entry, world.now_ms).error.code == NOT_HERE
