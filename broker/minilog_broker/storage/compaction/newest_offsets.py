"""The newest offset of each key in a range of a log. A pass of a cleaning decides by this table. Pure.

Arrow groups the keys of many batches at once, and finds the highest offset of each group. The table and the keys that
wait for a grouping have at most `buffer_bytes` together (`log.cleaner.dedupe.buffer.size`), plus the keys of one batch.
A table that takes three quarters of the buffer is full. So each grouping takes in at least a quarter of the buffer, and
its cost is in proportion to that.

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
from minilog.record_batch.header import BatchHeader, Buffer
from minilog_broker.storage.compaction.key_reader import KeyReader
from minilog_broker.storage.compaction.stored_batches import Order, is_gap

MAX_BUFFER_BYTES = 1 << 30
"""The most that is used of a larger buffer. An Arrow column has at most 2 GiB of keys; a grouping may double them."""
_FULL_AT = 0.75


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
        places = pc.index_in(keys, value_set=self.keys, skip_nulls=True)
        return pc.fill_null(pc.greater(self.offsets.take(places), offsets), False)

    def are_newest(self, header: BatchHeader) -> pa.BooleanArray:
        """For each record of a plain batch, whether it is the newest one of its key."""
        ascending = memoryview(self.offsets.buffers()[1]).cast("q")
        start = bisect_left(ascending, header.base_offset, 0, len(self.offsets))
        end = bisect_left(ascending, header.next_offset, start, len(self.offsets))
        records = pa.arange(header.base_offset, header.next_offset)
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
        self._table = _table(pa.array([], pa.binary()), pa.array([], pa.int64()))
        self._keys: list[pa.BinaryArray] = []
        self._offsets: list[pa.Int64Array] = []
        self._table_bytes = self._waiting_bytes = 0
        self._plain_batches = set[int]()

    @property
    def is_full(self) -> bool:
        """Whether the table is full: then the rest of the batches is for another pass. Never full before a batch was
        added."""
        has_room = self._table_bytes < self._buffer_bytes * _FULL_AT
        return self._table.num_rows > 0 and not self._keys and not has_room

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
        self._keys.append(keys)
        self._offsets.append(offsets)
        self._waiting_bytes += keys.nbytes + offsets.nbytes
        if self._table_bytes + self._waiting_bytes > self._buffer_bytes:
            self._group()

    def build(self) -> NewestOffsets:
        """The table of all batches that were added."""
        self._group()
        keys, offsets = (_joined(self._table.column(name)) for name in ("key", "offset"))
        places = pc.array_sort_indices(offsets)
        return NewestOffsets(
            self._order.next_offset, keys.take(places), offsets.take(places), frozenset(self._plain_batches)
        )

    def _group(self) -> None:
        if not self._keys:
            return
        waiting = _table(pa.chunked_array(self._keys), pa.chunked_array(self._offsets))
        grouped = (
            pa.concat_tables([self._table, waiting]).group_by("key", use_threads=False).aggregate([("offset", "max")])
        )
        self._table = _table(grouped.column("key"), grouped.column("offset_max"))
        self._table_bytes = int(self._table.nbytes)
        self._keys, self._offsets, self._waiting_bytes = [], [], 0


def _table(keys: pa.Array, offsets: pa.Array) -> pa.Table:
    return pa.table({"key": keys, "offset": offsets})


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
