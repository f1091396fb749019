"""How much one micro-batch reads: at most a number of offsets or bytes, and not before a least number exists. Pure.

Spark has no limit that combines several, so the connector applies all of them in `latestOffset`. `Pace` decides whether
a batch waits for more (minOffsetsPerTrigger, maxTriggerDelay). `capped` decides how far it goes (maxOffsetsPerTrigger,
maxBytesPerTrigger). The partitions share a cap in proportion to their unread offsets or bytes. Each partition with
unread offsets gives at least one offset, so small partitions never starve.

Bytes are the stored bytes of the batches. Brokers know them at some offsets only (`SizeMarks`). Between two of these
offsets all records count as equally large. So a batch has about the size of the limit, and never more than about twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark_minilog.options.offsets import Partition, Positions

DEFAULT_MAX_DELAY_MS = 15 * 60 * 1000
_HALVINGS = 16  # a partition that has a 65,536th of all bytes is still measured on its own scale
_EVERYTHING = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """The four options. None means no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_MAX_DELAY_MS
    max_bytes: int | None = None

    @property
    def leave_unread(self) -> bool:
        """Whether a batch may leave existing records unread."""
        return self.max_offsets is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class SizeMarks:
    """Bytes of one partition above `start`: pairs (offset, bytes from `start` to this offset), in ascending order. The
    last pair is the end of the partition."""

    start: int
    points: tuple[tuple[int, int], ...] = ()

    @classmethod
    def ascending(cls, start: int, points: Iterable[tuple[int, int]]) -> SizeMarks:
        """A broker's pairs, without those that do not ascend: a broker measures by its index, which is not exact."""
        kept = [(start, 0)]
        for offset, size_bytes in sorted(points):
            if offset > kept[-1][0] and size_bytes > kept[-1][1]:
                kept.append((offset, size_bytes))
        return cls(start, tuple(kept[1:]))

    def bytes_to(self, offset: int) -> int:
        """About how many bytes there are from `start` to `offset`."""
        for (low, low_bytes), (high, high_bytes) in pairwise(((self.start, 0), *self.points)):
            if offset <= high:
                return low_bytes + (high_bytes - low_bytes) * max(0, offset - low) // max(1, high - low)
        return self.points[-1][1] if self.points else 0

    def offset_at(self, size_bytes: int) -> int:
        """About the offset at which this number of bytes is reached."""
        ladder = ((self.start, 0), *self.points)
        upper = bisect_left(ladder, size_bytes, key=lambda point: point[1])
        if upper == len(ladder):
            return ladder[-1][0]
        (low, low_bytes), (high, high_bytes) = ladder[max(0, upper - 1)], ladder[upper]
        return low + (high - low) * (size_bytes - low_bytes) // max(1, high_bytes - low_bytes)


def sizes_to_ask(max_bytes: int) -> list[int]:
    """The numbers of bytes for which the driver asks a broker for an offset: the cap, its halves, and everything."""
    return sorted({max(1, max_bytes >> halving) for halving in range(_HALVINGS)} | {_EVERYTHING})


def capped(begin: Positions, end: Positions, limits: Limits, marks: Mapping[Partition, SizeMarks]) -> Positions:
    """`end` lowered to what one batch may read."""
    by_count = end if limits.max_offsets is None else share(begin, end, limits.max_offsets)
    by_bytes = end if limits.max_bytes is None else share_bytes(begin, end, limits.max_bytes, marks)
    return {partition: min(by_count[partition], by_bytes[partition]) for partition in end}


def share(begin: Positions, end: Positions, limit: int) -> Positions:
    """`end`, lowered so that the batch reads about `limit` offsets, in proportion to the unread offsets of a partition.

    Each partition with unread offsets gives at least one, so small partitions never starve. The sum may pass the limit,
    by less than the number of partitions.
    """
    total = sum(end[partition] - begin[partition] for partition in end)
    if total <= limit:
        return dict(end)
    return {
        partition: begin[partition] + min(size, max(1, limit * size // total))
        if (size := last - begin[partition])
        else last
        for partition, last in end.items()
    }


def share_bytes(begin: Positions, end: Positions, limit: int, marks: Mapping[Partition, SizeMarks]) -> Positions:
    """`end`, lowered so that the batch reads about `limit` bytes, in proportion to the unread bytes of a partition.

    Each partition with unread bytes gives at least one offset, so the batch also reads a record above the limit.
    """
    sizes = {partition: marks[partition].bytes_to(last) for partition, last in end.items() if begin[partition] < last}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    shared = {partition: marks[partition].offset_at(limit * size // total) for partition, size in sizes.items()}
    return end | {
        partition: min(end[partition], max(begin[partition] + 1, offset)) for partition, offset in shared.items()
    }


class Pace:
    """Holds small batches back, for at most maxTriggerDelay from one batch to the next. The first batch never waits.

    Time is monotonic milliseconds.
    """

    def __init__(self, limits: Limits) -> None:
        self._least = limits.min_offsets or 0
        self._max_delay_ms = limits.max_delay_ms
        self._due_ms: float | None = None

    def holds_back(self, offsets: int, now_ms: float) -> bool:
        """Whether a batch of so many offsets waits for more. A batch with offsets begins if it does not wait."""
        if self._due_ms is not None and (offsets == 0 or (offsets < self._least and now_ms < self._due_ms)):
            return offsets > 0
        self._due_ms = now_ms + self._max_delay_ms
        return False

    def remaining_ms(self, now_ms: float) -> float:
        """How long the next batch may still be held back."""
        return 0.0 if self._due_ms is None else max(0.0, self._due_ms - now_ms)
