"""The newest row of each key: which rows of a range are in its table. Pure.

A read looks at the keys of all rows first, and then at the rows of the table:

    KeyPass        the newest offset of each key, of the keys that the memory holds
    ChosenOffsets  which of the rows that come are in the table, and whether one of them is gone

If the keys do not fit into the memory, a pass keeps the lower ones of them, and the next pass begins at `next_key`. A
pass ends with a table of at least a third of its memory, whatever the keys are. So the number of passes is in
proportion to the bytes of all keys. Keys are compared, and not hashed: Arrow has no hash
function with a secret (steady_tables.py).

A deletion is a row like any other until the newest row of each key is known. Then the table has no row of its key.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import pyarrow as pa

from minilog import compute as pc
from minilog.newest_by_key import FULL_AT, NewestByKey

_SAMPLE = 1_024  # the keys whose median halves a table


@dataclass(slots=True)
class KeyCounts:
    """What a read of keys came upon. `keyless` are the rows without a key, which no table has."""

    keys: int = 0
    deletions: int = 0
    keyless: int = 0


class KeyPass:
    """One pass over the keys of some partitions: of the keys from `first_key` on (None: all), as many as fit into
    `memory_bytes`. The same key in two partitions is two keys."""

    def __init__(self, key_type: pa.DataType, memory_bytes: int, first_key: pa.Scalar | None = None) -> None:
        self._key_type = key_type
        self._memory_bytes = memory_bytes
        self._first_key = first_key
        self._tables: dict[int, NewestByKey] = {}
        self.keyless = 0
        self.next_key: pa.Scalar | None = None
        """The key where the next pass begins, None where this pass has all keys that are left. It may become lower
        until the last row was added."""

    def add(
        self, partition: int, keys: pa.Array, offsets: pa.Int64Array, deletions: pa.BooleanArray | None = None
    ) -> None:
        """Take in some rows of a partition. `deletions` says which rows delete their key (never null)."""
        self.keyless += keys.null_count
        numbers = pc.shift_left(offsets, 1)  # the last bit is 1 for a deletion
        if deletions is not None:
            numbers = pc.bit_wise_or(numbers, deletions.cast(pa.int64()))
        keys, numbers = self._wanted(keys, numbers)
        if not len(keys):
            return
        if partition not in self._tables:
            self._tables[partition] = NewestByKey(self._key_type)
        self._tables[partition].add(keys, numbers)
        if sum(table.nbytes for table in self._tables.values()) > self._memory_bytes:
            self._fit()

    def end(self) -> dict[int, pa.Int64Array]:
        """The number of each key by partition: see `chosen` and `deletion_count`."""
        for table in self._tables.values():
            table.group()
        return {partition: table.numbers for partition, table in self._tables.items()}

    def _wanted(self, keys: pa.Array, numbers: pa.Int64Array) -> tuple[pa.Array, pa.Int64Array]:
        """Those of this pass, as copies: a decoded column may be a view of all that came with it."""
        wanted = keys.is_valid() if keys.null_count else None
        for bound, compare in ((self._first_key, pc.greater_equal), (self.next_key, pc.less)):
            if bound is not None:
                inside = compare(keys, bound)
                wanted = inside if wanted is None else pc.and_(wanted, inside)
        if wanted is None:
            return pa.concat_arrays([keys]), numbers
        return keys.filter(wanted), numbers.filter(wanted)  # null (no key) is not wanted either

    def _fit(self) -> None:
        tables = self._tables.values()
        for table in tables:
            table.group()
        while sum(table.nbytes for table in tables) > self._memory_bytes * FULL_AT:
            largest = max(tables, key=len)
            if len(largest) < 2:
                return  # one key is always there
            self.next_key = _median(largest.keys)
            for table in tables:
                table.keep(pc.less(table.keys, self.next_key))


def _median(keys: pa.Array) -> pa.Scalar:
    """A key in the middle of these different ones, and above the lowest of them."""
    sample = keys.take(pc.arange(0, len(keys), -(-len(keys) // _SAMPLE)))
    return sample[pc.array_sort_indices(sample)[len(sample) // 2].as_py()]


def chosen(numbers: pa.Int64Array) -> pa.Int64Array:
    """The offsets of the newest rows, ascending. `numbers` are of `KeyPass.end`. Keys that are deleted have none."""
    rows = numbers.filter(pc.equal(pc.bit_wise_and(numbers, 1), 0))
    return ascending(pc.shift_right(rows, 1))


def deletion_count(numbers: pa.Int64Array) -> int:
    """How many of the keys are deleted."""
    return int(pc.sum(pc.bit_wise_and(numbers, 1)).as_py() or 0)


def ascending(offsets: pa.Int64Array) -> pa.Int64Array:
    """The same offsets in their order."""
    return offsets.take(pc.array_sort_indices(offsets))


class ChosenOffsets:
    """The offsets of one partition's rows in the table. Rows come in the order of their offsets."""

    def __init__(self, offsets: pa.Int64Array) -> None:
        """`offsets` ascend, and are not empty."""
        self.offsets = offsets
        self._view = memoryview(offsets.buffers()[1]).cast("q")[offsets.offset : offsets.offset + len(offsets)]
        self._seen = 0

    @property
    def first(self) -> int:
        return self._view[0]

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self._view[-1] + 1

    def are_chosen(self, offsets: pa.Int64Array) -> pa.BooleanArray | None:
        """Which of these rows are in the table. None if no row of them is."""
        start, end = self._between(offsets)
        return None if start == end else pc.is_in(offsets, value_set=self.offsets.slice(start, end - start))

    def missing(self, offsets: pa.Int64Array) -> int | None:
        """The lowest offset of the table that is not there, up to these rows, which are the next ones of all rows. None
        if all are there."""
        start, end = self._between(offsets)
        if start > self._seen:
            return self._view[self._seen]
        self._seen = end
        expected = self.offsets.slice(start, end - start)
        is_there = pc.is_in(expected, value_set=offsets)
        return None if is_there.true_count == len(expected) else expected.filter(pc.invert(is_there))[0].as_py()

    def missing_at_end(self) -> int | None:
        """The same behind the last row."""
        return self._view[self._seen] if self._seen < len(self._view) else None

    def _between(self, offsets: pa.Int64Array) -> tuple[int, int]:
        start = bisect_left(self._view, offsets[0].as_py())
        return start, bisect_left(self._view, offsets[-1].as_py() + 1, start)
