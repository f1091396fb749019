"""What a partition knows of transactional producers: who is open, who has ended, and what of the log was aborted. Pure.

    a producer   entered when                                   left by
    OPEN         its first transactional batch is in the log    its marker
    UNSTABLE     its marker is in the log                       the high watermark passes the marker
    ENDED        its marker is in the log                       the oldest go when there are too many, or by expiry

A producer id is of one transaction and ends once, so a second marker says nothing new, and one that ended may not write
again. The last stable offset is the first offset of the earliest one that is open or unstable, and never above the
high watermark: it moves with that only, for what begins begins above it.

The aborted ones are kept by their markers, ascending. Behind each stands the lowest first offset of all that come after
it, so that who reads a range looks at its own and stops (Kafka's transaction index, in memory: 40 bytes each).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from minilog_broker.storage.errors import CorruptFile

MAX_ENDED = 100_000  # per partition, about 20 MB; one forgotten is asked for anew, and refused, by its coordinator
NOTHING = -1  # the first and last offset of a producer that wrote nothing here

_COUNTS = struct.Struct("<III")  # open, ended, aborted
_OPEN = struct.Struct("<qq")
_ENDED = struct.Struct("<qqqq?")
_COLUMNS = 5
_WORD_BYTES = 8


class End(NamedTuple):
    """How and where a producer ended. `first_offset` is NOTHING where it wrote nothing."""

    first_offset: int
    marker_end_offset: int
    timestamp_us: int
    committed: bool


class Finished(NamedTuple):
    """A producer that a control batch ends: what it wrote, NOTHING where it wrote nothing."""

    producer_id: int
    committed: bool
    last_offset: int


class _Aborted:
    """The aborted index, by columns."""

    __slots__ = ("first_offsets", "last_offsets", "lowest_behind", "marker_offsets", "producer_ids")

    def __init__(self) -> None:
        self.producer_ids = array("q")
        self.first_offsets = array("q")
        self.last_offsets = array("q")
        self.marker_offsets = array("q")
        self.lowest_behind = array("q")

    @property
    def columns(self) -> tuple[array[int], ...]:
        return self.producer_ids, self.first_offsets, self.last_offsets, self.marker_offsets, self.lowest_behind

    def add(self, aborted: list[tuple[int, int, int]], marker_offset: int, lowest_behind: int) -> None:
        """Those of one control batch: (first offset, last offset, producer id)."""
        aborted.sort()
        for number, (first, last, producer_id) in enumerate(aborted):
            following = aborted[number + 1][0] if number + 1 < len(aborted) else lowest_behind
            for column, value in zip(
                self.columns, (producer_id, first, last, marker_offset, min(following, lowest_behind)), strict=True
            ):
                column.append(value)

    def within(self, from_offset: int, to_offset: int) -> list[int]:
        """Producers with batches in [from_offset, to_offset), and perhaps some between whose batches it lies."""
        found = []
        for number in range(bisect_right(self.marker_offsets, from_offset), len(self.producer_ids)):
            if self.first_offsets[number] < to_offset and self.last_offsets[number] >= from_offset:
                found.append(self.producer_ids[number])
            if self.lowest_behind[number] >= to_offset:
                break
        return found

    def forget_below(self, offset: int) -> None:
        count = bisect_right(self.marker_offsets, offset)
        if count:
            for column in self.columns:
                del column[:count]


class PartitionTransactions:
    """See the module's text. Changed by what is in the log, in its order; on one thread."""

    __slots__ = ("_aborted", "_ended", "_max_ended", "_open", "_unstable")

    def __init__(self, *, max_ended: int = MAX_ENDED) -> None:
        self._open: dict[int, int] = {}  # first offsets, which ascend
        self._ended: dict[int, End] = {}  # by their markers, which ascend
        self._unstable: list[tuple[int, int]] = []  # of each control batch (end offset, lowest first offset)
        self._aborted: _Aborted | None = None  # most partitions never have one
        self._max_ended = max_ended

    def __bool__(self) -> bool:
        return bool(self._open or self._ended or self._aborted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionTransactions) and self.snapshot() == other.snapshot()

    __hash__ = None  # type: ignore[assignment]

    # -- what is known

    def is_open(self, producer_id: int) -> bool:
        """Whether it has written, and not ended."""
        return producer_id in self._open

    @property
    def open_count(self) -> int:
        return len(self._open)

    def end_of(self, producer_id: int) -> End | None:
        """How it ended; None where that is not known."""
        return self._ended.get(producer_id)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Exclusive. To be asked with high watermarks that do not go back."""
        unstable = self._unstable
        if unstable and unstable[0][0] <= high_watermark:  # of a log that was just opened, as many as it has markers
            del unstable[: bisect_right(unstable, high_watermark, key=itemgetter(0))]
        offset = min(high_watermark, next(iter(self._open.values()), high_watermark))
        return min([offset, *(first for _, first in unstable)]) if unstable else offset

    def aborted_within(self, from_offset: int, to_offset: int) -> list[int]:
        """The producers whose batches in [from_offset, to_offset) were aborted; below the last stable offset, all."""
        return [] if self._aborted is None else self._aborted.within(from_offset, to_offset)

    # -- what the log says

    def begin(self, producer_id: int, offset: int) -> None:
        """A transactional batch at `offset`: the first one opens."""
        if producer_id not in self._open and producer_id not in self._ended:
            self._open[producer_id] = offset

    def end(self, finished: Iterable[Finished], marker_offset: int, marker_end_offset: int, timestamp_us: int) -> None:
        """A control batch. Who has ended before has ended as it was said then."""
        aborted, firsts = [], []
        for producer_id, committed, last_offset in finished:
            if producer_id in self._ended:
                continue
            first = self._open.pop(producer_id, NOTHING)
            self._ended[producer_id] = End(first, marker_end_offset, timestamp_us, committed)
            if first == NOTHING:
                continue
            firsts.append(first)
            if not committed:
                aborted.append((first, last_offset, producer_id))
        if firsts:
            self._unstable.append((marker_end_offset, min(firsts)))
        if aborted:
            self._aborted = self._aborted or _Aborted()
            self._aborted.add(aborted, marker_offset, next(iter(self._open.values()), marker_end_offset))
        while len(self._ended) > self._max_ended:
            del self._ended[next(iter(self._ended))]

    def log_starts_at(self, offset: int) -> list[int]:
        """Nothing below is read any more. Returns the producers that were open here and have ended: a log starts at or
        below its last stable offset, so the marker of who began below its start is gone with all before it."""
        if self._aborted is not None:
            self._aborted.forget_below(offset)
            self._aborted = self._aborted if self._aborted.producer_ids else None
        ended = [producer_id for producer_id, _ in takewhile(lambda each: each[1] < offset, self._open.items())]
        for producer_id in ended:
            del self._open[producer_id]
        return ended

    def expire(self, before_timestamp_us: int) -> int:
        """Forget who ended before. Returns how many."""
        old = [producer_id for producer_id, end in self._ended.items() if end.timestamp_us < before_timestamp_us]
        for producer_id in old:
            del self._ended[producer_id]
        return len(old)

    # -- the snapshot

    def snapshot(self) -> bytes:
        """All of it as bytes."""
        aborted = () if self._aborted is None else self._aborted.columns
        parts = [_COUNTS.pack(len(self._open), len(self._ended), len(aborted[0]) if aborted else 0)]
        parts += [_OPEN.pack(*each) for each in self._open.items()]
        parts += [_ENDED.pack(producer_id, *end) for producer_id, end in self._ended.items()]
        parts += [column.tobytes() for column in aborted]
        return b"".join(parts)

    @classmethod
    def from_snapshot(cls, body: bytes) -> PartitionTransactions:
        """Raises CorruptFile where it is none."""
        if len(body) < _COUNTS.size:
            raise CorruptFile("a producer snapshot ends before its transactions")
        open_count, ended_count, aborted_count = _COUNTS.unpack_from(body)
        ended_at = _COUNTS.size + open_count * _OPEN.size
        aborted_at = ended_at + ended_count * _ENDED.size
        column_bytes = aborted_count * _WORD_BYTES
        if len(body) != aborted_at + _COLUMNS * column_bytes:
            raise CorruptFile(
                f"a producer snapshot of {open_count} open, {ended_count} ended and {aborted_count} aborted "
                f"transactions cannot have {len(body)} bytes for them"
            )
        found = cls()
        found._open = dict(_OPEN.iter_unpack(body[_COUNTS.size : ended_at]))
        for producer_id, *end in _ENDED.iter_unpack(body[ended_at:aborted_at]):
            found._ended[producer_id] = End(*end)
        found._note_unstable()
        if aborted_count:
            found._aborted = _Aborted()
            for number, column in enumerate(found._aborted.columns):
                start = aborted_at + number * column_bytes
                column.frombytes(body[start : start + column_bytes])
        return found

    def _note_unstable(self) -> None:
        """Who is stable is for the high watermark to say, and that may be a lower one than when this was stored."""
        firsts: dict[int, int] = {}
        for end in self._ended.values():
            if end.first_offset != NOTHING:
                lowest = firsts.get(end.marker_end_offset, end.first_offset)
                firsts[end.marker_end_offset] = min(lowest, end.first_offset)
        self._unstable.extend(sorted(firsts.items()))
