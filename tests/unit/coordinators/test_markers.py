"""Markers: to exactly the registered partitions, all of a transaction in one, until they are written."""

from __future__ import annotations

import math
from dataclasses import replace

from minilog.errors import InvalidTxnState, NotEnoughReplicas, NotLeaderOrFollower
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator import State
from minilog_broker.coordinators.effects import Marker, MarkersRefused
from tests.unit.coordinators.transacting import (
    COMMITTED,
    IDLE,
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    T,
    Transacting,
)
from tests.unit.coordinators.world import PAYMENTS

End = coordinator_pb2.EndTransactionResponse
NO_LEADER = NotLeaderOrFollower("an election")


def test_all_markers_of_a_transaction_for_a_partition_are_one() -> None:
    world = Transacting()
    won, lost = world.writer(ORDERS_0), world.writer(ORDERS_0, ORDERS_1)
    world.ask_to_end([won])
    world.commit()
    asked = {each.target: each for each in world.asked_markers()}
    assert asked.keys() == {ORDERS_0, ORDERS_1}
    assert asked[ORDERS_0].markers == (Marker(won, True, -1), Marker(lost, False, -1))
    assert {each.transactional_id for each in asked.values()} == {T}


def test_no_marker_is_asked_for_before_the_decision_is_committed() -> None:
    """Wrong rule 12: a decision that is lost must have marked nothing."""
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    world.ask_to_end([producer_id])
    world.coordinator.tick(world.now)
    assert world.asked_markers() == []
    world.fail_over(kept_batches=0)
    assert world.asked_markers() == []
    world.abort()
    world.write_markers()
    assert world.marks() == {(ORDERS_0, producer_id): False}


def test_a_registration_in_flight_gets_its_marker() -> None:
    world = Transacting()
    producer_id = world.enlisted()
    world.ask_to_register(producer_id, ORDERS_0)
    world.ask_to_end([producer_id])
    world.commit()
    world.write_markers()
    assert world.marks() == {(ORDERS_0, producer_id): True}


def test_a_marker_that_was_not_written_is_asked_for_again_until_it_is() -> None:
    world = Transacting()
    ticket = world.ask_to_end([world.writer(ORDERS_0)])
    world.commit()
    for _ in range(20):
        (effect,) = world.asked_markers()
        world.coordinator.markers_failed(effect, NO_LEADER, world.now)
        assert world.asked_markers() == []
        world.wait(100)
    assert world.waits(ticket)
    world.write_markers()
    assert world.answer(ticket, End).outcome == COMMITTED


def test_one_is_under_way_at_a_time_and_what_comes_meanwhile_follows() -> None:
    world = Transacting()
    first = world.writer(ORDERS_0)
    second = world.writer(ORDERS_0)
    world.abort(producers=[first])
    (under_way,) = world.asked_markers()
    world.abort(producers=[second])
    assert world.asked_markers() == []
    world.coordinator.markers_failed(under_way, NO_LEADER, world.now)
    world.wait(100)
    (both,) = world.asked_markers()
    assert [each.producer_id for each in both.markers] == [first, second]
    world.write(both)
    world.commit()
    assert world.describe().listing.state == IDLE


def test_a_marker_that_is_told_written_twice_counts_once() -> None:
    """Wrong rule 18."""
    world = Transacting()
    ticket = world.ask_to_end([world.writer(ORDERS_0, ORDERS_1)])
    world.commit()
    one, other = world.asked_markers()
    world.write(one)
    world.write(one)
    assert world.waits(ticket)
    world.write(other)
    assert world.answer(ticket, End).outcome == COMMITTED
    world.commit()
    world.write(one)
    world.commit()
    assert world.describe().listing.state == IDLE


def test_a_deleted_topic_counts_as_marked() -> None:
    world = Transacting()
    ticket = world.ask_to_end([world.writer(ORDERS_0, PAYMENTS_0)])
    world.commit()
    asked = {each.target: each for each in world.asked_markers()}
    world.write(asked[ORDERS_0])
    world.coordinator.markers_failed(asked[PAYMENTS_0], NO_LEADER, world.now)
    assert world.waits(ticket)
    world.topics.discard(PAYMENTS)
    world.wait(100)
    assert world.asked_markers() == []
    assert world.answer(ticket, End).outcome == COMMITTED
    assert world.describe().listing.state == IDLE


def test_a_topic_deleted_before_the_decision_gets_no_marker() -> None:
    world = Transacting()
    won = world.writer(ORDERS_0, PAYMENTS_0)
    world.topics.discard(PAYMENTS)
    assert world.end([won]).outcome == COMMITTED
    assert world.marks() == {(ORDERS_0, won): True}


def test_the_next_coordinator_finishes_a_durable_decision_with_the_same_markers() -> None:
    world = Transacting()
    won, lost = world.writer(ORDERS_0, ORDERS_1), world.writer(ORDERS_0)
    world.ask_to_end([won])
    world.commit()
    before = {each.target: each for each in world.asked_markers()}
    world.fail_over()
    after = {each.target: each for each in world.take(type(before[ORDERS_0]))}
    for target, asked in before.items():
        assert after[target] == replace(asked, coordinator_epoch=asked.coordinator_epoch + 1)
    world.fail_over()
    world.write_markers()
    assert world.marks() == {(ORDERS_0, won): True, (ORDERS_1, won): True, (ORDERS_0, lost): False}
    assert world.describe().listing.state == IDLE


def test_what_was_written_for_a_former_term_counts_for_the_next() -> None:
    world = Transacting()
    ticket = world.ask_to_end([world.writer(ORDERS_0)])
    world.commit()
    (former,) = world.asked_markers()
    world.lead()
    world.commit()
    world.answer(ticket, End)
    again = world.ask_to_end([100])
    (present,) = world.asked_markers()
    world.write(former)
    assert world.answer(again, End).outcome == COMMITTED
    world.coordinator.markers_failed(present, NO_LEADER, world.now)
    world.wait(1_000)
    assert world.asked_markers() == []
    assert world.describe().listing.state == IDLE


def test_a_failure_of_a_former_term_does_not_end_what_is_under_way() -> None:
    world = Transacting()
    world.ask_to_end([world.writer(ORDERS_0)])
    world.commit()
    (former,) = world.asked_markers()
    world.lead()
    world.commit()
    (present,) = world.asked_markers()
    world.coordinator.markers_failed(former, NO_LEADER, world.now)
    world.wait(1_000)
    assert world.asked_markers() == []
    world.write(present)
    world.commit()
    assert world.describe().listing.state == IDLE


def test_a_commit_that_a_leader_does_not_have_is_told_loudly_and_never_answered_as_committed() -> None:
    world = Transacting()
    ticket = world.ask_to_end([world.writer(ORDERS_0)])
    world.commit()
    (effect,) = world.asked_markers()
    error = InvalidTxnState("the last sequence here is 3")
    world.coordinator.markers_failed(effect, error, world.now)
    assert world.take(MarkersRefused) == [MarkersRefused(ORDERS_0, T, error)]
    world.wait(4_000)
    assert world.asked_markers() == []  # not ten times a second
    assert world.waits(ticket)
    world.wait(7_000)
    assert len(world.asked_markers()) == 1


def test_a_producer_that_could_not_be_removed_is_removed_later() -> None:
    world = Transacting()
    ticket = world.ask_to_end([world.writer(ORDERS_0)])
    world.commit()
    world.refusal = NotEnoughReplicas("the ISR is too small")
    world.write_markers()
    assert world.answer(ticket, End).outcome == COMMITTED
    world.refusal = None
    world.wait(200)
    assert world.describe().listing.state == IDLE
    assert len(world.coordinator.committed_state()) == 1


def test_one_that_finds_itself_deposed_while_it_removes_a_producer_has_nothing_due_any_more() -> None:
    """Else its timer goes off a thousand times a second until it leads again."""
    world = Transacting()
    world.ask_to_end([world.writer(ORDERS_0)])
    world.commit()
    world.refusal = NotLeaderOrFollower("another broker leads")
    for effect in world.asked_markers():
        world.write(effect)
    assert world.coordinator.state is State.IDLE
    assert world.coordinator.next_tick_ms == math.inf
