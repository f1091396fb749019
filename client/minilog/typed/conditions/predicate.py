"""What a `where` becomes once it is bound to a schema: conditions on columns, by field id. Pure.

SQL has three truth values. `evaluate` gives one for each row, in Arrow (null: unknown): a reader keeps the rows that
are true. `outcomes` tells from statistics which of the three are possible for the rows of a batch: where true is not
among them, nobody needs the batch. Both follow the same few conditions, so that `not` and `or` are right by themselves.

Values are compared as Spark compares them: text by its UTF-8 bytes, NaN equal to itself and above all other numbers,
-0.0 equal to 0.0. What is compared has the column's own type: where.py has made it so, without a loss.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa

from minilog import compute as pc
from minilog.steady_tables import are_in

TRUE, FALSE, UNKNOWN = 1, 2, 4  # outcomes are sums of these


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Of one column in one batch: nulls and rows, and bounds of what is not null (None where nothing is).

    A lowest or highest value may be below or above all that are there, never the other way round."""

    row_count: int
    null_count: int
    lowest: Any = None
    highest: Any = None


@dataclass(frozen=True, slots=True)
class Constant:
    """The same for every row; None: unknown."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Known:
    """`value` where the column is not null, unknown where it is: what no value of the column's type can change."""

    field_id: int
    value: bool


@dataclass(frozen=True, slots=True)
class Equal:
    """column = value; an Arrow scalar of the column's type."""

    field_id: int
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class OneOf:
    """column in (values). `values` are as `plain_value` has them, ascending, each once; `array` has them for Arrow."""

    field_id: int
    values: tuple[Any, ...]
    array: pa.Array = field(compare=False, repr=False)

    @classmethod
    def of(cls, field_id: int, values: Iterable[Any], kind: pa.DataType) -> OneOf:
        """Of plain values in any order. Raises pyarrow's errors where one of them is none of this type."""
        once = {in_order(value): value for value in values}
        return cls.ascending(field_id, [once[order] for order in sorted(once)], kind)

    @classmethod
    def ascending(cls, field_id: int, values: Sequence[Any], kind: pa.DataType) -> OneOf:
        """Of plain values that are ascending, each once."""
        zeros = [-0.0, 0.0] if pa.types.is_floating(kind) and 0.0 in values else []  # two in Arrow's table of values
        return cls(field_id, tuple(values), array_of_plain([*values, *zeros], kind))


@dataclass(frozen=True, slots=True)
class Less:
    """column < value, or with `or_equal` column <= value."""

    field_id: int
    value: pa.Scalar
    or_equal: bool


@dataclass(frozen=True, slots=True)
class StartsWith:
    """column LIKE 'prefix%', of text."""

    field_id: int
    prefix: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """Never unknown."""

    field_id: int


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Constant | Known | Equal | OneOf | Less | StartsWith | IsNull | Not | And | Or


def either(parts: Sequence[Predicate]) -> Predicate:
    """At least one of the parts. What compares a column with several values becomes one set of them."""
    values: dict[int, list[pa.Scalar]] = {}
    for part in parts:
        if isinstance(part, Equal):
            values.setdefault(part.field_id, []).append(part.value)
    sets = {
        field_id: OneOf.of(field_id, map(plain_value, field_values), field_values[0].type)
        for field_id, field_values in values.items()
        if len(field_values) > 1
    }
    others = [part for part in parts if not (isinstance(part, Equal) and part.field_id in sets)]
    joined = (*sets.values(), *others)
    return joined[0] if len(joined) == 1 else Or(joined)


def field_ids(predicate: Predicate) -> frozenset[int]:
    """The columns that are looked at."""
    match predicate:
        case Constant():
            return frozenset()
        case Not(part):
            return field_ids(part)
        case And(parts) | Or(parts):
            return frozenset[int]().union(*map(field_ids, parts))
        case _:
            return frozenset((predicate.field_id,))


def size_of(predicate: Predicate) -> int:
    """Of how many conditions it is made, itself included. A set of values counts as one: it is searched, not gone
    through."""
    match predicate:
        case Not(part):
            return 1 + size_of(part)
        case And(parts) | Or(parts):
            return 1 + sum(map(size_of, parts))
        case _:
            return 1


def evaluate(predicate: Predicate, column: Callable[[int], pa.Array], row_count: int) -> pa.BooleanArray:
    """True, false or null for each row. `column` gives the values of a field by its id."""
    match predicate:
        case Constant(value):
            return pa.nulls(row_count, pa.bool_()) if value is None else pa.repeat(pa.scalar(value), row_count)
        case Known(field_id, value):
            return pc.if_else(column(field_id).is_valid(), value, pa.scalar(None, pa.bool_()))
        case Equal(field_id, value):
            return pc.equal(column(field_id), value)
        case OneOf(field_id, _, array):
            values = column(field_id)
            matches = are_in(values if values.type == array.type else values.cast(array.type), array)
            return pc.if_else(values.is_valid(), matches, pa.scalar(None, pa.bool_()))
        case Less(field_id, value, or_equal):
            return (pc.less_equal if or_equal else pc.less)(column(field_id), value)
        case StartsWith(field_id, prefix):
            return pc.starts_with(column(field_id), prefix)
        case IsNull(field_id):
            return column(field_id).is_null()
        case Not(part):
            return pc.invert(evaluate(part, column, row_count))
        case And(parts):
            return reduce(pc.and_kleene, (evaluate(part, column, row_count) for part in parts))
        case Or(parts):
            return reduce(pc.or_kleene, (evaluate(part, column, row_count) for part in parts))


def outcomes(predicate: Predicate, statistics: Callable[[int], ColumnStatistics | None]) -> int:
    """Which truth values rows may have, as far as is known; `statistics` gives None for a column without any."""
    match predicate:
        case Constant(value):
            return UNKNOWN if value is None else TRUE if value else FALSE
        case Not(part):
            return _swapped(outcomes(part, statistics))
        case And(parts):
            return reduce(_both, (outcomes(part, statistics) for part in parts))
        case Or(parts):
            swapped = (_swapped(outcomes(part, statistics)) for part in parts)
            return _swapped(reduce(_both, swapped))
        case _:
            column = statistics(predicate.field_id)
            return TRUE | FALSE | UNKNOWN if column is None else _of_column(predicate, column)


def _swapped(outcome: int) -> int:
    return outcome & UNKNOWN | (TRUE if outcome & FALSE else 0) | (FALSE if outcome & TRUE else 0)


def _both(left: int, right: int) -> int:
    """What `and` of two may be: false where either is, true where both are, else unknown."""
    result = (left | right) & FALSE | left & right & TRUE
    may_both = left & (TRUE | UNKNOWN) and right & (TRUE | UNKNOWN)
    return result | ((left | right) & UNKNOWN if may_both else 0)


def _of_column(predicate: Known | Equal | OneOf | Less | StartsWith | IsNull, column: ColumnStatistics) -> int:
    nulls, values = column.null_count > 0, column.null_count < column.row_count
    if isinstance(predicate, IsNull):
        return (TRUE if nulls else 0) | (FALSE if values else 0)
    return (_of_values(predicate, column) if values else 0) | (UNKNOWN if nulls else 0)


def _of_values(predicate: Known | Equal | OneOf | Less | StartsWith, column: ColumnStatistics) -> int:
    if isinstance(predicate, Known):
        return TRUE if predicate.value else FALSE
    if column.lowest is None or column.highest is None:
        return TRUE | FALSE
    low, high = in_order(column.lowest), in_order(column.highest)
    match predicate:
        case Equal(_, value):
            at = in_order(plain_value(value))
            true, false = low <= at <= high, not low == at == high
        case OneOf(_, values):
            place = bisect_left(values, low, key=in_order)
            true = place < len(values) and in_order(values[place]) <= high
            false = not (true and low == high)
        case Less(_, value, or_equal):
            at = in_order(plain_value(value))
            true, false = (low <= at, high > at) if or_equal else (low < at, high >= at)
        case StartsWith(_, prefix):
            length = len(prefix)
            true, false = low[:length] <= prefix <= high[:length], not low[:length] == prefix == high[:length]
    return (TRUE if true else 0) | (FALSE if false else 0)


def plain_value(scalar: pa.Scalar) -> Any:
    """A value as statistics have it: days or microseconds as a number, all else as Python has it."""
    kind = scalar.type
    return scalar.value if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else scalar.as_py()


def array_of_plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Plain values as Arrow has them. Raises pyarrow's errors, OverflowError or ValueError for others."""
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.array(values, kind)


def in_order(value: Any) -> Any:
    """What sorts as Spark does: NaN above all other numbers."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value
