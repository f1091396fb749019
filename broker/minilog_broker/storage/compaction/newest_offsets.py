"""The newest offset of each key in a range of a log. A pass of a cleaning decides by this table. Pure.

The keys of many batches are sorted at once (minilog/steady_tables.py), and the last offset of each stays. The table
and the keys that wait for a grouping have at most `buffer_bytes` together (`log.cleaner.dedupe.buffer.size`), plus
the keys of one batch. A table that takes three quarters of the buffer is full. So each grouping takes in at least a
quarter of the buffer, and its cost is in proportion to that.

Only records with a key are in the table. Records of an aborted transaction are not. A batch is *plain* if no record is
missing, each record has a key, and no record is a deletion. A record of a plain batch of the range is the newest of its
key if and only if its offset is in the table. So the search for removals does not read the keys of such a batch again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pyarrow as pa

from minilog import compute as pc
from minilog.newest_by_key import FULL_AT, MAX_BYTES, NewestByKey
from minilog.record_batch.header import BatchHeader, Buffer
from minilog.steady_tables import sort
from minilog_broker.storage.compaction.key_reader import KeyReader
from minilog_broker.storage.compaction.stored_batches import Order, is_gap

MAX_BUFFER_BYTES = MAX_BYTES
"""The most that is used of a larger buffer."""


@dataclass(frozen=True, slots=True)
class NewestOffsets:
    """The table of a range that ends at `end_offset`: each key, and the offset of its newest record in the range."""

    end_offset: int
    keys: pa.BinaryArray
    offsets: pa.Int64Array
    """The newest offset of each key, ascending."""
    plain_batches: AbstractSet[int]
    """The base offsets of the plain batches."""

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.offsets.nbytes)

    def are_superseded(self, keys: pa.BinaryArray, offsets: pa.Int64Array) -> pa.BooleanArray:
        """For each record, whether a newer record has its key. Never null. A record without a key is not superseded."""
        in_table = pa.concat_arrays([self.offsets, pa.repeat(pa.scalar(-1, pa.int64()), len(keys))])
        newest = sort(pa.concat_arrays([self.keys, keys])).spread(in_table).slice(len(self.keys))
        return pc.greater(newest, offsets)

    def are_newest(self, header: BatchHeader) -> pa.BooleanArray:
        """For each record of a plain batch, whether it is the newest one of its key."""
        ascending = memoryview(self.offsets.buffers()[1]).cast("q")
        start = bisect_left(ascending, header.base_offset, 0, len(self.offsets))
        end = bisect_left(ascending, header.next_offset, start, len(self.offsets))
        records = pc.arange(header.base_offset, header.next_offset)
        return pc.is_in(records, value_set=self.offsets.slice(start, end - start))


class NewestOffsetsBuilder:
    """Builds the table of the batches from the one with `start_offset` on. The caller adds batches until they end or
    the table is full."""

    def __init__(
        self, reader: KeyReader, start_offset: int, aborted_producer_ids: AbstractSet[int], buffer_bytes: int
    ) -> None:
        self._reader = reader
        self._order = Order(start_offset)
        self._aborted_producer_ids = aborted_producer_ids
        self._buffer_bytes = min(buffer_bytes, MAX_BUFFER_BYTES)
        self._newest = NewestByKey(pa.binary())
        self._plain_batches = set[int]()

    @property
    def is_full(self) -> bool:
        """Whether the table is full: then the rest of the batches is for another pass. Never full before a batch was
        added."""
        has_room = self._newest.table_bytes < self._buffer_bytes * FULL_AT
        return len(self._newest) > 0 and not self._newest.waiting_bytes and not has_room

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        """Take in the next batch. Raises the errors of KeyReader.read, and CorruptMessage if it is not the next one."""
        self._order.follow(header)
        if header.is_control or is_gap(header) or header.is_aborted(self._aborted_producer_ids):
            return
        records = self._reader.read(header, batch)
        if records is None:
            return
        keys, offsets = records.keys, records.offsets
        if keys.null_count:
            keys, offsets = (column.filter(records.keys.is_valid()) for column in (keys, offsets))
        elif not records.has_deletions and not header.has_gaps:
            self._plain_batches.add(header.base_offset)
        self._newest.add(keys, offsets)
        if self._newest.nbytes > self._buffer_bytes:
            self._newest.group()

    def build(self) -> NewestOffsets:
        """The table of all batches that were added."""
        self._newest.group()
        keys, offsets = self._newest.keys, self._newest.numbers
        places = pc.array_sort_indices(offsets)
        return NewestOffsets(
            self._order.next_offset, keys.take(places), offsets.take(places), frozenset(self._plain_batches)
        )
