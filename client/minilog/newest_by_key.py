"""A table of keys, each with its highest number: for numbers that are offsets, the newest record of each key. Pure.

Compaction decides by it which records stay (storage/compaction), and a reader which rows are the newest ones
(scanning/newest_rows.py). Keys are sorted, many batches at once (steady_tables.py), and the owner of a table says when.
So the owner bounds the bytes of the table together with the bytes that wait.
"""

from __future__ import annotations

import pyarrow as pa

from minilog.steady_tables import sort

MAX_BYTES = 1 << 30
"""The most that an owner may let a table grow to. An Arrow column has at most 2 GiB of keys; a grouping may double
them."""
FULL_AT = 0.75
"""A table that takes this part of its owner's bytes is full. So each grouping takes in at least the rest, and its cost
is in proportion to that."""


class NewestByKey:
    """The table of keys of one type, which `key_type` names."""

    def __init__(self, key_type: pa.DataType) -> None:
        self.keys: pa.Array = pa.array([], key_type)
        """Of the table."""
        self.numbers: pa.Int64Array = pa.array([], pa.int64())
        """Of the keys of the table."""
        self._waiting_keys: list[pa.Array] = []
        self._waiting_numbers: list[pa.Int64Array] = []
        self.table_bytes = self.waiting_bytes = 0

    @property
    def nbytes(self) -> int:
        """Of the table, and of what waits."""
        return self.table_bytes + self.waiting_bytes

    def __len__(self) -> int:
        """How many keys the table has, without those that wait."""
        return len(self.keys)

    def add(self, keys: pa.Array, numbers: pa.Int64Array) -> None:
        """Take in more keys, none of them null. Of one key the numbers ascend, from call to call, too. They wait for
        the next grouping, and keep their memory until then."""
        self._waiting_keys.append(keys)
        self._waiting_numbers.append(numbers)
        self.waiting_bytes += keys.nbytes + numbers.nbytes

    def group(self) -> None:
        """Put what waits into the table."""
        if not self._waiting_keys:
            return
        keys = pa.concat_arrays([self.keys, *self._waiting_keys])
        numbers = pa.concat_arrays([self.numbers, *self._waiting_numbers])
        self._waiting_keys, self._waiting_numbers, self.waiting_bytes = [], [], 0
        newest = sort(keys).last_of_equals()
        self._set(keys.take(newest), numbers.take(newest))

    def keep(self, is_kept: pa.BooleanArray) -> None:
        """Leave out the other keys of the table. Nothing waits."""
        self._set(self.keys.filter(is_kept), self.numbers.filter(is_kept))

    def _set(self, keys: pa.Array, numbers: pa.Int64Array) -> None:
        self.keys, self.numbers, self.table_bytes = keys, numbers, int(keys.nbytes + numbers.nbytes)
