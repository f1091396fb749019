"""Settlement within transactions (docs/spec/queues.md § Settlement within transactions)."""

from __future__ import annotations

from minilog.errors import (
    InvalidArgument,
    InvalidRecordState,
    InvalidTxnState,
    NotCoordinator,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)
from minilog.v1 import queue_pb2
from tests.unit.coordinators.cluster import error_of
from tests.unit.coordinators.queueing import LOCK_MS, RELEASE, Queueing, delivery_counts, offsets


def leased_world(count: int = 3) -> tuple[Queueing, queue_pb2.LeaseResponse]:
    world = Queueing()
    world.has(count)
    return world, world.lease(count)


def test_what_a_committed_transaction_settles_is_settled() -> None:
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 1)]) is None
    assert world.state().settled_to == 0
    assert world.mark(committed=True) is None
    assert world.state().settled_to == 2


def test_what_an_aborted_transaction_settles_is_leased_as_before() -> None:
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 2)]) is None
    assert world.mark(committed=False) is None
    assert world.state().settled_to == 0
    assert world.settle(leased, 0, 2) is None


def test_settling_records_outlive_their_lock_and_an_abort_begins_the_lock_anew() -> None:
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 1)]) is None
    world.pass_ms(2 * LOCK_MS)
    assert offsets(world.lease(10)) == [2]  # its lock ended
    assert world.mark(committed=False) is None
    world.pass_ms(LOCK_MS - 1)
    ticket = world.ask_to_lease(10)
    assert ticket not in world.answers
    world.pass_ms(1)
    again = world.lease_answer(ticket)
    assert (offsets(again), delivery_counts(again)) == ([0, 1, 2], [2, 3])


def test_a_lease_that_settles_all_it_has_does_not_end() -> None:
    """A driver that stood still between its settlement and its commit must not take its batch for lost."""
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 2)]) is None
    world.pass_ms(2 * LOCK_MS)
    assert list(world.renew(leased.lease_id).ended_lease_ids) == []
    world.fail_over()
    assert list(world.renew(leased.lease_id).ended_lease_ids) == []
    assert world.mark(committed=True) is None
    world.pass_ms(LOCK_MS)
    assert list(world.renew(leased.lease_id).ended_lease_ids) == [leased.lease_id]
    assert world.state().settled_to == 3


def test_a_lease_that_has_lost_records_has_ended_although_it_settles_others() -> None:
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 1)]) is None
    world.pass_ms(LOCK_MS)
    assert list(world.renew(leased.lease_id).ended_lease_ids) == [leased.lease_id]


def test_an_abort_lengthens_a_lock_that_has_little_left() -> None:
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 2)]) is None
    world.pass_ms(LOCK_MS - 1)
    assert world.mark(committed=False) is None
    world.pass_ms(LOCK_MS - 1)
    assert world.settle(leased, 0, 2) is None


def test_settling_records_are_not_settled_another_way() -> None:
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 1)]) is None
    assert isinstance(world.settle(leased, 0, 1), InvalidRecordState)
    assert isinstance(world.settle_in_transaction([world.settlement(leased, 1, 2)], producer_id=8), InvalidRecordState)
    assert world.settle(leased, 2, 2) is None


def test_a_settlement_in_a_transaction_is_done_as_a_whole() -> None:
    world, leased = leased_world()
    settlements = [world.settlement(leased, 0, 0), world.settlement(leased, 2, 3)]
    assert isinstance(world.settle_in_transaction(settlements), InvalidRecordState)
    assert world.settle(leased, 0, 2) is None


def test_a_transaction_only_accepts() -> None:
    world, leased = leased_world()
    assert isinstance(world.settle_in_transaction([world.settlement(leased, 0, 0, RELEASE)]), InvalidArgument)


def test_a_repeated_request_changes_nothing_and_a_gap_is_refused() -> None:
    world, leased = leased_world()
    first, second = [world.settlement(leased, 0, 0)], [world.settlement(leased, 1, 1)]
    assert world.settle_in_transaction(first) is None
    assert world.settle_in_transaction(first) is None
    assert isinstance(world.settle_in_transaction(second, sequence=2), OutOfOrderSequenceNumber)
    assert world.settle_in_transaction(second, sequence=1) is None
    assert isinstance(world.mark(committed=True, last_sequence=0), InvalidTxnState)
    assert world.mark(committed=True, last_sequence=1) is None
    assert world.state().settled_to == 2


def test_a_producer_that_has_ended_settles_nothing() -> None:
    world, leased = leased_world()
    world.ended[7] = ProducerFenced("it has ended")
    assert isinstance(world.settle_in_transaction([world.settlement(leased, 0, 0)]), ProducerFenced)
    assert world.settle(leased, 0, 0) is None


def test_a_marker_that_comes_during_a_registration_ends_it() -> None:
    world, leased = leased_world()
    ticket = world.ask_to_settle_in_transaction([world.settlement(leased, 0, 0)])
    assert world.mark(committed=False) is None
    world.commit()
    assert isinstance(error_of(world.answer(ticket, queue_pb2.SettleResponse)), ProducerFenced)


def test_a_new_coordinator_knows_what_is_settling() -> None:
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 1)]) is None
    world.fail_over()
    world.pass_ms(LOCK_MS)
    assert world.mark(committed=True) is None
    assert world.state().settled_to == 2


def test_a_new_coordinator_that_hears_of_an_abort_gives_the_lease_a_whole_lock() -> None:
    world, leased = leased_world()
    assert world.settle_in_transaction([world.settlement(leased, 0, 2)]) is None
    world.fail_over()
    world.pass_ms(10 * LOCK_MS)
    assert world.mark(committed=False) is None
    world.pass_ms(LOCK_MS - 1)
    assert world.settle(leased, 0, 2) is None


def test_a_request_that_waits_for_its_registration_is_refused_when_the_term_ends() -> None:
    world, leased = leased_world()
    ticket = world.ask_to_settle_in_transaction([world.settlement(leased, 0, 0)])
    world.coordinator.deposed()
    world.collect()
    assert isinstance(error_of(world.answer(ticket, queue_pb2.SettleResponse)), NotCoordinator)


def test_a_worker_that_lost_its_lease_settles_nothing_although_retention_took_it() -> None:
    """Another worker may have settled it, with other output."""
    world = Queueing()
    world.has(4)
    late = world.lease(4)
    world.pass_ms(LOCK_MS)
    assert world.settle_in_transaction([world.settlement(world.lease(4), 0, 3)]) is None
    world.mark(committed=True)
    world.has(5, start=4)
    world.ask_to_lease(1)
    settlement = world.settlement(late, 0, 3)
    assert isinstance(world.settle_in_transaction([settlement], producer_id=8), InvalidRecordState)


def test_what_an_aborted_transaction_gives_back_after_retention_took_it_may_be_settled_again() -> None:
    world = Queueing()
    world.has(4)
    leased = world.lease(4)
    assert world.settle_in_transaction([world.settlement(leased, 0, 3)]) is None
    world.has(5, start=4)
    world.ask_to_lease(1)
    world.mark(committed=False)
    assert world.settle_in_transaction([world.settlement(leased, 0, 3)]) is None
