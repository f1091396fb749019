"""Markers: to exactly the registered partitions, all of a transaction in one, until they are written."""

from __future__ import annotations

import math
from dataclasses import replace

from minilog.errors import InvalidTxnState, NotEnoughReplicas, NotLeaderOrFollower
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.coordinator_effects import MarkersRefused, MarkerToWrite
from tests.rules import proves
from tests.unit.coordinators.cluster import PAYMENTS
from tests.unit.coordinators.transacting import (
    COMMITTED,
    IDLE,
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    T,
    TransactionCalls,
)

End = coordinator_pb2.EndTransactionResponse
NO_LEADER = NotLeaderOrFollower("an election")


def test_all_markers_of_a_transaction_for_a_partition_are_one() -> None:
    cluster = TransactionCalls()
    won, lost = cluster.writer(ORDERS_0), cluster.writer(ORDERS_0, ORDERS_1)
    cluster.ask_to_end([won])
    cluster.commit()
    asked = {each.target: each for each in cluster.asked_markers()}
    assert asked.keys() == {ORDERS_0, ORDERS_1}
    assert asked[ORDERS_0].markers == (MarkerToWrite(won, True, -1), MarkerToWrite(lost, False, -1))
    assert {each.transactional_id for each in asked.values()} == {T}


def test_no_marker_is_asked_for_before_the_decision_is_committed() -> None:
    """Wrong rule 12: a decision that is lost must have marked nothing."""
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    cluster.ask_to_end([producer_id])
    cluster.coordinator.tick(cluster.now)
    assert cluster.asked_markers() == []
    cluster.fail_over(kept_batches=0)
    assert cluster.asked_markers() == []
    cluster.abort()
    cluster.write_markers()
    assert cluster.marks() == {(ORDERS_0, producer_id): False}


def test_a_registration_in_flight_gets_its_marker() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.enlisted()
    cluster.ask_to_register(producer_id, ORDERS_0)
    cluster.ask_to_end([producer_id])
    cluster.commit()
    cluster.write_markers()
    assert cluster.marks() == {(ORDERS_0, producer_id): True}


def test_a_marker_that_was_not_written_is_asked_for_again_until_it_is() -> None:
    cluster = TransactionCalls()
    ticket = cluster.ask_to_end([cluster.writer(ORDERS_0)])
    cluster.commit()
    for _ in range(20):
        (effect,) = cluster.asked_markers()
        cluster.coordinator.markers_failed(effect, NO_LEADER, cluster.now)
        assert cluster.asked_markers() == []
        cluster.wait(100)
    assert cluster.waits(ticket)
    cluster.write_markers()
    assert cluster.answer(ticket, End).outcome == COMMITTED


def test_one_is_under_way_at_a_time_and_what_comes_meanwhile_follows() -> None:
    cluster = TransactionCalls()
    first = cluster.writer(ORDERS_0)
    second = cluster.writer(ORDERS_0)
    cluster.abort(producers=[first])
    (under_way,) = cluster.asked_markers()
    cluster.abort(producers=[second])
    assert cluster.asked_markers() == []
    cluster.coordinator.markers_failed(under_way, NO_LEADER, cluster.now)
    cluster.wait(100)
    (both,) = cluster.asked_markers()
    assert [each.producer_id for each in both.markers] == [first, second]
    cluster.write(both)
    cluster.commit()
    assert cluster.describe().listing.state == IDLE


def test_a_marker_that_is_told_written_twice_counts_once() -> None:
    """Wrong rule 18."""
    cluster = TransactionCalls()
    ticket = cluster.ask_to_end([cluster.writer(ORDERS_0, ORDERS_1)])
    cluster.commit()
    one, other = cluster.asked_markers()
    cluster.write(one)
    cluster.write(one)
    assert cluster.waits(ticket)
    cluster.write(other)
    assert cluster.answer(ticket, End).outcome == COMMITTED
    cluster.commit()
    cluster.write(one)
    cluster.commit()
    assert cluster.describe().listing.state == IDLE


def test_a_deleted_topic_counts_as_marked() -> None:
    cluster = TransactionCalls()
    ticket = cluster.ask_to_end([cluster.writer(ORDERS_0, PAYMENTS_0)])
    cluster.commit()
    asked = {each.target: each for each in cluster.asked_markers()}
    cluster.write(asked[ORDERS_0])
    cluster.coordinator.markers_failed(asked[PAYMENTS_0], NO_LEADER, cluster.now)
    assert cluster.waits(ticket)
    cluster.topics.discard(PAYMENTS)
    cluster.wait(100)
    assert cluster.asked_markers() == []
    assert cluster.answer(ticket, End).outcome == COMMITTED
    assert cluster.describe().listing.state == IDLE


def test_a_topic_deleted_before_the_decision_gets_no_marker() -> None:
    cluster = TransactionCalls()
    won = cluster.writer(ORDERS_0, PAYMENTS_0)
    cluster.topics.discard(PAYMENTS)
    assert cluster.end([won]).outcome == COMMITTED
    assert cluster.marks() == {(ORDERS_0, won): True}


def test_the_next_coordinator_finishes_a_durable_decision_with_the_same_markers() -> None:
    cluster = TransactionCalls()
    won, lost = cluster.writer(ORDERS_0, ORDERS_1), cluster.writer(ORDERS_0)
    cluster.ask_to_end([won])
    cluster.commit()
    before = {each.target: each for each in cluster.asked_markers()}
    cluster.fail_over()
    after = {each.target: each for each in cluster.take(type(before[ORDERS_0]))}
    for target, asked in before.items():
        assert after[target] == replace(asked, coordinator_epoch=asked.coordinator_epoch + 1)
    cluster.fail_over()
    cluster.write_markers()
    assert cluster.marks() == {(ORDERS_0, won): True, (ORDERS_1, won): True, (ORDERS_0, lost): False}
    assert cluster.describe().listing.state == IDLE


def test_what_was_written_for_a_former_term_counts_for_the_next() -> None:
    cluster = TransactionCalls()
    ticket = cluster.ask_to_end([cluster.writer(ORDERS_0)])
    cluster.commit()
    (former,) = cluster.asked_markers()
    cluster.lead()
    cluster.commit()
    cluster.answer(ticket, End)
    again = cluster.ask_to_end([100])
    (present,) = cluster.asked_markers()
    cluster.write(former)
    assert cluster.answer(again, End).outcome == COMMITTED
    cluster.coordinator.markers_failed(present, NO_LEADER, cluster.now)
    cluster.wait(1_000)
    assert cluster.asked_markers() == []
    assert cluster.describe().listing.state == IDLE


def test_a_failure_of_a_former_term_does_not_end_what_is_under_way() -> None:
    cluster = TransactionCalls()
    cluster.ask_to_end([cluster.writer(ORDERS_0)])
    cluster.commit()
    (former,) = cluster.asked_markers()
    cluster.lead()
    cluster.commit()
    (present,) = cluster.asked_markers()
    cluster.coordinator.markers_failed(former, NO_LEADER, cluster.now)
    cluster.wait(1_000)
    assert cluster.asked_markers() == []
    cluster.write(present)
    cluster.commit()
    assert cluster.describe().listing.state == IDLE


def test_a_commit_that_a_leader_does_not_have_is_told_loudly_and_never_answered_as_committed() -> None:
    cluster = TransactionCalls()
    ticket = cluster.ask_to_end([cluster.writer(ORDERS_0)])
    cluster.commit()
    (effect,) = cluster.asked_markers()
    error = InvalidTxnState("the last sequence here is 3")
    cluster.coordinator.markers_failed(effect, error, cluster.now)
    assert cluster.take(MarkersRefused) == [MarkersRefused(ORDERS_0, T, error)]
    cluster.wait(4_000)
    assert cluster.asked_markers() == []  # not ten times a second
    assert cluster.waits(ticket)
    cluster.wait(7_000)
    assert len(cluster.asked_markers()) == 1


def test_a_producer_that_could_not_be_removed_is_removed_later() -> None:
    cluster = TransactionCalls()
    ticket = cluster.ask_to_end([cluster.writer(ORDERS_0)])
    cluster.commit()
    cluster.refusal = NotEnoughReplicas("the ISR is too small")
    cluster.write_markers()
    assert cluster.answer(ticket, End).outcome == COMMITTED
    cluster.refusal = None
    cluster.wait(200)
    assert cluster.describe().listing.state == IDLE
    assert len(cluster.coordinator.committed_state()) == 1


@proves("CO.14")
def test_one_that_finds_itself_deposed_while_it_removes_a_producer_has_nothing_due_any_more() -> None:
    """Else its timer goes off a thousand times a second until it leads again."""
    cluster = TransactionCalls()
    cluster.ask_to_end([cluster.writer(ORDERS_0)])
    cluster.commit()
    cluster.refusal = NotLeaderOrFollower("another broker leads")
    for effect in cluster.asked_markers():
        cluster.write(effect)
    assert cluster.coordinator.state is CoordinatorState.IDLE
    assert cluster.coordinator.next_tick_ms == math.inf
