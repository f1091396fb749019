"""A table of keys, each with its highest number: for numbers that are offsets, the newest record of each key. Pure.

Compaction decides by it which records stay (storage/compaction), and a reader which rows are the newest ones
(scanning/newest_rows.py). Arrow groups many batches at once, and the owner of a table says when. So the owner bounds
the bytes of the table together with the bytes that wait.
"""

from __future__ import annotations

import pyarrow as pa

MAX_BYTES = 1 << 30
"""The most that an owner may let a table grow to. An Arrow column has at most 2 GiB of keys; a grouping may double
them."""
FULL_AT = 0.75
"""A table that takes this part of its owner's bytes is full. So each grouping takes in at least the rest, and its cost
is in proportion to that."""


class NewestByKey:
    """The table of keys of one type, which `key_type` names."""

    def __init__(self, key_type: pa.DataType) -> None:
        self._table = _table(pa.array([], key_type), pa.array([], pa.int64()))
        self._keys: list[pa.Array] = []
        self._numbers: list[pa.Int64Array] = []
        self.table_bytes = self.waiting_bytes = 0

    @property
    def nbytes(self) -> int:
        """Of the table, and of what waits."""
        return self.table_bytes + self.waiting_bytes

    def __len__(self) -> int:
        """How many keys the table has, without those that wait."""
        return int(self._table.num_rows)

    def add(self, keys: pa.Array, numbers: pa.Int64Array) -> None:
        """Take in more keys, none of them null. They wait for the next grouping, and keep their memory until then."""
        self._keys.append(keys)
        self._numbers.append(numbers)
        self.waiting_bytes += keys.nbytes + numbers.nbytes

    def group(self) -> None:
        """Put what waits into the table."""
        if not self._keys:
            return
        waiting = _table(pa.chunked_array(self._keys), pa.chunked_array(self._numbers))
        together = pa.concat_tables([self._table, waiting])
        grouped = together.group_by("key", use_threads=False).aggregate([("number", "max")])
        self._set(_table(grouped.column("key"), grouped.column("number_max")))
        self._keys, self._numbers, self.waiting_bytes = [], [], 0

    def keep(self, is_kept: pa.BooleanArray) -> None:
        """Leave out the other keys of the table. Nothing waits."""
        self._set(self._table.filter(is_kept))

    @property
    def keys(self) -> pa.Array:
        """Of the table."""
        return _joined(self._table.column("key"))

    @property
    def numbers(self) -> pa.Int64Array:
        """Of the keys of the table."""
        return _joined(self._table.column("number"))

    def _set(self, table: pa.Table) -> None:
        self._table, self.table_bytes = table, int(table.nbytes)


def _table(keys: pa.Array, numbers: pa.Array) -> pa.Table:
    return pa.table({"key": keys, "number": numbers})


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
