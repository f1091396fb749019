"""The state of a queue in one partition, and what leases, verdicts, markers and leaders do to it: pure.

A state is a value. Each rule returns a new one, so that a decision that cannot be written changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from minilog.errors import InvalidRecordState
from minilog.limits import MAX_REASON_CHARACTERS
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.ranges import Change, Range, RangeState, changed_within, covers, joined

_HELD = (RangeState.LEASED, RangeState.SETTLING)


@dataclass(frozen=True, slots=True)
class PartitionQueue:
    """`next_offset`: no offset from there on was ever leased. `leader_epoch`: the highest epoch of the partition's
    leader under which an offset was leased."""

    next_offset: int
    leader_epoch: int = -1
    ranges: tuple[Range, ...] = ()

    @property
    def settled_to(self) -> int:
        """All offsets below are settled."""
        return self.ranges[0].first if self.ranges else self.next_offset

    @property
    def lock_count(self) -> int:
        """The offsets that were leased and are not settled."""
        return sum(current.count for current in self.ranges)

    @property
    def alive_count(self) -> int:
        """Those of them that have not died."""
        return sum(current.count for current in self.ranges if current.death_reason is None)

    @property
    def has_dead(self) -> bool:
        """Whether records wait for their way to the dead-letter topic."""
        return any(current.state is RangeState.DEAD for current in self.ranges)

    def with_ranges(self, ranges: Iterable[Range]) -> PartitionQueue:
        return replace(self, ranges=tuple(joined(ranges)))


class Wanted(NamedTuple):
    """What a lease may take: `max_records` of those below `end`, while the locks stay within `max_locks`.
    `takes_dead`: the worker carries dead records to the dead-letter topic."""

    lease_id: int
    max_records: int
    max_locks: int
    end: int
    leader_epoch: int
    takes_dead: bool = False


class Leased(NamedTuple):
    """The state after a lease, and the ranges that the worker gets."""

    queue: PartitionQueue
    ranges: list[Range]


def is_due(current: Range, now_ms: float, activated_ms: float) -> bool:
    """Whether a ready or dead range may be leased. A delay that an earlier coordinator began is waited for anew:
    longer, never shorter."""
    return current.state in (RangeState.READY, RangeState.DEAD) and due_ms(current, activated_ms) <= now_ms


def due_ms(current: Range, activated_ms: float) -> float:
    """The end of the delay of a ready or dead range."""
    return activated_ms + current.delay_ms if current.ready_at_ms is None else current.ready_at_ms


def lease(queue: PartitionQueue, wanted: Wanted, now_ms: float, activated_ms: float) -> Leased:
    """First the records that were delivered before, in the order of their offsets, and then fresh ones (Q4: all of them
    below `wanted.end`)."""
    left, taken, ranges = wanted.max_records, list[Range](), list[Range]()
    for current in queue.ranges:
        is_dead = current.state is RangeState.DEAD
        if (
            left == 0
            or current.first >= wanted.end
            or not is_due(current, now_ms, activated_ms)
            or (is_dead and not wanted.takes_dead)
        ):
            ranges.append(current)
            continue
        last = min(current.last, current.first + left - 1, wanted.end - 1)
        delivery_count = current.delivery_count + (0 if is_dead else 1)
        part = Range(
            current.first,
            last,
            RangeState.LEASED,
            delivery_count,
            wanted.lease_id,
            death_reason=current.death_reason,
        )
        taken.append(part)
        ranges.append(part)
        left -= part.count
        if last < current.last:
            ranges.append(replace(current, first=last + 1))
    fresh = min(left, wanted.end - queue.next_offset, wanted.max_locks - queue.lock_count)
    next_offset = queue.next_offset
    if fresh > 0:
        part = Range(next_offset, next_offset + fresh - 1, RangeState.LEASED, 1, wanted.lease_id)
        taken.append(part)
        ranges.append(part)
        next_offset += fresh
    if not taken:
        return Leased(queue, [])
    epoch = max(queue.leader_epoch, wanted.leader_epoch)
    return Leased(PartitionQueue(next_offset, epoch, tuple(joined(ranges))), list(joined(taken)))


# -- the end of a lease


class Delivery(NamedTuple):
    """What becomes of a record that was delivered and not accepted. `limit`: deliveries before it is dead.
    `keeps_dead`: the queue has a dead-letter topic. Otherwise a record that dies is settled."""

    limit: int
    now_ms: float
    delay_ms: int = 0
    keeps_dead: bool = False


def _waiting(current: Range, state: RangeState, after: Delivery, reason: str | None = None) -> Range:
    """The range after its lease, to be leased again when the delay is over."""
    return Range(
        current.first,
        current.last,
        state,
        current.delivery_count,
        delay_ms=after.delay_ms,
        death_reason=reason,
        ready_at_ms=after.now_ms + after.delay_ms if after.delay_ms else 0.0,
    )


def _dead(current: Range, after: Delivery, reason: str) -> Range | None:
    return _waiting(current, RangeState.DEAD, after, reason) if after.keeps_dead else None


def _delivered(current: Range, after: Delivery) -> Range | None:
    """The range after a delivery without a settlement. What is dead stays dead, and waits for another worker."""
    if current.death_reason is not None:
        return _dead(current, after, current.death_reason)
    if current.delivery_count >= after.limit:
        return _dead(current, after._replace(delay_ms=0), f"not accepted in {current.delivery_count} deliveries")
    return _waiting(current, RangeState.READY, after)


def _rejected(current: Range, after: Delivery, reason: str) -> Range | None:
    return _dead(current, after, reason if current.death_reason is None else current.death_reason)


def _is_leased_by(current: Range, lease_id: int) -> bool:
    return current.state is RangeState.LEASED and current.lease_id == lease_id


def _require_leased(queue: PartitionQueue, settlement: queue_pb2.Settlement) -> None:
    """Raises InvalidRecordState where the lease does not hold all that the settlement is about."""
    first, last, lease_id = settlement.first_offset, settlement.last_offset, settlement.lease_id
    if not covers(queue.ranges, first, last, lambda current: _is_leased_by(current, lease_id)):
        raise InvalidRecordState(
            f"lease {lease_id} does not hold all offsets from {first} to {last} of partition "
            f"{settlement.partition_id.partition}: they are settled, or their lock ended. Nothing of this "
            "settlement is done"
        )


def settle(queue: PartitionQueue, settlement: queue_pb2.Settlement, after: Delivery) -> PartitionQueue:
    """One verdict. Raises InvalidRecordState."""
    _require_leased(queue, settlement)
    change: Change = lambda current: None  # noqa: E731
    if settlement.verdict == queue_pb2.VERDICT_RELEASE:
        change = lambda current: _delivered(current, after)  # noqa: E731
    elif settlement.verdict == queue_pb2.VERDICT_REJECT:
        reason = settlement.reason[:MAX_REASON_CHARACTERS] or "rejected without a reason"
        change = lambda current: _rejected(current, after, reason)  # noqa: E731
    return queue.with_ranges(changed_within(queue.ranges, settlement.first_offset, settlement.last_offset, change))


def expire(queue: PartitionQueue, lease_id: int, after: Delivery) -> PartitionQueue:
    """The lock of a lease has ended. Records that a transaction settles wait for its marker."""
    return queue.with_ranges(
        kept
        for current in queue.ranges
        if (kept := _delivered(current, after) if _is_leased_by(current, lease_id) else current) is not None
    )


def drop_dead(queue: PartitionQueue) -> PartitionQueue:
    """The queue has no dead-letter topic any more: what waits for it is settled."""
    return queue.with_ranges(current for current in queue.ranges if current.state is not RangeState.DEAD)


def begin_settling(queue: PartitionQueue, settlement: queue_pb2.Settlement, producer_id: int) -> PartitionQueue:
    """Accept within a transaction. Raises InvalidRecordState."""
    _require_leased(queue, settlement)
    change: Change = lambda current: replace(current, state=RangeState.SETTLING, producer_id=producer_id)  # noqa: E731
    return queue.with_ranges(changed_within(queue.ranges, settlement.first_offset, settlement.last_offset, change))


def end_settling(queue: PartitionQueue, producer_id: int, *, committed: bool) -> PartitionQueue:
    """The marker of a transaction has come. After an abort the lease holds the records again."""
    kept = []
    for current in queue.ranges:
        if current.state is not RangeState.SETTLING or current.producer_id != producer_id:
            kept.append(current)
        elif not committed:
            kept.append(replace(current, state=RangeState.LEASED, producer_id=-1))
    return queue.with_ranges(kept)


# -- what the partition's leader reports


def trim(queue: PartitionQueue, log_start: int) -> PartitionQueue:
    """Retention has taken all below `log_start`, settled or not. The ranges that a worker holds stay until the worker
    settles them or its lock ends. Without them the coordinator could not refuse a worker that has lost its lease."""
    if log_start <= queue.settled_to:
        return queue
    change: Change = lambda current: current if current.state in _HELD else None  # noqa: E731
    kept = joined(changed_within(queue.ranges, 0, log_start - 1, change))
    return replace(queue, next_offset=max(queue.next_offset, log_start), ranges=tuple(kept))


def cut(queue: PartitionQueue, end: int, leader_epoch: int) -> PartitionQueue:
    """The partition's log has other records from `end` on, after an unclean election. Nothing is known of those."""
    if end >= queue.next_offset:
        return queue
    kept = tuple(changed_within(queue.ranges, end, queue.next_offset, lambda current: None))
    return PartitionQueue(end, leader_epoch, kept)


def taken_count(before: PartitionQueue, after: PartitionQueue) -> int:
    """The offsets that `trim` took from a queue before they were settled."""
    return before.lock_count - after.lock_count + after.next_offset - before.next_offset


def leases_of(queue: PartitionQueue) -> set[int]:
    """The leases that hold something. A transaction may settle it."""
    return {current.lease_id for current in queue.ranges if current.state in _HELD}
