"""The state of a queue in one partition, and what leases, verdicts, markers and leaders do to it: pure.

A state is a value. Each rule returns a new one, so that a decision that cannot be written changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from minilog.errors import InvalidRecordState, MinilogError, ResourceExhausted
from minilog.limits import MAX_REASON_CHARACTERS
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.ranges import Change, Range, RangeState, changed_within, extend, joined
from minilog_broker.coordinators.queues.shrinking import most_together

MAX_RANGES = 10_000  # of a partition: some milliseconds for each look at all of them, and two mebibytes
_HELD = (RangeState.LEASED, RangeState.SETTLING)
SettledChange = Callable[[queue_pb2.Settlement, Range], Range | None]
"""What a part of a range becomes by a settlement. None: it is settled."""


@dataclass(frozen=True, slots=True)
class PartitionQueue:
    """`next_offset`: no offset from there on was ever leased. `leader_epoch`: the highest epoch of the partition's
    leader under which an offset was leased. `dead_count`: the records that have died."""

    next_offset: int
    leader_epoch: int = -1
    ranges: tuple[Range, ...] = ()
    dead_count: int = 0

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


class LeaseRequest(NamedTuple):
    """What a lease may take: `max_records` of those below `end`, while the locks stay within `max_locks`.
    `takes_dead`: the worker carries dead records to the dead-letter topic. `limit`: deliveries before a record is dead.
    `taken`: records that the lease has from other partitions. `alone`: this record, and no other. `has_waiting`:
    whether the partition may have ready or dead ranges. `locks`: that it has; None: they are counted."""

    lease_id: int
    max_records: int
    max_locks: int
    end: int
    leader_epoch: int
    takes_dead: bool = False
    limit: int = 1
    taken: int = 0
    alone: int | None = None
    has_waiting: bool = True
    locks: int | None = None


class Leased(NamedTuple):
    """The state after a lease, the ranges that the worker gets, and how many more records the lease may have."""

    queue: PartitionQueue
    ranges: list[Range]
    left: int


def is_due(current: Range, now_ms: float, activated_ms: float) -> bool:
    """Whether a ready or dead range may be leased. A delay that an earlier coordinator began is waited for anew:
    longer, never shorter."""
    return current.state in (RangeState.READY, RangeState.DEAD) and due_ms(current, activated_ms) <= now_ms


def due_ms(current: Range, activated_ms: float) -> float:
    """The end of the delay of a ready or dead range."""
    return activated_ms + current.delay_ms if current.ready_at_ms is None else current.ready_at_ms


def due_alone(queue: PartitionQueue, end: int, limit: int, now_ms: float, activated_ms: float) -> int | None:
    """The first record below `end` that is due, and is leased alone."""
    for current in queue.ranges:
        is_alone = current.state is RangeState.READY and most_together(current.delivery_count, limit) == 1
        if is_alone and current.first < end and is_due(current, now_ms, activated_ms):
            return current.first
    return None


def lease(queue: PartitionQueue, wanted: LeaseRequest, now_ms: float, activated_ms: float) -> Leased:
    """First the records that were delivered before, in the order of their offsets, and then fresh ones (Q4: all of them
    below `wanted.end`). The more often a record was delivered, the smaller is its lease (shrinking.py)."""
    most = wanted.taken + wanted.max_records if wanted.alone is None else 1  # of the whole lease
    count, taken, ranges = wanted.taken, list[Range](), list[Range]()
    more_ranges = MAX_RANGES - len(queue.ranges)
    for current in queue.ranges if wanted.has_waiting else ():
        is_dead = current.state is RangeState.DEAD
        shrunk = most if is_dead else min(most, most_together(current.delivery_count, wanted.limit))
        last = min(current.last, current.first + shrunk - count - 1, wanted.end - 1)
        if (
            shrunk <= count
            or current.first >= wanted.end
            or not is_due(current, now_ms, activated_ms)
            or (is_dead and not wanted.takes_dead)
            or (wanted.alone is not None and current.first != wanted.alone)
            or (last < current.last and more_ranges <= 0)
        ):
            ranges.append(current)
            continue
        most = shrunk
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
        count += part.count
        if last < current.last:
            ranges.append(replace(current, first=last + 1))
            more_ranges -= 1
    kept = list(joined(ranges)) if wanted.has_waiting else list(queue.ranges)
    locks = queue.lock_count if wanted.locks is None else wanted.locks
    fresh = min(most - count, wanted.end - queue.next_offset, wanted.max_locks - locks)
    next_offset = queue.next_offset
    if fresh > 0 and more_ranges > 0:
        part = Range(next_offset, next_offset + fresh - 1, RangeState.LEASED, 1, wanted.lease_id)
        taken.append(part)
        extend(kept, (part,))
        next_offset += fresh
        count += fresh
    if not taken:
        return Leased(queue, [], most - count)
    epoch = max(queue.leader_epoch, wanted.leader_epoch)
    after = replace(queue, next_offset=next_offset, leader_epoch=epoch, ranges=tuple(kept))
    return Leased(after, list(joined(taken)), most - count)


# -- the end of a lease


class Delivery(NamedTuple):
    """What becomes of a record that was delivered and not accepted. `limit`: deliveries before it is dead.
    `keeps_dead`: the queue has a dead-letter topic. Otherwise a record that dies is settled. `counts`: a program was
    handed the record, for all that is known."""

    limit: int
    now_ms: float
    delay_ms: int = 0
    keeps_dead: bool = False
    counts: bool = True


class Death(NamedTuple):
    """Neighbouring records that died at once."""

    first: int
    last: int
    delivery_count: int
    reason: str


class Ended(NamedTuple):
    """The state after the end of leases, and the records that died."""

    queue: PartitionQueue
    deaths: list[Death]


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


def _limit_reason(current: Range) -> str:
    return f"not accepted in {current.delivery_count} deliveries"


def _delivered(current: Range, after: Delivery) -> Range | None:
    """The range after a delivery without a settlement. What is dead stays dead, and waits for another worker."""
    if current.death_reason is not None:
        return _dead(current, after, current.death_reason)
    if current.delivery_count >= after.limit:
        return _dead(current, after._replace(delay_ms=0), _limit_reason(current))
    return _waiting(current, RangeState.READY, after)


def _returned(current: Range, after: Delivery) -> Range | None:
    """The range after a lease of which no program was handed anything."""
    if current.death_reason is not None:
        return _delivered(current, after)
    return _waiting(replace(current, delivery_count=current.delivery_count - 1), RangeState.READY, after)


def _rejected(current: Range, after: Delivery, reason: str) -> Range | None:
    return _dead(current, after, reason if current.death_reason is None else current.death_reason)


def _is_leased_by(current: Range, lease_id: int) -> bool:
    return current.state is RangeState.LEASED and current.lease_id == lease_id


def _death(before: Range, reason: str) -> Death:
    return Death(before.first, before.last, before.delivery_count, reason)


def _ended(
    queue: PartitionQueue, settlements: Sequence[queue_pb2.Settlement], change: SettledChange
) -> tuple[PartitionQueue, set[int]]:
    """The state after settlements, and the places of the refused ones: their leases do not hold all that they are
    about, or an earlier one is about a part of it. Sorted, they meet each range once, however many they are."""
    ranges, kept, refused = list(queue.ranges), list[Range](), set[int]()
    at, named_to = 0, -1
    for index, settlement in sorted(enumerate(settlements), key=lambda each: each[1].first_offset):
        first, last = settlement.first_offset, settlement.last_offset
        if first <= named_to:
            refused.add(index)
            named_to = max(named_to, last)
            continue
        named_to = last
        begin = bisect_left(ranges, first, at, key=_last_of)
        extend(kept, ranges[at:begin])
        at, expected = begin, first
        while (
            at < len(ranges) and ranges[at].first <= expected <= last and _is_leased_by(ranges[at], settlement.lease_id)
        ):
            expected = ranges[at].last + 1
            at += 1
        if expected <= last or _splits_too_much(len(kept) + len(ranges) - begin, ranges[begin:at], first, last):
            refused.add(index)
            at = begin
            continue
        for part in ranges[begin:at]:
            if part.first < first:
                extend(kept, (replace(part, last=first - 1),))
            changed = change(settlement, replace(part, first=max(first, part.first), last=min(last, part.last)))
            if changed is not None:
                extend(kept, (changed,))
        if ranges[at - 1].last > last:
            at -= 1
            ranges[at] = replace(ranges[at], first=last + 1)
    extend(kept, ranges[at:])
    return replace(queue, ranges=tuple(kept)), refused


def _last_of(current: Range) -> int:
    return current.last


def _splits_too_much(count: int, parts: Sequence[Range], first: int, last: int) -> bool:
    """Whether the partition would have too many ranges after a settlement of a part of these."""
    more = (parts[0].first < first) + (parts[-1].last > last)
    return bool(more) and count + more > MAX_RANGES


def refusal(settlement: queue_pb2.Settlement, queue: PartitionQueue) -> MinilogError:
    """Why a settlement is refused. `queue`: the state before, or after."""
    what = (
        f"lease {settlement.lease_id}, offsets {settlement.first_offset} to {settlement.last_offset} of partition "
        f"{settlement.partition_id.partition}"
    )
    if len(queue.ranges) >= MAX_RANGES - 2:
        return ResourceExhausted(
            f"{what}: the queue may have {MAX_RANGES} ranges of unsettled records in a partition, and has them. Settle "
            "whole ranges, or lower group.share.partition.max.record.locks. Nothing of this settlement is done"
        )
    return InvalidRecordState(
        f"{what}: the lease does not hold all of them. They are settled, or their lock ended. Nothing of this "
        "settlement is done"
    )


class Settled(NamedTuple):
    """The state after settlements, the places of the refused ones, and the records that died."""

    queue: PartitionQueue
    refused: set[int]
    deaths: list[Death]


def settle(queue: PartitionQueue, settlements: Sequence[queue_pb2.Settlement], after: Delivery) -> Settled:
    """Verdicts. Each offset has one: of two for the same offset, the second in the order of offsets is refused."""
    deaths: list[Death] = []

    def change(settlement: queue_pb2.Settlement, current: Range) -> Range | None:
        delivery = after._replace(delay_ms=settlement.delay_ms)
        match settlement.verdict:
            case queue_pb2.VERDICT_RELEASE:
                return _noting(deaths, current, _delivered(current, delivery))
            case queue_pb2.VERDICT_RETURN:
                return _returned(current, delivery)
            case queue_pb2.VERDICT_REJECT:
                reason = settlement.reason[:MAX_REASON_CHARACTERS] or "rejected without a reason"
                if current.death_reason is None:
                    deaths.append(_death(current, reason))
                return _rejected(current, delivery, reason)
        return None

    left, refused = _ended(queue, settlements, change)
    return Settled(_with_deaths(left, deaths), refused, deaths)


def _noting(deaths: list[Death], before: Range, after: Range | None) -> Range | None:
    """Note a death by the delivery limit."""
    if before.death_reason is None and (after is None or after.state is RangeState.DEAD):
        deaths.append(_death(before, _limit_reason(before)))
    return after


def _with_deaths(queue: PartitionQueue, deaths: Sequence[Death]) -> PartitionQueue:
    count = sum(death.last + 1 - death.first for death in deaths)
    return replace(queue, dead_count=queue.dead_count + count) if count else queue


def expire(queue: PartitionQueue, lease_id: int, after: Delivery) -> Ended:
    """The lock of a lease has ended. Records that a transaction settles wait for its marker."""
    deaths: list[Death] = []
    counted = _delivered if after.counts else _returned

    def change(current: Range) -> Range | None:
        return _noting(deaths, current, counted(current, after))

    left = _with_changed(queue, lambda current: _is_leased_by(current, lease_id), change)
    return Ended(_with_deaths(left, deaths), deaths)


def _with_changed(queue: PartitionQueue, is_meant: Callable[[Range], bool], change: Change) -> PartitionQueue:
    """The state with a change of some whole ranges; itself where none is meant."""
    meant = [at for at, current in enumerate(queue.ranges) if is_meant(current)]
    if not meant:
        return queue
    kept: list[Range] = []
    done = 0
    for at in meant:
        extend(kept, queue.ranges[done:at])
        changed = change(queue.ranges[at])
        extend(kept, () if changed is None else (changed,))
        done = at + 1
    extend(kept, queue.ranges[done:])
    return replace(queue, ranges=tuple(kept))


def drop_dead(queue: PartitionQueue) -> PartitionQueue:
    """The queue has no dead-letter topic any more: what waits for it is settled."""
    return queue.with_ranges(current for current in queue.ranges if current.state is not RangeState.DEAD)


def begin_settling(
    queue: PartitionQueue, settlements: Sequence[queue_pb2.Settlement], producer_id: int
) -> PartitionQueue:
    """Accept within a transaction: all of these, or none. Raises InvalidRecordState, ResourceExhausted."""
    left, refused = _ended(
        queue,
        settlements,
        lambda _, current: replace(current, state=RangeState.SETTLING, producer_id=producer_id),
    )
    if refused:
        raise refusal(settlements[min(refused)], queue)
    return left


def end_settling(queue: PartitionQueue, producer_id: int, *, committed: bool) -> PartitionQueue:
    """The marker of a transaction has come. After an abort the lease holds the records again."""

    def is_meant(current: Range) -> bool:
        return current.state is RangeState.SETTLING and current.producer_id == producer_id

    def given_back(current: Range) -> Range | None:
        return None if committed else replace(current, state=RangeState.LEASED, producer_id=-1)

    return _with_changed(queue, is_meant, given_back)


# -- what the partition's leader reports


def trim(queue: PartitionQueue, log_start: int) -> PartitionQueue:
    """Retention has taken all below `log_start`, settled or not. The ranges that a worker holds stay until the worker
    settles them or its lock ends. Without them the coordinator could not refuse a worker that has lost its lease."""
    if log_start <= queue.settled_to:
        return queue
    change: Change = lambda current: current if current.state in _HELD else None  # noqa: E731
    above = bisect_left(queue.ranges, log_start, key=_first_of)
    kept = list(joined(changed_within(queue.ranges[:above], 0, log_start - 1, change)))
    extend(kept, queue.ranges[above:])
    return replace(queue, next_offset=max(queue.next_offset, log_start), ranges=tuple(kept))


def _first_of(current: Range) -> int:
    return current.first


def cut(queue: PartitionQueue, end: int, leader_epoch: int) -> PartitionQueue:
    """The partition's log has other records from `end` on, after an unclean election. Nothing is known of those."""
    if end >= queue.next_offset:
        return queue
    kept = tuple(changed_within(queue.ranges, end, queue.next_offset, lambda current: None))
    return replace(queue, next_offset=end, leader_epoch=leader_epoch, ranges=kept)


def taken_count(before: PartitionQueue, after: PartitionQueue) -> int:
    """The offsets that `trim` took from a queue before they were settled."""
    if after is before:
        return 0
    return before.lock_count - after.lock_count + after.next_offset - before.next_offset


def leases_of(queue: PartitionQueue) -> set[int]:
    """The leases that hold something. A transaction may settle it."""
    return {current.lease_id for current in queue.ranges if current.state in _HELD}
