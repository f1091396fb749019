"""The rules of a queue's partition against a model that keeps each offset by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import given

from minilog.errors import InvalidRecordState
from minilog.partition_key import PartitionKey
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues import partition_queue as rules
from minilog_broker.coordinators.queues.alone import Alone, Holder
from minilog_broker.coordinators.queues.holdings import Holdings
from minilog_broker.coordinators.queues.locks import LeaseName, Locks, Owner
from minilog_broker.coordinators.queues.partition_queue import Delivery, LeaseRequest, PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.ranges import Range, RangeState
from tests.rules import proves

pytestmark = proves("Q6")

LIMIT = 3
VERDICTS = (queue_pb2.VERDICT_ACCEPT, queue_pb2.VERDICT_RELEASE)
FIRST_LAST = st.tuples(st.integers(0, 30), st.integers(0, 8))
STEP = st.one_of(
    st.tuples(st.just("lease"), st.integers(1, 8), st.integers(0, 30)),
    st.tuples(st.just("settle"), FIRST_LAST, st.sampled_from(VERDICTS)),
    st.tuples(st.just("begin settling"), FIRST_LAST, st.integers(1, 2)),
    st.tuples(st.just("end settling"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("expire"), st.integers(1, 40), st.none()),
    st.tuples(st.just("trim"), st.integers(0, 30), st.none()),
    st.tuples(st.just("cut"), st.integers(0, 30), st.none()),
)


@dataclass(frozen=True)
class Single:
    """One unsettled offset."""

    state: RangeState
    deliveries: int
    lease_id: int = 0
    producer_id: int = -1


@dataclass
class Model:
    """Each unsettled offset that was leased."""

    next_offset: int = 0
    offsets: dict[int, Single] = field(default_factory=dict)

    def redeliver(self, offset: int) -> None:
        single = self.offsets.pop(offset)
        if single.deliveries < LIMIT:
            self.offsets[offset] = Single(RangeState.READY, single.deliveries)


def singles(queue: PartitionQueue) -> dict[int, Single]:
    return {
        offset: Single(part.state, part.delivery_count, part.lease_id, part.producer_id)
        for part in queue.ranges
        for offset in range(part.first, part.last + 1)
    }


def settlement(lease_id: int, first: int, last: int, verdict: int = queue_pb2.VERDICT_ACCEPT) -> queue_pb2.Settlement:
    return queue_pb2.Settlement(
        lease_id=lease_id,
        first_offset=first,
        last_offset=last,
        verdict=queue_pb2.Verdict.ValueType(verdict),
    )


def holder(model: Model, offset: int) -> int:
    """The lease of an offset; one that never was where nobody has it."""
    single = model.offsets.get(offset)
    return single.lease_id if single is not None and single.state is RangeState.LEASED else 999


def held(model: Model, first: int, last: int, lease_id: int) -> bool:
    parts = [model.offsets.get(offset) for offset in range(first, last + 1)]
    return all(part is not None and part.state is RangeState.LEASED and part.lease_id == lease_id for part in parts)


def lease(queue: PartitionQueue, model: Model, lease_id: int, most: int, end: int) -> PartitionQueue:
    leased = rules.lease(queue, LeaseRequest(lease_id, most, 12, end, 1), 0.0, 0.0)
    ready = [at for at, one in sorted(model.offsets.items()) if one.state is RangeState.READY and at < end][:most]
    fresh = range(
        model.next_offset,
        max(
            model.next_offset,
            min(end, model.next_offset + most - len(ready), model.next_offset + 12 - len(model.offsets)),
        ),
    )
    taken = [offset for part in leased.ranges for offset in range(part.first, part.last + 1)]
    assert taken == [*ready, *fresh]
    for offset in taken:
        deliveries = model.offsets[offset].deliveries if offset in model.offsets else 0
        model.offsets[offset] = Single(RangeState.LEASED, deliveries + 1, lease_id)
    model.next_offset = max(model.next_offset, fresh.stop)
    return leased.queue


def settled(queue: PartitionQueue, model: Model, first: int, last: int, verdict: int) -> PartitionQueue:
    lease_id = holder(model, first)
    queue, refused, _ = rules.settle(queue, [settlement(lease_id, first, last, verdict)], Delivery(LIMIT, 0.0))
    assert held(model, first, last, lease_id) != bool(refused)
    if refused:
        return queue
    for offset in range(first, last + 1):
        if verdict == queue_pb2.VERDICT_ACCEPT:
            del model.offsets[offset]
        else:
            model.redeliver(offset)
    return queue


def settling(queue: PartitionQueue, model: Model, first: int, last: int, producer_id: int) -> PartitionQueue:
    lease_id = holder(model, first)
    try:
        queue = rules.begin_settling(queue, [settlement(lease_id, first, last)], producer_id)
    except InvalidRecordState:
        assert not held(model, first, last, lease_id)
        return queue
    assert held(model, first, last, lease_id)
    for offset in range(first, last + 1):
        single = model.offsets[offset]
        model.offsets[offset] = Single(RangeState.SETTLING, single.deliveries, single.lease_id, producer_id)
    return queue


def ended(queue: PartitionQueue, model: Model, producer_id: int, committed: bool) -> PartitionQueue:
    for offset, single in list(model.offsets.items()):
        if single.state is RangeState.SETTLING and single.producer_id == producer_id:
            if committed:
                del model.offsets[offset]
            else:
                model.offsets[offset] = Single(RangeState.LEASED, single.deliveries, single.lease_id)
    return rules.end_settling(queue, producer_id, committed=committed)


def step(queue: PartitionQueue, model: Model, number: int, wanted: tuple[str, object, object]) -> PartitionQueue:
    match wanted:
        case ("lease", int(most), int(end)):
            return lease(queue, model, number, most, end)
        case ("settle", (int(first), int(more)), int(verdict)):
            return settled(queue, model, first, first + more, verdict)
        case ("begin settling", (int(first), int(more)), int(producer_id)):
            return settling(queue, model, first, first + more, producer_id)
        case ("end settling", int(producer_id), bool(committed)):
            return ended(queue, model, producer_id, committed)
        case ("expire", int(lease_id), _):
            for offset, single in list(model.offsets.items()):
                if single.state is RangeState.LEASED and single.lease_id == lease_id:
                    model.redeliver(offset)
            return rules.expire(queue, lease_id, Delivery(LIMIT, 0.0)).queue
        case ("trim", int(log_start), _):
            gone = [at for at, one in model.offsets.items() if at < log_start and one.state is RangeState.READY]
            trimmed = rules.trim(queue, log_start)
            assert rules.taken_count(queue, trimmed) == len(gone) + max(0, log_start - model.next_offset)
            for offset in gone:
                del model.offsets[offset]
            model.next_offset = max(model.next_offset, log_start)
            return trimmed
        case ("cut", int(end), _):
            model.offsets = {offset: single for offset, single in model.offsets.items() if offset < end}
            model.next_offset = min(model.next_offset, end)
            return rules.cut(queue, end, 1)
    raise AssertionError(wanted)


@given(st.lists(STEP, max_size=40))
def test_ranges_say_the_same_as_single_offsets(steps: list[tuple[str, object, object]]) -> None:
    queue, model = PartitionQueue(0), Model()
    for number, wanted in enumerate(steps, 1):
        before = queue
        queue = step(queue, model, number, wanted)
        assert singles(queue) == model.offsets
        assert queue.next_offset == model.next_offset
        if wanted[0] != "cut":
            assert queue.settled_to >= before.settled_to  # Q6
        assert_tidy(queue)


def assert_tidy(queue: PartitionQueue) -> None:
    """Ranges are in order and do not overlap, and neighbours that are alike are one."""
    for before, after in zip(queue.ranges, queue.ranges[1:], strict=False):
        assert before.last < after.first
        assert not after.continues(before)
    assert all(part.first <= part.last < queue.next_offset for part in queue.ranges)


def test_neighbours_that_are_alike_become_one() -> None:
    alike = [Range(0, 1, RangeState.LEASED, 1, 7), Range(2, 4, RangeState.LEASED, 1, 7)]
    assert PartitionQueue(5).with_ranges(alike).ranges == (Range(0, 4, RangeState.LEASED, 1, 7),)


def test_a_worker_waits_a_lock_for_each_record_that_it_is_to_have_alone() -> None:
    locks, holdings = Locks(), Holdings()
    alone, holder = Alone(locks, holdings), Holder("jobs", "w")
    holdings.changed(QueueKey("jobs", PartitionKey(bytes(16), 0)), (), [Range(0, 0, RangeState.LEASED, 1, lease_id=1)])
    locks.given(LeaseName("jobs", 1), 1e9, Owner("w", ""))
    assert [alone.may_begin(holder, now_ms, 100.0) for now_ms in (0.0, 100.0, 500.0)] == [False, True, False]
