"""What a queue counts as a delivery, and who dies with a message that kills its worker."""

from __future__ import annotations

import itertools

import pytest

from minilog.limits import MAX_REASON_CHARACTERS
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.coordinator_effects import RecordsDied
from minilog_broker.coordinators.queues.shrinking import ALL, most_together
from tests.unit.coordinators.queueing import LOCK_MS, REJECT, Queueing, offsets

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


def test_delivered_messages_are_leased_in_smaller_ranges_and_at_last_alone() -> None:
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


def test_a_rejection_has_its_reason_of_bounded_length() -> None:
    world = with_records(1)
    assert world.alter(**{"errors.deadletterqueue.topic.name": "dead"}) is None
    rejected = world.settlement(world.lease(1), 0, 0, REJECT)
    rejected.reason = "x" * 1_000
    assert not world.settle_all([rejected]).refused
    assert [part.death_reason for part in world.state().ranges] == ["x" * MAX_REASON_CHARACTERS]
