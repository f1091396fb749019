"""The transactional producers of a partition: the open ones, the ended ones, and the aborted ranges of the log. Pure.

    a producer   entered when                                   left by
    OPEN         its first transactional batch is in the log    its marker
    UNSTABLE     its marker is in the log                       the high watermark passes the marker
    ENDED        its marker is in the log                       the oldest go when there are too many, or by expiry
    FORGOTTEN    the state has dropped it after its end         (a search finds its marker in the log: find_ends.py)

A producer id belongs to one transaction and ends once. So a second marker changes nothing, and a producer that has
ended may not write again. The last stable offset is the first offset of the earliest producer that is open or unstable,
and never above the high watermark. It moves only with the high watermark, because new transactions begin above that.

The state also has the highest epoch in which each coordinator wrote markers, and the range of the forgotten markers.
While no marker is forgotten, a producer that is not in the state has not ended here.

The aborted producers are kept by their markers, ascending. Each entry also has the lowest first offset of all later
ones. So a search for a range looks only at the entries of that range (Kafka's transaction index, in memory: 40 bytes
each).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from minilog.net.coordinators_of import INTERNAL_PARTITIONS
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.markers import CoordinatorEpoch

MAX_ENDED = 100_000  # per partition, about 20 MB; the marker of one forgotten is looked for in the log
NOTHING = -1  # the first and last offset of a producer that wrote nothing here

_COUNTS = struct.Struct("<IIIIqq")  # open, ended, aborted, coordinators; the range of the forgotten markers
_COORDINATOR = struct.Struct("<ii")
_OPEN = struct.Struct("<qq")
_ENDED = struct.Struct("<qqqq?")
_COLUMNS = 5
_WORD_BYTES = 8


class ProducerEnd(NamedTuple):
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


class OffsetRange(NamedTuple):
    """Offsets from `start` up to `end`, exclusive."""

    start: int
    end: int


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
        producer_ids = []
        for number in range(bisect_right(self.marker_offsets, from_offset), len(self.producer_ids)):
            if self.first_offsets[number] < to_offset and self.last_offsets[number] >= from_offset:
                producer_ids.append(self.producer_ids[number])
            if self.lowest_behind[number] >= to_offset:
                break
        return producer_ids

    def forget_below(self, offset: int) -> None:
        count = bisect_right(self.marker_offsets, offset)
        if count:
            for column in self.columns:
                del column[:count]


class PartitionTransactions:
    """The transactional producers of one partition, and its aborted transactions.

    Changed by the batches of the log, in the log's order, on one thread.
    """

    __slots__ = ("_aborted", "_coordinators", "_ended", "_max_ended", "_open", "_unstable", "forgotten")

    def __init__(self, *, max_ended: int = MAX_ENDED) -> None:
        self._open: dict[int, int] = {}  # first offsets, which ascend
        self._ended: dict[int, ProducerEnd] = {}  # by their markers, which ascend
        self._unstable: list[tuple[int, int]] = []  # of each control batch (end offset, lowest first offset)
        self._aborted: _Aborted | None = None  # most partitions never have one
        self._coordinators: dict[int, int] = {}  # the highest epoch of each, by its partition of `__transactions`
        self._max_ended = max_ended
        self.forgotten: OffsetRange | None = None  # where markers of forgotten producers lie, or lay

    def __bool__(self) -> bool:
        return bool(self._open or self._ended or self._aborted or self._coordinators)

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

    def end_of(self, producer_id: int) -> ProducerEnd | None:
        """How it ended; None where that is not known."""
        return self._ended.get(producer_id)

    def coordinator_epoch(self, partition: int) -> int:
        """The highest epoch in which this coordinator had markers written here; -1 where it never had."""
        return self._coordinators.get(partition, -1)

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
            self._ended[producer_id] = ProducerEnd(first, marker_end_offset, timestamp_us, committed)
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
            self._forget(next(iter(self._ended)))

    def _forget(self, producer_id: int) -> None:
        end_offset = self._ended.pop(producer_id).marker_end_offset
        self.forget_between(end_offset - 1, end_offset)

    def forget_between(self, start_offset: int, end_offset: int) -> None:
        """Who ended by a marker in this range may not be known here."""
        before = self.forgotten or OffsetRange(start_offset, end_offset)
        self.forgotten = OffsetRange(min(before.start, start_offset), max(before.end, end_offset))

    def had_written(self, coordinator: CoordinatorEpoch) -> None:
        """A control batch in the log is by this coordinator."""
        partition, epoch = coordinator
        if 0 <= partition < INTERNAL_PARTITIONS:
            self._coordinators[partition] = max(epoch, self._coordinators.get(partition, 0))

    def log_starts_at(self, offset: int) -> list[int]:
        """Nothing below is read any more. Returns the producers that were open here and have ended: a log starts at or
        below its last stable offset, so the marker of who began below its start is gone with all before it."""
        if self._aborted is not None:
            self._aborted.forget_below(offset)
            self._aborted = self._aborted if self._aborted.producer_ids else None
        ended = [
            producer_id for producer_id, _ in takewhile(lambda transaction: transaction[1] < offset, self._open.items())
        ]
        for producer_id in ended:
            del self._open[producer_id]
        return ended

    def expire(self, before_timestamp_us: int) -> int:
        """Forget who ended before. Returns how many."""
        old = [producer_id for producer_id, end in self._ended.items() if end.timestamp_us < before_timestamp_us]
        for producer_id in old:
            self._forget(producer_id)
        return len(old)

    # -- the snapshot

    def snapshot(self) -> bytes:
        """All of it as bytes."""
        aborted = () if self._aborted is None else self._aborted.columns
        counts = len(self._open), len(self._ended), len(aborted[0]) if aborted else 0, len(self._coordinators)
        parts = [_COUNTS.pack(*counts, *(self.forgotten or (NOTHING, NOTHING)))]
        parts += [_COORDINATOR.pack(*coordinator) for coordinator in sorted(self._coordinators.items())]
        parts += [_OPEN.pack(*transaction) for transaction in self._open.items()]
        parts += [_ENDED.pack(producer_id, *end) for producer_id, end in self._ended.items()]
        parts += [column.tobytes() for column in aborted]
        return b"".join(parts)

    @classmethod
    def from_snapshot(cls, body: bytes) -> PartitionTransactions:
        """Raises CorruptFile where it is none."""
        if len(body) < _COUNTS.size:
            raise CorruptFile("a producer snapshot ends before its transactions")
        open_count, ended_count, aborted_count, coordinators, *forgotten = _COUNTS.unpack_from(body)
        open_at = _COUNTS.size + coordinators * _COORDINATOR.size
        ended_at = open_at + open_count * _OPEN.size
        aborted_at = ended_at + ended_count * _ENDED.size
        column_bytes = aborted_count * _WORD_BYTES
        if len(body) != aborted_at + _COLUMNS * column_bytes:
            raise CorruptFile(
                f"a producer snapshot of {open_count} open, {ended_count} ended and {aborted_count} aborted "
                f"transactions cannot have {len(body)} bytes for them"
            )
        transactions = cls()
        transactions._coordinators = dict(_COORDINATOR.iter_unpack(body[_COUNTS.size : open_at]))
        transactions.forgotten = OffsetRange(*forgotten) if forgotten[0] != NOTHING else None
        transactions._open = dict(_OPEN.iter_unpack(body[open_at:ended_at]))
        for producer_id, *end in _ENDED.iter_unpack(body[ended_at:aborted_at]):
            transactions._ended[producer_id] = ProducerEnd(*end)
        transactions._note_unstable()
        if aborted_count:
            transactions._aborted = _Aborted()
            for number, column in enumerate(transactions._aborted.columns):
                start = aborted_at + number * column_bytes
                column.frombytes(body[start : start + column_bytes])
        return transactions

    def _note_unstable(self) -> None:
        """Who is stable is for the high watermark to say, and that may be a lower one than when this was stored."""
        firsts: dict[int, int] = {}
        for end in self._ended.values():
            if end.first_offset != NOTHING:
                lowest = firsts.get(end.marker_end_offset, end.first_offset)
                firsts[end.marker_end_offset] = min(lowest, end.first_offset)
        self._unstable.extend(sorted(firsts.items()))
