"""The transactional producers of a partition: the open ones, the ended ones, and the aborted ranges of the log. Pure.

    a producer   entered when                                   left by
    OPEN         its first transactional batch is in the log    its marker
    UNSTABLE     its marker is in the log                       the high watermark passes the marker
    ENDED        its marker is in the log                       the oldest go when there are too many, or by expiry
    FORGOTTEN    the state has dropped it after its end         (a search finds its marker in the log: find_ends.py)
    UNMARKED     compaction has removed its marker              (it counts as aborted, and is forgotten at once)

A producer id belongs to one transaction and ends once. So a second marker changes nothing, and a producer that has
ended may not write again. The last stable offset is the first offset of the earliest producer that is open or unstable,
but never above the high watermark. It moves only with the high watermark, because new transactions begin above that.

The state also has the highest epoch in which each coordinator wrote markers, and the range of the forgotten markers.
While no marker is forgotten, a producer that is not in the state has not ended here.

The aborted producers are in the ascending order of their markers. Each entry also has the lowest first offset of all
later ones. So a search for a range looks only at the entries of that range (Kafka's transaction index, in memory: 40
bytes each).
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

MAX_ENDED = 100_000  # per partition, about 20 MB; a search in the log finds the marker of a forgotten producer
NOTHING = -1  # the first and last offset of a producer that wrote nothing here

_COUNTS = struct.Struct("<IIIIqq")  # open, ended, aborted, coordinators; the range of the forgotten markers
_COORDINATOR = struct.Struct("<ii")
_OPEN = struct.Struct("<qq")
_ENDED = struct.Struct("<qqqq?")
_COLUMNS = 5
_WORD_BYTES = 8


class ProducerEnd(NamedTuple):
    """The end of a producer. `first_offset` is NOTHING if the producer wrote nothing here."""

    first_offset: int
    marker_end_offset: int
    timestamp_us: int
    committed: bool


class Finished(NamedTuple):
    """A producer that a control batch ends. `last_offset` is NOTHING if the producer wrote nothing here."""

    producer_id: int
    committed: bool
    last_offset: int


class OffsetRange(NamedTuple):
    """Offsets from `start` up to `end`, exclusive."""

    start: int
    end: int


class _Aborted:
    """The index of the aborted producers, in columns."""

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
        """Add the aborted producers of one control batch, each as (first offset, last offset, producer id)."""
        aborted.sort()
        for number, (first, last, producer_id) in enumerate(aborted):
            following = aborted[number + 1][0] if number + 1 < len(aborted) else lowest_behind
            for column, value in zip(
                self.columns, (producer_id, first, last, marker_offset, min(following, lowest_behind)), strict=True
            ):
                column.append(value)

    def within(self, from_offset: int, to_offset: int) -> list[int]:
        """The aborted producers with batches in [from_offset, to_offset).

        The answer may also have a producer with batches only before and behind the range."""
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

    One thread applies the batches of the log to it, in the log's order.
    """

    __slots__ = ("_aborted", "_coordinators", "_ended", "_max_ended", "_open", "_unstable", "forgotten")

    def __init__(self, *, max_ended: int = MAX_ENDED) -> None:
        self._open: dict[int, int] = {}  # first offsets, which ascend
        self._ended: dict[int, ProducerEnd] = {}  # by their markers, which ascend
        self._unstable: list[tuple[int, int]] = []  # for each control batch (end offset, lowest first offset)
        self._aborted: _Aborted | None = None  # most partitions never have an aborted producer
        self._coordinators: dict[int, int] = {}  # the highest epoch of each, by its partition of `__transactions`
        self._max_ended = max_ended
        self.forgotten: OffsetRange | None = None  # the range of the forgotten producers' markers, even deleted ones

    def __bool__(self) -> bool:
        return bool(self._open or self._ended or self._aborted or self._coordinators)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionTransactions) and self.snapshot() == other.snapshot()

    __hash__ = None  # type: ignore[assignment]

    # -- queries

    def is_open(self, producer_id: int) -> bool:
        """Whether the producer has written here, and has not ended."""
        return producer_id in self._open

    @property
    def open_count(self) -> int:
        return len(self._open)

    def open_below(self, offset: int) -> list[int]:
        """The open producers that began below `offset`."""
        return [producer_id for producer_id, _ in takewhile(lambda begun: begun[1] < offset, self._open.items())]

    def open_and_unmarked_in(self, later: PartitionTransactions) -> list[int]:
        """The producers that are open here, and that a later state of this log has as aborted without a marker."""
        with_marker_or_open = later._open.keys() | later._ended.keys()
        return [
            producer_id
            for producer_id, first in self._open.items()
            if producer_id not in with_marker_or_open and producer_id in later.aborted_within(first, first + 1)
        ]

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the earliest open transaction. None if no transaction is open."""
        return next(iter(self._open.values()), None)

    def end_of(self, producer_id: int) -> ProducerEnd | None:
        """The end of a producer. None if the state does not know it."""
        return self._ended.get(producer_id)

    def coordinator_epoch(self, partition: int) -> int:
        """The highest epoch in which this coordinator wrote markers here. -1 if it never did."""
        return self._coordinators.get(partition, -1)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The last stable offset, exclusive. From call to call the high watermark must not go back."""
        unstable = self._unstable
        if unstable and unstable[0][0] <= high_watermark:  # a log that was just opened has an entry for each marker
            del unstable[: bisect_right(unstable, high_watermark, key=itemgetter(0))]
        offset = min(high_watermark, next(iter(self._open.values()), high_watermark))
        return min([offset, *(first for _, first in unstable)]) if unstable else offset

    def aborted_within(self, from_offset: int, to_offset: int) -> list[int]:
        """The producers whose batches in [from_offset, to_offset) were aborted. Below the last stable offset the answer
        is complete."""
        return [] if self._aborted is None else self._aborted.within(from_offset, to_offset)

    # -- changes by the log

    def begin(self, producer_id: int, offset: int) -> None:
        """Take in a transactional batch at `offset`. The first batch of a producer opens its transaction."""
        if producer_id not in self._open and producer_id not in self._ended:
            self._open[producer_id] = offset

    def end(self, finished: Iterable[Finished], marker_offset: int, marker_end_offset: int, timestamp_us: int) -> None:
        """Take in a control batch. For a producer that has ended before, the first marker counts."""
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

    def abort_unmarked(self, last_offsets: dict[int, int], end_offset: int) -> None:
        """Take open producers as aborted, because their markers were removed. `last_offsets` has the last offset of
        each. All markers of the state are below `end_offset`."""
        for producer_id, last in last_offsets.items():
            first = self._open.pop(producer_id)
            self._aborted = self._aborted or _Aborted()
            self._aborted.add([(first, last, producer_id)], end_offset, next(iter(self._open.values()), end_offset))
            self.forget_between(first, end_offset)

    def _forget(self, producer_id: int) -> None:
        end_offset = self._ended.pop(producer_id).marker_end_offset
        self.forget_between(end_offset - 1, end_offset)

    def forget_between(self, start_offset: int, end_offset: int) -> None:
        """Note that the state may lack producers whose marker is in this range."""
        before = self.forgotten or OffsetRange(start_offset, end_offset)
        self.forgotten = OffsetRange(min(before.start, start_offset), max(before.end, end_offset))

    def had_written(self, coordinator: CoordinatorEpoch) -> None:
        """Note that this coordinator has written a control batch of the log."""
        partition, epoch = coordinator
        if 0 <= partition < INTERNAL_PARTITIONS:
            self._coordinators[partition] = max(epoch, self._coordinators.get(partition, 0))

    def log_starts_at(self, offset: int) -> list[int]:
        """Drop the state of records below `offset`, the log's new start.

        Returns the producers that are open here but began below `offset`. They have ended: a log starts at or below its
        last stable offset, so their markers were deleted together with their records."""
        if self._aborted is not None:
            self._aborted.forget_below(offset)
            self._aborted = self._aborted if self._aborted.producer_ids else None
        ended = self.open_below(offset)
        for producer_id in ended:
            del self._open[producer_id]
        return ended

    def expire(self, before_timestamp_us: int) -> int:
        """Forget the producers that ended before this time. Returns the number of them."""
        old = [producer_id for producer_id, end in self._ended.items() if end.timestamp_us < before_timestamp_us]
        for producer_id in old:
            self._forget(producer_id)
        return len(old)

    # -- the snapshot

    def snapshot(self) -> bytes:
        """The whole state as bytes."""
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
        """A new state with the content of `body`, from `snapshot`. Raises CorruptFile if `body` is damaged."""
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
        """Count all ended producers that have written as unstable. The next high watermark decides which are stable. It
        may be lower than the high watermark at the time of the snapshot."""
        firsts: dict[int, int] = {}
        for end in self._ended.values():
            if end.first_offset != NOTHING:
                lowest = firsts.get(end.marker_end_offset, end.first_offset)
                firsts[end.marker_end_offset] = min(lowest, end.first_offset)
        self._unstable.extend(sorted(firsts.items()))
