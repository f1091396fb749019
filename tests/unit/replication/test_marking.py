"""Markers in a partition: once, all of a call in one batch, and who is marked writes no more."""

from __future__ import annotations

import pytest

from minilog.errors import (
    InvalidArgument,
    InvalidTxnState,
    NoSpace,
    NotLeaderOrFollower,
    ProducerFenced,
)
from minilog_broker.replication.effects import EndMarker
from tests.unit.replication.broker import KEY, batch
from tests.unit.replication.transacting import (
    abort,
    appends,
    begin,
    commit,
    cut_off,
    error_of,
    send,
    stable,
)
from tests.unit.replication.world import World


def test_all_markers_of_a_call_are_one_control_batch() -> None:
    world = World()
    begin(world, 7)
    begin(world, 8)
    before = appends(world)
    ticket = world.write_markers(1, commit(7), abort(8), abort(9))
    assert ticket not in world[1].marked
    world.settle()
    assert world[1].marked[ticket] is None
    assert appends(world) == before + 1
    assert world[1].headers()[-1].is_control


def test_markers_are_answered_when_they_are_below_the_high_watermark() -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    first = world.write_markers(1, commit(7))
    world.settle()
    again = world.write_markers(1, commit(7))
    world.settle()
    assert not world[1].marked, "the second writes nothing, and waits for the first one's"
    world.cut.clear()
    world.advance(500)
    assert world[1].marked == {first: None, again: None}
    assert world[1].ends()[2] == 2


def test_a_repeated_marker_writes_nothing_and_is_answered_at_once() -> None:
    world = World()
    begin(world, 7)
    world.write_markers(1, commit(7))
    world.settle()
    again = world.write_markers(1, commit(7))
    assert world[1].marked[again] is None
    assert world[1].ends()[2] == 2


def test_a_repeated_marker_on_its_way_writes_nothing() -> None:
    world = World()
    begin(world, 7)
    tickets = [world.write_markers(1, abort(7)), world.write_markers(1, abort(7), abort(8))]
    world.settle()
    assert [world[1].marked[ticket] for ticket in tickets] == [None, None]
    assert world[1].ends()[2] == 3, "the second batch is that of 8"


def test_a_marker_survives_failover_and_is_not_written_again() -> None:
    world = World()
    begin(world, 7)
    world.write_markers(1, commit(7))
    world.settle()
    world[1].crash()
    world.controller.fence(1)
    world.settle()
    end = world[2].ends()[2]
    again = world.write_markers(2, commit(7))
    world.settle()
    assert world[2].marked[again] is None
    assert world[2].ends()[2] == end
    assert error_of(world, send(world, 7, 1, to=2), at=2) is ProducerFenced


def test_a_commit_that_does_not_match_what_is_there_is_refused_whole() -> None:
    world = World()
    begin(world, 7)
    begin(world, 8)
    for markers in ([commit(7, 1)], [commit(8), commit(7, -1)], [abort(8), commit(9)]):
        assert isinstance(world[1].marked[world.write_markers(1, *markers)], InvalidTxnState)
    world.settle()
    assert world[1].ends()[2] == 2, "nothing was marked"
    nothing_written = world.write_markers(1, commit(9, -1))
    world.settle()
    assert world[1].marked[nothing_written] is None


def test_a_commit_is_judged_by_log_and_queue() -> None:
    world = World()
    begin(world, 7)
    send(world, 7, 1, rows=3)
    ticket = world.write_markers(1, commit(7, 3))
    world.settle()
    assert world[1].marked[ticket] is None


def test_who_was_aborted_is_not_committed_nor_the_other_way_round() -> None:
    world = World()
    begin(world, 7)
    world.write_markers(1, abort(7))
    assert isinstance(world[1].marked[world.write_markers(1, commit(7))], InvalidTxnState), "on its way"
    world.settle()
    assert isinstance(world[1].marked[world.write_markers(1, commit(7))], InvalidTxnState), "in the log"


def test_a_marker_cancels_who_waits_for_the_coordinator() -> None:
    world = World()
    ticket = send(world, 7)
    world.write_markers(1, abort(7))
    assert error_of(world, ticket) is ProducerFenced
    world.register(1)
    world.settle()
    assert world[1].ends()[2] == 1, "only the marker: a late answer of the coordinator writes nothing"


def test_a_producer_that_ended_or_ends_is_fenced() -> None:
    world = World()
    begin(world, 7)
    world.write_markers(1, commit(7))
    assert error_of(world, send(world, 7, 1)) is ProducerFenced, "its marker is on its way"
    world.settle()
    assert error_of(world, send(world, 7, 1)) is ProducerFenced
    assert error_of(world, world.produce(1, batch(producer=(7, 0, 1)))) is ProducerFenced
    assert not world[1].registrations


def test_losing_leadership_answers_markers_that_this_broker_leads_no_more() -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    ticket = world.write_markers(1, abort(7))
    world.controller.move(KEY, 2)
    world.settle()
    assert isinstance(world[1].marked[ticket], NotLeaderOrFollower)
    assert isinstance(world[1].marked[world.write_markers(1, abort(7))], NotLeaderOrFollower)


def test_markers_that_are_not_committed_in_time_are_to_be_asked_for_again() -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    ticket = world.write_markers(1, abort(7))
    world.advance(world.settings.markers_timeout_ms - 1)
    assert ticket not in world[1].marked
    world.advance(2)
    error = world[1].marked[ticket]
    assert error is not None
    assert not isinstance(error, InvalidTxnState)


def test_a_full_disk_writes_no_marker_and_the_producer_has_not_ended() -> None:
    world = World()
    begin(world, 7)
    world[1].files.full = True
    ticket = world.write_markers(1, abort(7))
    world.settle()
    assert isinstance(world[1].marked[ticket], NoSpace)
    world[1].files.full = False
    world.advance(1_100)
    next_batch = send(world, 7, 1)
    world.settle()
    assert error_of(world, next_batch) is None
    assert stable(world) == 0


@pytest.mark.parametrize("markers", [[], [abort(7), abort(7)]])
def test_a_call_without_markers_or_with_two_of_one_producer_is_refused(markers: list[EndMarker]) -> None:
    world = World()
    assert isinstance(world[1].marked[world.write_markers(1, *markers)], InvalidArgument)
