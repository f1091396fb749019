"""What one call of a queue costs the event loop. Steps of the interpreter are counted: three million take some 50 ms,
and the clock of a busy machine says little."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from minilog.errors import ResourceExhausted
from minilog.limits import MAX_SETTLEMENTS
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.partition_queue import MAX_RANGES
from tests.unit.coordinators.queueing import ACCEPT, RELEASE, Queueing, offsets

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


def test_what_was_delivered_before_is_leased_in_whole_ranges_at_the_bound() -> None:
    world, _ = with_ranges(MAX_RANGES - 1)
    more = world.lease(10)
    begin = offsets(more)[0]
    assert world.settle(more, begin, begin + 9, RELEASE) is None
    waits = world.ask_to_lease(5, worker="w2")
    world.commit()
    assert waits not in world.answers
    assert len(offsets(world.lease(10, worker="w3"))) == 10
