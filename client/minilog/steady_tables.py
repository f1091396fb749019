"""Tables of values that others choose, at a cost in proportion to their bytes, whatever the values are. Pure.

Arrow's hash tables (`dictionary_encode`, `unique`, `is_in`, `index_in`, `group_by`) use hash functions without a
secret. Whoever knows them writes thousands of values of one hash, and then each look-up goes through all of them. So
nothing here gives such a table more than `PIECE` values. Larger tables are sorted: a sort compares each value about
log2(n) times, whatever it is. Integers, times and floats need no care: Arrow's tables tell two of them apart within
a dozen steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from minilog import compute as pc

PIECE = 2_048
"""The most values of one hash table of Arrow's. If all of them have one hash, a value costs 4 microseconds."""
_FEW = 64  # so few constants are in Arrow's table, whatever they are: a look-up costs at most 100 ns


class Sorted(NamedTuple):
    """Values in their order. Equal values stay in the order that they came in."""

    order: pa.UInt64Array
    """The indices of the values, in their order."""
    are_first: pa.BooleanArray
    """Which of these is the first of its equals. Each null is the first, and nulls are at the end."""

    def last_of_equals(self) -> pa.UInt64Array:
        """The index of the last of each group of equal values."""
        count = len(self.order)
        if not count:
            return self.order
        return self.order.filter(pa.concat_arrays([self.are_first.slice(1, count - 1), pa.array([True])]))

    def spread(self, firsts: pa.Int64Array) -> pa.Int64Array:
        """For each value, in the order that they came in, what `firsts` has for the first of its equals. `firsts` has a
        number for each value, and no null."""
        of_firsts = pc.if_else(self.are_first, firsts.take(self.order), pa.scalar(None, firsts.type))
        return pc.fill_null_forward(of_firsts).take(pc.array_sort_indices(self.order))


def sort(values: pa.Array) -> Sorted:
    """Sort values of any type that Arrow sorts."""
    order, count = pc.array_sort_indices(values), len(values)
    if not count:
        return Sorted(order, pa.array([], pa.bool_()))
    ascending = values.take(order)
    differ = pc.not_equal(ascending.slice(1), ascending.slice(0, count - 1))
    return Sorted(order, pa.concat_arrays([pa.array([True]), differ.fill_null(True)]))


def encode(values: pa.Array) -> tuple[pa.Int64Array, list[Any]]:
    """For each value its place in the list of the different ones, and that list. The place of a null is null.

    Pieces of the values have tables of Arrow's, and a `dict` joins these. Its hashes of str and bytes have a secret."""
    places, codes = dict[Any, int](), [pa.array([], pa.int64())]
    for start in range(0, len(values), PIECE):
        piece = values.slice(start, PIECE).dictionary_encode()
        of_piece = [places.setdefault(value, len(places)) for value in piece.dictionary.to_pylist()]
        codes.append(pa.array(of_piece, pa.int64()).take(piece.indices))
    return pa.concat_arrays(codes), list(places)


def are_in(values: pa.Array, constants: pa.Array) -> pa.BooleanArray:
    """Whether each value is one of the constants, which have its type, and are no nulls. False for a null."""
    if len(constants) <= _FEW or _has_numbers(constants.type):
        return pc.is_in(values, value_set=constants)
    is_constant = pa.repeat(pa.scalar(1, pa.int64()), len(constants))
    is_value = pa.repeat(pa.scalar(0, pa.int64()), len(values))
    found = sort(pa.concat_arrays([constants, values])).spread(pa.concat_arrays([is_constant, is_value]))
    return pc.equal(found.slice(len(constants)), 1)


def _has_numbers(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind))
