"""What compaction may take from one partition, by the records that were committed. K1 to K5.

The judge reads each batch once, when somebody first tells that it is committed: then no copy has compacted it. From
then on it decides by docs/spec/formats.md § Compaction which records may be missing, and which ones must be.

    may go      by the highest point that any copy has recorded as begun: so much may be missing anywhere
    stays       by one point: a copy that has carried it out has these records below its clean_to, and no others
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader
from minilog.typed.schema.topic_schema import TopicSchema
from minilog_broker.storage.markers import read_markers
from tests.judges.keyed_records import KeyedRecord, KeyedRecordReader, Place, place_of
from tests.judges.views import View, first_from, is_same


class Wrong(NamedTuple):
    """What is wrong with a copy, and by which rule."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgedPoint:
    """A point of compaction, as a disk or a message has it."""

    clean_to: int = 0
    deletes_before: int = 0

    def joined(self, other: JudgedPoint) -> JudgedPoint:
        return JudgedPoint(max(self.clean_to, other.clean_to), max(self.deletes_before, other.deletes_before))


NO_POINT = JudgedPoint()
KEPT_POINTS = 16  # copies carry out the last few


@dataclass(slots=True)
class _Held:
    """What a copy has in a range of offsets. `producers`: of transactions, each with the offsets of its records.
    `changed`: a record that is not what was committed there."""

    offsets: set[int] = field(default_factory=set)
    markers: set[int] = field(default_factory=set)
    producers: dict[int, set[int]] = field(default_factory=dict)
    changed: tuple[int, KeyedRecord] | None = None


@dataclass(slots=True)
class CompactedPartition:
    """What the judge knows of one partition. `fates`: whether the transaction of a producer id is committed. Producers
    without a marker are not in it. `schema` gives the version of the topic's schema that has a number."""

    key: PartitionKey
    fates: Mapping[int, bool]
    schema: Callable[[int], TopicSchema]
    point: JudgedPoint = NO_POINT
    end: int = 0
    records: dict[int, KeyedRecord] = field(default_factory=dict)
    markers: dict[int, frozenset[int]] = field(default_factory=dict)
    """The producers that the batch at an offset ends."""
    _offsets: dict[Hashable, list[int]] = field(default_factory=dict)
    """The offsets of the records of a key, ascending."""
    _places: dict[bytes, int] = field(default_factory=dict)
    _ascending: list[int] = field(default_factory=list)
    """The offsets of all records."""
    _kept: dict[JudgedPoint, frozenset[int]] = field(default_factory=dict)
    """The offsets that stay below a point, of the last points."""
    _right: set[Place] = field(default_factory=set)
    """The batches that some copy had, and was right to have."""
    _unchanged: set[Place] = field(default_factory=set)
    """The batches whose records are all as they were committed."""
    _reader: KeyedRecordReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = KeyedRecordReader(self.key, self.schema)

    # -- what was committed

    def committed(self, header: BatchHeader, batch: bytes) -> None:
        """The next batch is committed, and this is its content."""
        self.end = header.next_offset
        if header.is_control:
            ended = frozenset(marker.producer_id for marker in read_markers(batch, header))
            if ended:
                self.markers[header.base_offset] = ended
            return
        for offset, record in self._reader.read(header, lambda: batch).items():
            self.records[offset] = record
            self._ascending.append(offset)
            self._places.setdefault(record.identity, offset)
            if record.key is not None:
                self._offsets.setdefault(record.key, []).append(offset)

    def place_of(self, identity: bytes) -> int | None:
        """The offset of the first record with this identity."""
        return self._places.get(identity)

    # -- the rule

    def is_aborted(self, record: KeyedRecord) -> bool:
        return record.producer_id != NO_PRODUCER_ID and self.fates.get(record.producer_id) is False

    def newest(self, key: Hashable, below: int) -> int | None:
        """The offset of the newest record of a key below an offset."""
        offsets = self._offsets.get(key, [])
        for index in range(bisect_left(offsets, below) - 1, -1, -1):
            if not self.is_aborted(self.records[offsets[index]]):
                return offsets[index]
        return None

    def stays(self, record: KeyedRecord, point: JudgedPoint) -> bool:
        """Whether a record stays where `point` is carried out."""
        if record.offset >= point.clean_to:
            return True
        if self.is_aborted(record):
            return False
        if record.key is None:
            return True
        is_expired = record.is_deletion and record.offset < point.deletes_before
        return self.newest(record.key, point.clean_to) == record.offset and not is_expired

    def may_miss(self, offset: int) -> bool:
        """Whether a reader may find no record at an offset."""
        record = self.records.get(offset)
        if record is None:
            return offset < self.end
        kept = self._kept.get(self.point)
        if kept is None or offset >= self.point.clean_to:
            return not self.stays(record, self.point)
        return offset not in kept

    def _staying(self, point: JudgedPoint) -> frozenset[int]:
        """The offsets of the records that stay below the clean_to of a point. Kept where nothing changes them any more:
        all below is committed, and so is the end of each transaction there."""
        kept = self._kept.get(point)
        if kept is not None:
            return kept
        below = [self.records[offset] for offset in self._below(0, point.clean_to)]
        staying = frozenset(record.offset for record in below if self.stays(record, point))
        if self.end >= point.clean_to and not any(map(self._is_open, below)):
            while len(self._kept) >= KEPT_POINTS:
                del self._kept[next(iter(self._kept))]
            self._kept[point] = staying
        return staying

    def first_younger(self, start: int, upto: int, since_s: float) -> KeyedRecord | None:
        """The first committed record from `start` to `upto` whose time stamp is later than `since_s`."""
        between = (self.records[offset] for offset in self._below(start, upto))
        return next((record for record in between if record.timestamp_s > since_s), None)

    def _below(self, start: int, upto: int) -> list[int]:
        """The offsets of the committed records from `start` to `upto`."""
        offsets = self._ascending
        return offsets[bisect_left(offsets, start) : bisect_left(offsets, upto)]

    # -- what a copy has

    def first_lack(self, truth: list[BatchHeader], view: View, upto: int) -> int | None:
        """The first offset from `view.agreed` on of what a copy lacks, or has otherwise, and no compaction explains.
        `truth`: the committed batches.

        A batch that was right once stays right: what is committed does not change, and of it ever more may go."""
        own, index, is_whole = view.from_offset(view.agreed), first_from(truth, view.agreed), False
        batch = next(own, None)
        while index < len(truth) and (header := truth[index]).next_offset <= upto:
            while batch is not None and batch.next_offset <= header.base_offset:
                batch, is_whole = next(own, None), False
            if batch is None or batch.base_offset > header.base_offset:
                return header.base_offset
            if batch.next_offset <= upto and place_of(batch) in self._right:
                view.agreed = batch.next_offset
                index = index + 1 if header.next_offset == view.agreed else first_from(truth, view.agreed)
                continue
            if not is_same(header, batch):
                if (wrong := self._first_wrong(header, batch, view)) is not None:
                    return wrong
                is_whole = not header.has_gaps and (is_whole or header.base_offset == batch.base_offset)
            else:
                is_whole = True
            view.agreed = header.next_offset
            if is_whole and header.next_offset == batch.next_offset and self._is_read(batch):
                self._right.add(place_of(batch))
            index += 1
        return None

    def _first_wrong(self, header: BatchHeader, batch: BatchHeader, view: View) -> int | None:
        """Of a batch that is not as it was committed."""
        if header.has_gaps:
            return None  # what it was before nobody has seen
        is_covered = header.next_offset <= batch.next_offset <= self.point.clean_to
        if not batch.has_gaps or not is_covered or batch.partition_leader_epoch != header.partition_leader_epoch:
            return header.base_offset
        if batch.record_count and _identity_of(batch) != _identity_of(header):
            return header.base_offset
        own = self._read(batch, view)
        if own is None:
            return None
        for offset in range(header.base_offset, header.next_offset):
            mine, committed = own.get(offset), self.records.get(offset)
            if mine is None and committed is not None and not self.may_miss(offset):
                return offset
            if mine is not None and mine != committed:
                return offset
        is_marker_left = header.is_control and header.last_offset >= self.point.deletes_before
        return header.base_offset if is_marker_left else None

    def _read(self, batch: BatchHeader, view: View) -> Mapping[int, KeyedRecord] | None:
        """None where it has rotted, which its reader finds."""
        if batch.is_control or not batch.record_count:
            return {}
        try:
            return self._reader.read(batch, lambda: view.content(batch.base_offset))
        except CorruptMessage:
            return None

    def _is_read(self, batch: BatchHeader) -> bool:
        """Whether its records have been read from a copy that has not rotted."""
        return batch.is_control or not batch.record_count or self._reader.has_read(batch)

    def _held(self, view: View, start: int, upto: int) -> _Held:
        """What a copy has from `start` to `upto`."""
        held = _Held()
        for batch in view.from_offset(start):
            if batch.base_offset >= upto:
                break
            if batch.is_control:
                held.markers.add(batch.base_offset)
                continue
            if not (records := self._read(batch, view)):
                continue
            is_inside = start <= batch.base_offset and batch.next_offset <= upto
            offsets = records.keys() if is_inside else {offset for offset in records if start <= offset < upto}
            held.offsets |= offsets
            if batch.is_transactional and offsets:
                held.producers.setdefault(batch.producer_id, set()).update(offsets)
            if (place := place_of(batch)) not in self._unchanged:
                changed = (at for at in offsets if self.records.get(at, records[at]) != records[at])
                held.changed = next(((at, records[at]) for at in changed), held.changed)
                if is_inside and batch.next_offset <= self.end:
                    self._unchanged.add(place)
        return held

    def first_wrong(
        self, view: View, start: int, upto: int, counts_as_aborted: Callable[[int, int], bool] = lambda *_: False
    ) -> Wrong | None:
        """What a copy has below the point that it has begun, and must not, at any time. `counts_as_aborted`: whether
        the copy has stored that the transaction of a producer with a record at an offset was aborted."""
        held = self._held(view, start, upto)
        if held.changed is not None:
            offset, record = held.changed
            return Wrong("K2", f"the record at {offset} is {record}, committed was {self.records[offset]}")
        gone = self._staying(self.point).union(self._below(self.point.clean_to, upto)) - held.offsets
        if (first := min((offset for offset in gone if start <= offset < upto), default=None)) is not None:
            return Wrong("K1", f"the record at {first} is gone, and {self.point} keeps it: {self.records[first]}")
        return self._first_unveiled(held, start, upto) or self._first_unmarked(held, start, upto, counts_as_aborted)

    def _first_unveiled(self, held: _Held, start: int, upto: int) -> Wrong | None:
        """A record whose deletion is gone before it."""
        for key, offsets in self._offsets.items():
            newest = self.newest(key, self.point.clean_to)
            if newest is None or not start < newest < upto or newest in held.offsets:
                continue
            for offset in offsets[: bisect_left(offsets, newest)]:
                if offset in held.offsets and not self.is_aborted(self.records[offset]):
                    return Wrong("K3", f"the record at {offset} is the newest of {key!r}, {newest} was, and is gone")
        return None

    def _first_unmarked(
        self, held: _Held, start: int, upto: int, counts_as_aborted: Callable[[int, int], bool]
    ) -> Wrong | None:
        """A record whose transaction has no marker any more. A copy that began while its leader compacted may have one
        that goes. Then it has to count the transaction as aborted: nobody ends it any more."""
        for offset, ended in self.markers.items():
            if not start <= offset < upto or offset in held.markers:
                continue
            if offset >= self.point.deletes_before:
                return Wrong("K4", f"the markers at {offset} are gone, and {self.point} keeps them")
            for producer_id in ended & held.producers.keys():
                left = {at for at in held.producers[producer_id] if at < offset}
                if left and not counts_as_aborted(producer_id, min(left)):
                    return Wrong("K4", f"the markers at {offset} are gone, the record at {min(left)} is left")
                if stays := left & self._staying(self.point):
                    text = f"the markers at {offset} are gone, and the record at {min(stays)}, which stays, is hidden"
                    return Wrong("K4", text)
        return None

    def first_not_done(self, view: View, start: int, point: JudgedPoint) -> Wrong | None:
        """What a copy that has carried out a point has otherwise than the rule says."""
        own, staying = self._held(view, start, point.clean_to).offsets, self._staying(point)
        for offset in sorted(own ^ staying):
            record = self.records.get(offset)
            if record is None or offset < start or self._is_open(record):
                continue
            text = "is gone, and stays" if offset in staying else "is there, and goes"
            return Wrong("K5", f"the record at {offset} {text}, where {point} is carried out: {record}")
        return None

    def _is_open(self, record: KeyedRecord) -> bool:
        return record.producer_id != NO_PRODUCER_ID and record.producer_id not in self.fates


def _identity_of(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.base_offset,
        header.last_offset_delta,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
