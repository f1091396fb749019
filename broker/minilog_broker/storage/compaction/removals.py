"""The search for the records of stored batches that go, by a table of newest offsets. Pure.

From the batches below the end of the table these go:

    a record of an aborted transaction
    a record whose key has a newer record in the table
    a deletion with an offset below `deletes_before`, also if it is the newest record of its key
    the markers of a transaction, if they are below `deletes_before` and no record of its producers is left

Everything else stays: also records without a key, and all records from the end of the table on. Each look-up
sorts all keys of the table. So the search looks up the keys of many batches at once. These keys have at
least as many bytes as the table, and at least `least_lookup_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from minilog import compute as pc
from minilog.record_batch.header import BatchHeader, Buffer
from minilog_broker.storage.compaction.key_reader import KeyedRecords, KeyReader
from minilog_broker.storage.compaction.newest_offsets import NewestOffsets
from minilog_broker.storage.compaction.stored_batches import Order, StoredBatch, are_joinable, check_batch, is_gap
from minilog_broker.storage.markers import Marker, read_markers

Removals: TypeAlias = dict[int, pa.BooleanArray | None]
"""The batches that change, by base offset. The value says which of the batch's records stay (never null). It is None if
the batch becomes a gap batch, or if it is a gap batch and joins another one."""

LEAST_LOOKUP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Undecided:
    """A batch that waits for the look-up. `records` is None if the batch needs none: no record has a key, the batch has
    no record, or `is_kept` is set already."""

    header: BatchHeader
    records: KeyedRecords | None = None
    is_kept: pa.BooleanArray | None = None
    markers: tuple[Marker, ...] = ()

    @property
    def nbytes(self) -> int:
        return 0 if self.records is None else int(self.records.keys.nbytes + self.records.offsets.nbytes)


class RemovalSearch:
    """The search of one pass. The caller gives it the batches of the log from the log start on, in any number of parts.

    Gap batches join only within a part. The answer to a part takes a bit for each record of a batch that changes, and
    some hundred bytes for each such batch."""

    def __init__(
        self,
        reader: KeyReader,
        newest: NewestOffsets,
        aborted_producer_ids: AbstractSet[int],
        deletes_before: int,
        *,
        log_start_offset: int,
        least_lookup_bytes: int = LEAST_LOOKUP_BYTES,
    ) -> None:
        self._reader = reader
        self._newest = newest
        self._aborted_producer_ids = aborted_producer_ids
        self._deletes_before = deletes_before
        self._order = Order(log_start_offset)
        self._producers_left = set[int]()  # producers with records that stay, whose marker is still to come
        self._lookup_bytes = max(newest.nbytes, least_lookup_bytes)

    def search(self, batches: Iterable[StoredBatch]) -> Removals:
        """The removals among the next batches. Empty if nothing changes.

        Raises CorruptMessage, ResourceExhausted, UnknownSchemaVersion, UnsupportedVersion."""
        changes = _Changes()
        undecided, waiting_bytes = list[_Undecided](), 0
        for header, batch in batches:
            self._order.follow(header)
            if header.base_offset >= self._newest.end_offset:
                continue
            undecided.append(self._read(header, batch))
            waiting_bytes += undecided[-1].nbytes
            if waiting_bytes >= self._lookup_bytes:
                self._decide(undecided, changes)
                undecided, waiting_bytes = [], 0
        self._decide(undecided, changes)
        return changes.removals

    def _read(self, header: BatchHeader, batch: Buffer) -> _Undecided:
        if header.is_control:
            check_batch(self._reader.key, header, batch)
            return _Undecided(header, markers=read_markers(batch, header))
        if is_gap(header) or header.is_aborted(self._aborted_producer_ids):
            return _Undecided(header)
        if header.base_offset in self._newest.plain_batches:
            return _Undecided(header, is_kept=self._newest.are_newest(header))
        finds_deletions = header.base_offset < self._deletes_before
        return _Undecided(header, self._reader.read(header, batch, finds_deletions=finds_deletions))

    def _decide(self, undecided: list[_Undecided], changes: _Changes) -> None:
        """Decide in the order of offsets, because a marker depends on the decisions below it."""
        are_kept = iter(self._are_kept([entry.records for entry in undecided if entry.records is not None]))
        for entry in undecided:
            header = entry.header
            if header.is_control:
                changes.add(header, is_gone=self._is_marker_gone(entry))
                continue
            is_kept = entry.is_kept if entry.records is None else next(are_kept)
            is_gone = self._is_batch_gone(header, is_kept)
            if header.is_transactional and not is_gone:
                self._producers_left.add(header.producer_id)
            changes.add(header, is_kept, is_gone=is_gone)

    def _is_batch_gone(self, header: BatchHeader, is_kept: pa.BooleanArray | None) -> bool:
        """Whether a gap batch takes the place of the batch.

        A gap batch of a transaction counts as gone: its replacement names no producer, and so needs no marker."""
        if is_gap(header):
            return header.is_transactional
        if header.is_aborted(self._aborted_producer_ids):
            return True
        return is_kept is not None and not is_kept.true_count

    def _is_marker_gone(self, entry: _Undecided) -> bool:
        """Whether the control batch goes. A control batch of another kind has no markers, and stays."""
        ended = {marker.producer_id for marker in entry.markers}
        has_records = not self._producers_left.isdisjoint(ended)
        self._producers_left -= ended
        return bool(ended) and not has_records and entry.header.last_offset < self._deletes_before

    def _are_kept(self, records: list[KeyedRecords]) -> list[pa.BooleanArray]:
        """For each batch, which of its records stay."""
        if not records:
            return []
        keys = pa.concat_arrays([batch.keys for batch in records])
        superseded = self._newest.are_superseded(keys, pa.concat_arrays([batch.offsets for batch in records]))
        stay = pc.invert(superseded)
        start, are_kept = 0, []
        for batch in records:
            is_kept = stay.slice(start, len(batch.keys))
            if batch.deletions is not None:
                is_expired = pc.and_(batch.deletions, pc.less(batch.offsets, self._deletes_before))
                is_kept = pc.and_not(is_kept, pc.and_(is_expired, batch.keys.is_valid()))
            are_kept.append(is_kept)
            start += len(batch.keys)
        return are_kept


class _Changes:
    """Gathers the batches of a part that change. They come in the order of offsets, as adjacent gap batches join."""

    def __init__(self) -> None:
        self.removals: Removals = {}
        self._first_gap: BatchHeader | None = None

    def add(self, header: BatchHeader, is_kept: pa.BooleanArray | None = None, *, is_gone: bool) -> None:
        """Take in the next batch. `is_kept` is None if no single record of it can go."""
        if is_gone:
            self.removals[header.base_offset] = None
        elif is_kept is not None and is_kept.false_count:
            self.removals[header.base_offset] = is_kept
        if not is_gone and not is_gap(header):
            self._first_gap = None
        elif self._first_gap is not None and are_joinable(self._first_gap, header):
            self.removals[self._first_gap.base_offset] = self.removals[header.base_offset] = None
        else:
            self._first_gap = header
