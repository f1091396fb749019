"""What compaction may take from one partition, by the records that were committed. K1 to K5.

The judge reads each batch once, when somebody first tells that it is committed: then no copy has compacted it. From
then on it decides by docs/spec/formats.md § Compaction which records may be missing, and which ones must be.

    may go      by the highest point that any copy has recorded as begun: so much may be missing anywhere
    stays       by one point: a copy that has carried it out has these records below its clean_to, and no others
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader
from minilog_broker.storage.markers import read_markers
from tests.simulation.judge.copies import View
from tests.simulation.judge.keyed_records import KeyedRecord, KeyedRecordReader
from tests.simulation.judge.metadata import is_same


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


@dataclass(slots=True)
class CompactedPartition:
    """See the module's text. `fates`: of each producer that has a marker, whether it is committed."""

    key: PartitionKey
    fates: Mapping[int, bool]
    point: JudgedPoint = NO_POINT
    end: int = 0
    records: dict[int, KeyedRecord] = field(default_factory=dict)
    markers: dict[int, frozenset[int]] = field(default_factory=dict)
    """The producers that the batch at an offset ends."""
    _offsets: dict[bytes, list[int]] = field(default_factory=dict)
    """The offsets of the records of a key, ascending."""
    _places: dict[bytes, int] = field(default_factory=dict)
    _reader: KeyedRecordReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = KeyedRecordReader(self.key)

    # -- what was committed

    def committed(self, header: BatchHeader, batch: bytes) -> None:
        """The next batch is committed, and this is its content."""
        self.end = header.next_offset
        if header.is_control:
            ended = frozenset(marker.producer_id for marker in read_markers(batch, header))
            if ended:
                self.markers[header.base_offset] = ended
            return
        for offset, record in self._reader.read(header, batch).items():
            self.records[offset] = record
            self._places.setdefault(record.identity, offset)
            if record.key is not None:
                self._offsets.setdefault(record.key, []).append(offset)

    def place_of(self, identity: bytes) -> int | None:
        """The offset of the first record with this identity."""
        return self._places.get(identity)

    # -- the rule

    def is_aborted(self, record: KeyedRecord) -> bool:
        return record.producer_id != NO_PRODUCER_ID and self.fates.get(record.producer_id) is False

    def newest(self, key: bytes, below: int) -> int | None:
        """The offset of the newest record of a key below an offset."""
        offsets = self._offsets.get(key, [])
        for offset in reversed(offsets[: bisect_left(offsets, below)]):
            if not self.is_aborted(self.records[offset]):
                return offset
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
        return offset < self.end if record is None else not self.stays(record, self.point)

    # -- what a copy has

    def first_lack(self, truth: Iterable[BatchHeader], view: View, upto: int) -> int | None:
        """The first offset from `view.agreed` on of what a copy lacks, or has otherwise, and no compaction explains.
        `truth`: the committed batches from there on."""
        own = view.from_offset(view.agreed)
        batch = next(own, None)
        for header in truth:
            if header.next_offset > upto:
                break
            while batch is not None and batch.next_offset <= header.base_offset:
                batch = next(own, None)
            if batch is None or batch.base_offset > header.base_offset:
                return header.base_offset
            if not is_same(header, batch) and (wrong := self._first_wrong(header, batch, view)) is not None:
                return wrong
            view.agreed = header.next_offset
        return None

    def _first_wrong(self, header: BatchHeader, batch: BatchHeader, view: View) -> int | None:
        """Of a batch that is not as it was committed."""
        if header.has_gaps:
            return None  # what it was before nobody has seen
        is_covered = header.next_offset <= batch.next_offset <= self.point.clean_to
        if not batch.has_gaps or not is_covered or batch.partition_leader_epoch != header.partition_leader_epoch:
            return header.base_offset
        if batch.record_count and _place(batch) != _place(header):
            return header.base_offset
        own = self._read(batch, view)
        if own is None:
            return None
        for offset in range(header.base_offset, header.next_offset):
            mine, committed = own.get(offset), self.records.get(offset)
            if mine is None and committed is not None and self.stays(committed, self.point):
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
            return self._reader.read(batch, view.content(batch.base_offset))
        except CorruptMessage:
            return None

    def records_of(self, view: View, start: int, upto: int) -> dict[int, KeyedRecord]:
        """The records of a copy from `start` to `upto`."""
        found: dict[int, KeyedRecord] = {}
        for batch in view.from_offset(start):
            if batch.base_offset >= upto:
                break
            found |= self._read(batch, view) or {}
        return {offset: record for offset, record in found.items() if start <= offset < upto}

    def first_wrong(self, view: View, start: int, upto: int) -> Wrong | None:
        """What a copy has below the point that it has begun, and must not, at any time."""
        own = self.records_of(view, start, upto)
        for offset, record in own.items():
            if self.records.get(offset, record) != record:
                return Wrong("K2", f"the record at {offset} is {record}, committed was {self.records[offset]}")
        for offset, record in self.records.items():
            if start <= offset < upto and offset not in own and self.stays(record, self.point):
                return Wrong("K1", f"the record at {offset} is gone, and {self.point} keeps it: {record}")
        return self._first_unveiled(own, start, upto) or self._first_unmarked(view, own, start, upto)

    def _first_unveiled(self, own: Mapping[int, KeyedRecord], start: int, upto: int) -> Wrong | None:
        """A record whose deletion is gone before it."""
        for offset, record in own.items():
            if record.key is None or self.is_aborted(record):
                continue
            newest = self.newest(record.key, self.point.clean_to)
            if newest is not None and offset < newest < upto and newest not in own:
                return Wrong("K3", f"the record at {offset} is the newest of {record.key!r}, {newest} was, and is gone")
        return None

    def _first_unmarked(self, view: View, own: Mapping[int, KeyedRecord], start: int, upto: int) -> Wrong | None:
        """A record whose transaction has no marker any more."""
        left = {batch.base_offset for batch in view.from_offset(start) if batch.is_control}
        for offset, ended in self.markers.items():
            if not start <= offset < upto or offset in left:
                continue
            if offset >= self.point.deletes_before:
                return Wrong("K4", f"the markers at {offset} are gone, and {self.point} keeps them")
            for record in own.values():
                if record.offset < offset and record.producer_id in ended:
                    return Wrong("K4", f"the markers at {offset} are gone, the record at {record.offset} is left")
        return None

    def first_not_done(self, view: View, start: int, point: JudgedPoint) -> Wrong | None:
        """What a copy that has carried out a point has otherwise than the rule says."""
        own = self.records_of(view, start, point.clean_to)
        for offset, record in self.records.items():
            if not start <= offset < point.clean_to or self._is_open(record):
                continue
            if (offset in own) != (stays := self.stays(record, point)):
                text = "is gone, and stays" if stays else "is there, and goes"
                return Wrong("K5", f"the record at {offset} {text}, where {point} is carried out: {record}")
        return None

    def _is_open(self, record: KeyedRecord) -> bool:
        return record.producer_id != NO_PRODUCER_ID and record.producer_id not in self.fates


def _place(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.base_offset,
        header.last_offset_delta,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
