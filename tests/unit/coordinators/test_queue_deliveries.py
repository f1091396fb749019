"""What a queue counts as a delivery, and who dies with a message that kills its worker."""

from __future__ import annotations

import itertools

import pytest

from minilog.v1 import queue_pb2
from minilog_broker.coordinators.coordinator_effects import RecordsDied
from minilog_broker.coordinators.queues.shrinking import ALL, most_together
from tests.unit.coordinators.queueing import LOCK_MS, P0, REJECT, RELEASE, Queueing, delivery_counts, offsets

RETURN = queue_pb2.VERDICT_RETURN
POISON = 3


def with_records(count: int) -> Queueing:
    world = Queueing()
    world.has(count)
    return world


def died(world: Queueing) -> list[RecordsDied]:
    return [effect for effect in world.take(RecordsDied) if isinstance(effect, RecordsDied)]


def lease_now(world: Queueing, worker: str = "w1") -> queue_pb2.LeaseResponse:
    """The answer to a call that does not wait."""
    ticket = world.ask_to_lease(500, worker=worker, wait_ms=0)
    world.pass_ms(0)
    return world.lease_answer(ticket)


def run_worker(world: Queueing, name: str) -> None:
    """A process that takes message after message, with one lease ahead, until one kills it or there are no more."""
    current = lease_now(world, name)
    while current.ranges:
        ahead = lease_now(world, name)
        for offset in offsets(current):
            if offset == POISON:
                return
            assert world.settle(current, offset, offset) is None
        current = ahead if ahead.ranges else lease_now(world, name)


@pytest.mark.parametrize("count", [20, 300])
def test_of_many_messages_with_one_that_kills_its_worker_one_dies(count: int) -> None:
    world = with_records(count)
    for life in itertools.count():
        run_worker(world, f"w{life}")
        if not world.state().ranges and world.state().next_offset == count:
            break
        world.pass_ms(LOCK_MS + 1)
    assert [(each.first, each.last, each.delivery_count) for each in died(world)] == [(POISON, POISON, 5)]
    assert world.describe().partitions[0].dead_count == 1
    assert life == 6  # in the first the leader has not reported yet


def test_what_was_delivered_before_is_leased_in_smaller_ranges_and_at_last_alone() -> None:
    world = with_records(300)
    sizes = []
    for number in range(5):
        sizes.append(len(offsets(world.lease(500, worker=f"w{number}"))))
        world.pass_ms(LOCK_MS + 1)
    assert sizes == [300, 105, 22, 4, 1]


@pytest.mark.parametrize(
    ("limit", "sizes"), [(1, [ALL, ALL]), (2, [ALL, 1]), (3, [ALL, 22, 1]), (1000, [ALL, 250, 125])]
)
def test_the_last_delivery_is_alone_under_each_limit(limit: int, sizes: list[int]) -> None:
    assert [most_together(count, limit) for count in range(len(sizes))] == sizes


def one_at_its_last_delivery(world: Queueing) -> None:
    """Offset 0 was delivered once, and the limit is 2."""
    assert world.alter(limit="2") is None
    assert world.settle(world.lease(1, worker="first"), 0, 0, RELEASE) is None


def test_a_worker_gets_nothing_beside_a_record_that_it_has_alone() -> None:
    world = with_records(10)
    one_at_its_last_delivery(world)
    alone = world.lease(10)
    assert (offsets(alone), delivery_counts(alone)) == ([0], [2])
    waits = world.ask_to_lease(10)
    assert offsets(world.lease(10, worker="w2")) == list(range(1, 10))  # another worker does not wait
    assert waits not in world.answers
    world.has(12)
    assert waits not in world.answers
    assert world.settle(alone, 0, 0) is None
    assert offsets(world.lease_answer(waits)) == [10, 11]


def test_a_record_alone_waits_for_a_worker_that_holds_nothing_but_for_a_lock_at_most() -> None:
    world = with_records(10)
    held = world.lease(2)
    one = world.lease(1, worker="first")
    assert world.alter(limit="2") is None
    assert world.settle(one, 2, 2, RELEASE) is None
    ticket = world.ask_to_lease(10, wait_ms=120_000)
    assert ticket not in world.answers
    assert world.settle(held, 0, 1) is None
    assert offsets(world.lease_answer(ticket)) == [2]


def test_a_worker_that_never_ends_its_messages_gets_the_record_all_the_same() -> None:
    world = with_records(10)
    held = world.lease(1)
    one = world.lease(1, worker="first")
    assert world.alter(limit="2") is None
    assert world.settle(one, 1, 1, RELEASE) is None
    assert offsets(lease_now(world)) == []
    world.pass_ms(LOCK_MS / 2)
    world.renew(held.lease_id)
    world.pass_ms(LOCK_MS / 2)
    assert offsets(world.lease(10)) == [1]


def test_what_no_program_was_handed_goes_back_uncounted() -> None:
    world = with_records(10)
    for _ in range(9):
        leased = world.lease(10)
        assert delivery_counts(leased) == [1]
        assert world.settle(leased, 0, 9, RETURN) is None
    assert offsets(world.lease(500)) == list(range(10))
    assert died(world) == []


def test_a_return_has_its_delay() -> None:
    world = with_records(1)
    assert world.settle(world.lease(), 0, 0, RETURN, delay_ms=1_000) is None
    assert offsets(lease_now(world)) == []
    world.pass_ms(1_000)
    assert delivery_counts(world.lease()) == [1]


def test_a_lease_that_its_worker_has_never_named_is_not_counted() -> None:
    world = with_records(4)
    world.renews = False
    for _ in range(9):
        leased = world.lease(4)
        assert (offsets(leased), delivery_counts(leased)) == ([0, 1, 2, 3], [1])
        world.pass_ms(LOCK_MS + 1)
    assert died(world) == []


def test_records_that_were_leased_before_are_handed_out_when_their_lease_is_renewed() -> None:
    world = with_records(4)
    world.renews = False
    first = world.lease(4)
    assert not first.must_be_renewed_first
    world.pass_ms(LOCK_MS + 1)
    again = world.lease(4)
    assert again.must_be_renewed_first
    assert not world.renew(again.lease_id).ended_lease_ids
    world.pass_ms(LOCK_MS + 1)
    assert delivery_counts(world.lease(4)) == [2]


def test_a_lease_that_is_settled_in_part_is_counted() -> None:
    world = with_records(4)
    world.renews = False
    assert world.settle(world.lease(4), 0, 0) is None
    world.pass_ms(LOCK_MS + 1)
    assert delivery_counts(world.lease(4)) == [2]


def test_a_lease_that_ends_with_its_coordinator_is_not_counted() -> None:
    world = with_records(4)
    world.lease(4)
    world.fail_over()
    world.pass_ms(LOCK_MS + 1)
    again = world.lease(4)
    assert (offsets(again), delivery_counts(again)) == ([0, 1, 2, 3], [1])


def test_a_lease_that_is_renewed_since_is_counted() -> None:
    world = with_records(4)
    leased = world.lease(4)
    world.fail_over()
    assert not world.renew(leased.lease_id).ended_lease_ids
    world.pass_ms(LOCK_MS + 1)
    assert delivery_counts(world.lease(4)) == [2]


def test_deaths_are_told_and_their_number_outlives_the_coordinator() -> None:
    world = with_records(4)
    leased = world.lease(4)
    assert not world.settle_all([world.settlement(leased, 1, 2, REJECT)]).refused
    (death,) = died(world)
    assert (death.queue, death.partition, death.first, death.last, death.delivery_count, death.reason) == (
        "jobs",
        P0,
        1,
        2,
        1,
        "rejected without a reason",
    )
    world.fail_over()
    assert world.describe().partitions[0].dead_count == 2
