"""What one call of a queue costs the event loop. Steps of the interpreter are counted: three million take some 50 ms,
and the clock of a busy machine says little."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from minilog.errors import InvalidArgument, ResourceExhausted
from minilog.limits import MAX_LEASE_PARTITIONS, MAX_SETTLED_PARTITIONS, MAX_SETTLEMENTS
from minilog.partition_key import PartitionKey
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.partition_queue import MAX_RANGES
from tests.unit.coordinators.cluster import ORDERS, error_of
from tests.unit.coordinators.queueing import ACCEPT, LOCK_MS, RELEASE, Queueing, offsets


@pytest.fixture(autouse=True)
def unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a judge are not the coordinator's."""
    monkeypatch.setattr(Queueing, "is_judged", False)


MOST_STEPS = 3_000_000
FEW, MANY = 250, 8_000  # ranges of a partition


def steps(work: Callable[[], object]) -> int:
    """The instructions that the interpreter carries out for this."""
    count = 0

    def each(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return each

    before = sys.gettrace()
    sys.settrace(each)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def with_ranges(count: int) -> tuple[Queueing, queue_pb2.LeaseResponse]:
    """A queue whose only lease holds every second offset: `count` ranges."""
    world = Queueing()
    world.alter(locks="100000000")
    world.has(1_000_000)
    leased = world.lease(2 * count)
    for begin in range(0, 2 * count, 2 * MAX_SETTLEMENTS):
        end = min(2 * count, begin + 2 * MAX_SETTLEMENTS)
        assert not world.settle_all([world.settlement(leased, at, at) for at in range(begin, end, 2)]).refused
    assert len(world.state().ranges) == count
    world.renews = False
    return world, leased


def settle_one(world: Queueing, leased: queue_pb2.LeaseResponse) -> None:
    assert not world.settle_all([world.settlement(leased, 201, 201)]).refused


def settle_in_a_transaction(world: Queueing, leased: queue_pb2.LeaseResponse) -> None:
    assert world.settle_in_transaction([world.settlement(leased, 201, 201)]) is None


@pytest.mark.parametrize("call", [settle_one, settle_in_a_transaction])
def test_a_settlement_costs_the_same_whatever_the_number_of_ranges(
    call: Callable[[Queueing, queue_pb2.LeaseResponse], None],
) -> None:
    costs = []
    for count in (FEW, MANY):
        world, leased = with_ranges(count)
        costs.append(steps(lambda world=world, leased=leased: call(world, leased)))  # type: ignore[misc]
    few, many = costs
    assert many < 1.5 * few


@pytest.mark.parametrize("verdict", [ACCEPT, RELEASE])
def test_the_largest_settlement_takes_less_than_a_twentieth_of_a_second(verdict: int) -> None:
    world, leased = with_ranges(MANY)
    at = range(1, 2 * MANY, 2 * MANY // MAX_SETTLEMENTS)
    settlements = [world.settlement(leased, each, each, verdict) for each in at][:MAX_SETTLEMENTS]
    assert steps(lambda: world.settle_all(settlements)) < MOST_STEPS


def test_a_partition_has_a_bound_of_ranges_and_more_is_refused_until_some_are_settled() -> None:
    world, leased = with_ranges(MAX_RANGES - 2)
    more = [world.lease(10), world.lease(10)]
    assert len(world.state().ranges) == MAX_RANGES
    begin = offsets(more[0])[0]
    error = world.settle(more[0], begin + 2, begin + 4)
    assert isinstance(error, ResourceExhausted)
    assert f"may have {MAX_RANGES} ranges" in str(error)
    waits = world.ask_to_lease(10)
    world.commit()
    assert waits not in world.answers
    assert world.settle(more[0], begin, begin + 9) is None  # whole ranges
    assert world.settle(leased, 1, 1) is None
    assert len(offsets(world.lease_answer(waits))) == 10
    assert len(world.state().ranges) == MAX_RANGES - 1


def test_delivered_messages_are_leased_in_whole_ranges_at_the_bound() -> None:
    world, _ = with_ranges(MAX_RANGES - 1)
    more = world.lease(10)
    begin = offsets(more)[0]
    assert world.settle(more, begin, begin + 9, RELEASE) is None
    waits = world.ask_to_lease(5, worker="w2")
    world.commit()
    assert waits not in world.answers
    assert len(offsets(world.lease(10, worker="w3"))) == 10


# -- in turns


def turns(world: Queueing, ms: float = 0.0) -> list[int]:
    """The steps of each turn until the coordinator has nothing more to do at this time."""
    costs = []
    world.now_ms += ms
    while world.coordinator.next_tick_ms <= world.now_ms:
        costs.append(steps(lambda: world.coordinator.tick(world.now)))
        costs.append(steps(world.commit))
    return costs


@pytest.mark.dear("it counts each step of the interpreter")
def test_a_search_in_many_partitions_takes_turns_and_finds_the_one_record() -> None:
    world, partitions, each = Queueing(), 14, 2_000
    world.counts[ORDERS] = partitions
    world.alter(locks="100000000", lock="3600000")
    keys = [PartitionKey(ORDERS, number) for number in range(partitions)]
    for key in keys:
        world.has(2 * each, key=key)
    leased = [world.lease(2 * each) for _ in keys]
    for lease in leased:
        key = PartitionKey.of(lease.ranges[0].partition_id)
        for begin in range(0, 2 * each, 1_000):
            assert not world.settle_all(
                [world.settlement(lease, at, at, key=key) for at in range(begin, begin + 1_000, 2)]
            ).refused
        for begin in range(1, 2 * each, 1_000):
            later = [
                world.settlement(lease, at, at, RELEASE, key=key, delay_ms=3_000_000 + at)
                for at in range(begin, begin + 1_000, 2)
                if at > 1
            ]
            assert not world.settle_all(later).refused
    assert sum(len(world.state(key).ranges) for key in keys) == partitions * each
    world.renews = False
    calls = []
    costs = [steps(lambda: calls.append(world.ask_to_lease(worker="w2")))]
    costs += turns(world)
    assert len(costs) > 3
    assert max(costs) < MOST_STEPS
    assert calls[0] not in world.answers
    for lease in (leased[3], leased[12]):
        key = PartitionKey.of(lease.ranges[0].partition_id)
        ticket = calls[0] if lease is leased[3] else world.ask_to_lease(worker="w3")
        turns(world)
        world.settle_all([world.settlement(lease, 1, 1, RELEASE, key=key)])
        costs = turns(world)
        assert max(costs, default=0) < MOST_STEPS
        assert offsets(world.lease_answer(ticket), key) == [1]


def test_calls_that_wait_are_served_in_turns() -> None:
    world = Queueing()
    world.alter(locks="100000000")
    tickets = [world.ask_to_lease(1, worker=f"w{number}") for number in range(500)]
    costs = [steps(lambda: world.has(2_000))]
    costs += turns(world)
    assert len(costs) > 5
    assert max(costs) < MOST_STEPS
    assert sorted(offset for ticket in tickets for offset in offsets(world.answers[ticket])) == list(range(500))  # type: ignore[arg-type]


def test_locks_that_end_at_once_end_in_turns() -> None:
    world = Queueing()
    world.alter(locks="100000000")
    world.has(1_000)
    for number in range(300):
        world.lease(1, worker=f"w{number}")
    costs = turns(world, ms=LOCK_MS + 1)
    assert len(costs) > 5
    assert max(costs) < MOST_STEPS
    assert [(part.first, part.last) for part in world.state().ranges] == [(0, 299)]


def test_a_lease_has_records_of_so_many_partitions_and_names_not_too_many() -> None:
    world = Queueing()
    world.counts[ORDERS] = MAX_SETTLED_PARTITIONS + 5
    for number in range(MAX_SETTLED_PARTITIONS + 5):
        world.has(1, key=PartitionKey(ORDERS, number))
    assert len(world.lease(1_000).ranges) == MAX_SETTLED_PARTITIONS
    world.counts[ORDERS] = MAX_LEASE_PARTITIONS + 1
    assert isinstance(error_of(world.lease(1)), InvalidArgument)
