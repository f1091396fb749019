"""The last stable offset, and who reads what below it; through failover, restart and truncation."""

from __future__ import annotations

import pytest

from minilog.errors import (
    ProducerFenced,
)
from minilog.v1 import metadata_pb2
from tests.unit.replication.broker import KEY
from tests.unit.replication.transacting import (
    UNCOMMITTED,
    abort,
    begin,
    commit,
    cut_off,
    error_of,
    offsets,
    send,
    stable,
)
from tests.unit.replication.world import World


def test_the_last_stable_offset_waits_for_the_marker_to_be_committed_on_every_replica() -> None:
    world = World()
    world.produce(1)
    begin(world, 7)
    world.produce(1)
    world.settle()
    assert [stable(world, broker_id) for broker_id in (1, 2, 3)] == [1, 1, 1]
    cut_off(world, 2, 3)
    world.write_markers(1, commit(7))
    world.settle()
    assert stable(world) == 1, "an uncommitted marker moves nothing"
    world.cut.clear()
    world.advance(500)
    assert [stable(world, broker_id) for broker_id in (1, 2, 3)] == [4, 4, 4]


def test_list_offsets_tells_the_last_stable_offset() -> None:
    world = World()
    world.produce(1)
    begin(world, 7)
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, timestamp_us=0)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    told = world[1].manager.list_offsets(entry, world.now_ms)
    assert (told.last_stable_offset, told.high_watermark, told.offset) == (1, 2, 0)


def test_a_restart_knows_what_was_open_and_what_had_ended() -> None:
    world = World(brokers=1)
    begin(world, 7)
    begin(world, 8)
    world.write_markers(1, abort(8))
    world.settle()
    world[1].manager.stop_leading(world.now_ms)
    world[1].run()
    world[1].work()
    world[1].crash()
    world[1].restart()
    world.settle()
    assert stable(world) == 0
    leader = world[1].leader()
    assert leader is not None
    assert leader.aborted_within(0, 10) == [8]
    assert error_of(world, send(world, 8, 1)) is ProducerFenced


def test_transactions_are_truncated_with_the_log() -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    world.write_markers(1, abort(7))
    world.settle()
    world.controller.move(KEY, 2)
    world.settle()
    world.cut.clear()
    world.produce(2)
    world.advance(500)
    assert [stable(world, broker_id) for broker_id in (1, 2, 3)] == [0, 0, 0], "the marker is gone, 7 is open again"
    ticket = world.write_markers(2, commit(7))
    world.settle()
    assert world[2].marked[ticket] is None
    assert [stable(world, broker_id) for broker_id in (1, 2, 3)] == [3, 3, 3]


# -- who reads what


@pytest.mark.parametrize("broker_id", [1, 2])
def test_who_reads_what_is_committed_is_sent_nothing_above_the_last_stable_offset(broker_id: int) -> None:
    world = World()
    world.produce(1)
    begin(world, 7)
    world.advance(10)
    committed, all_ = world.consume(broker_id, 0), world.consume(broker_id, 0, isolation=UNCOMMITTED)
    world.settle()
    assert offsets(world, broker_id, committed) == [0]
    assert offsets(world, broker_id, all_) == [0, 1]
    world.write_markers(1, commit(7))
    world.settle()
    world.advance(10)
    assert offsets(world, broker_id, committed) == [0, 1, 2], "woken, with the transaction and its marker"
    assert [run.last_stable_offset for run in world.runs(broker_id, committed)][-1] == 3


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_run_tells_whose_batches_in_it_were_aborted(broker_id: int) -> None:
    world = World()
    begin(world, 7)
    begin(world, 8)
    world.write_markers(1, commit(7), abort(8))
    world.settle()
    begin(world, 9)
    world.write_markers(1, abort(9))
    world.settle()
    world.advance(10)
    whole = world.consume(broker_id, 0)
    later = world.consume(broker_id, 3)
    all_ = world.consume(broker_id, 0, isolation=UNCOMMITTED)
    world.settle()
    told = [
        [list(run.aborted_producer_ids) for run, batches in world.pushed(broker_id, s) if batches]
        for s in (whole, later)
    ]
    assert told == [[[8, 9]], [[9]]]
    assert [list(run.aborted_producer_ids) for run, batches in world.pushed(broker_id, all_) if batches] == [[]]


def test_without_transactions_both_isolation_levels_are_sent_the_same() -> None:
    world = World()
    sessions = [world.consume(1, 0), world.consume(1, 0, isolation=UNCOMMITTED)]
    for _ in range(3):
        world.produce(1)
    world.settle()
    assert [offsets(world, 1, session_id) for session_id in sessions] == [[0, 1, 2], [0, 1, 2]]
