"""The unsettled records of one partition, as ranges of offsets: pure.

    state      the record is                                       left by
    READY      to be delivered again, after its delay              a lease
    DEAD       on its way to the dead-letter topic of the queue    a lease
    LEASED     one worker's, until its lock ends                   settlement, or the end of the lock
    SETTLING   settled by a transaction that has not ended         its marker: committed, it is settled; aborted, LEASED
    (fresh)    never leased: from `next_offset` on                 a lease
    (settled)  in no range below `next_offset`                     never (Q2)

Ranges do not overlap, are in the order of their offsets, and neighbours that are alike are one range. A record that
dies is settled, unless the queue has a dead-letter topic. All offsets below the first range are settled for good, and
that bound never goes back (Q6).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from minilog.v1 import queue_pb2


class RangeState(enum.IntEnum):
    """The states of an unsettled range."""

    READY = queue_pb2.RANGE_STATE_READY
    LEASED = queue_pb2.RANGE_STATE_LEASED
    SETTLING = queue_pb2.RANGE_STATE_SETTLING
    DEAD = queue_pb2.RANGE_STATE_DEAD


class Kind(NamedTuple):
    """What a range is beside its offsets, as it is written."""

    state: RangeState
    delivery_count: int
    lease_id: int
    producer_id: int
    delay_ms: int
    death_reason: str | None


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets from `first` to `last`, both included, that are alike.

    `lease_id`: of a leased or settling one. `producer_id`: of a settling one. `delay_ms`: of a ready or dead one, as a
    worker has asked for it. `death_reason`: of records that died, in any state: a worker that has leased them carries
    them to the dead-letter topic. `ready_at_ms`: the end of the delay by this coordinator's clock. It is None where an
    earlier coordinator has begun the delay."""

    first: int
    last: int
    state: RangeState
    delivery_count: int
    lease_id: int = 0
    producer_id: int = -1
    delay_ms: int = 0
    death_reason: str | None = None
    ready_at_ms: float | None = field(default=None, compare=False)  # not written: another coordinator has no such clock

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def kind(self) -> Kind:
        return Kind(self.state, self.delivery_count, self.lease_id, self.producer_id, self.delay_ms, self.death_reason)

    def continues(self, other: Range) -> bool:
        """Whether this range can be one with the range in front of it."""
        if other.last + 1 != self.first or self.ready_at_ms != other.ready_at_ms:
            return False
        return self.kind == other.kind


Change = Callable[[Range], Range | None]
"""What a part of a range becomes. None: it is settled."""


def joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges, with neighbours that are alike as one."""
    before: Range | None = None
    for current in ranges:
        if before is not None and current.continues(before):
            before = replace(before, last=current.last)
            continue
        if before is not None:
            yield before
        before = current
    if before is not None:
        yield before


def extend(kept: list[Range], more: Sequence[Range]) -> None:
    """Put ranges behind others. Where the two meet, ranges that are alike become one."""
    if more and kept and more[0].continues(kept[-1]):
        kept[-1] = replace(kept[-1], last=more[0].last)
        more = more[1:]
    kept += more


def changed_within(ranges: Iterable[Range], first: int, last: int, change: Change) -> Iterator[Range]:
    """The ranges, with `change` of all that is between `first` and `last`, both included."""
    for current in ranges:
        if current.last < first or current.first > last:
            yield current
            continue
        if current.first < first:
            yield replace(current, last=first - 1)
        part = change(replace(current, first=max(first, current.first), last=min(last, current.last)))
        if part is not None:
            yield part
        if current.last > last:
            yield replace(current, first=last + 1)
