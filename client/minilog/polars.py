"""A topic as a lazy frame of polars: its query reads the columns and the rows that it needs. Needs polars.

polars hands its condition over. Each part of it that a `where` can say is pushed down to the replicas, and the rest is
left to polars, which filters once more in any case: a part that is not understood costs bytes, and never a row. Left to
polars are parts whose meaning differs for some value: sets with null, floats of 32 bits, texts of time below a
microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from minilog.errors import InvalidArgument
from minilog.scanning.places import Places
from minilog.scanning.scan import Scan, scan
from minilog.typed.conditions.expressions import Column, Condition, col
from minilog.typed.schema.row_form import DELETED_COLUMN

__all__ = ["scan_minilog"]

_COMPARISONS: dict[str, Callable[[Column, Any], Condition]] = {
    "Eq": Column.__eq__,
    "NotEq": Column.__ne__,
    "Lt": Column.__lt__,
    "LtEq": Column.__le__,
    "Gt": Column.__gt__,
    "GtEq": Column.__ge__,
}
_MIRRORED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}


def scan_minilog(
    topic: str,
    *,
    where: str | Condition | None = None,
    start: Places = None,
    end: Places = None,
    partitions: Iterable[int] | None = None,
    metadata: bool = False,
    deletes: bool = False,
    view: str | None = None,
    config: Mapping[str, object] | None = None,
) -> pl.LazyFrame:
    """A lazy frame of a topic; the arguments are those of `minilog.scan`. Nothing is asked of the cluster before polars
    needs the schema. What is read is fixed then: collected again, the frame gives the same rows."""
    source = scan(
        topic,
        None,
        where,
        start=start,
        end=end,
        partitions=partitions,
        metadata=metadata,
        deletes=deletes,
        view=view,
        config=config,
    )
    return register_io_source(
        lambda columns, predicate, rows, _: _frames(source, columns, predicate, rows),
        schema=lambda: _schema(source),
        is_pure=True,
    )


def _schema(source: Scan) -> pl.Schema:
    frame = pl.from_arrow(source.schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame.schema


def _frames(
    source: Scan, columns: list[str] | None, predicate: pl.Expr | None, row_count: int | None
) -> Iterator[pl.DataFrame]:
    """`row_count` counts rows before the condition: where there are both, nothing is pushed down."""
    schema = _schema(source)
    pushed = [] if predicate is None or row_count is not None else pushed_down(predicate, schema, source.accepts)
    given = list(schema) if columns is None else columns
    named = given if predicate is None else [*given, *(n for n in predicate.meta.root_names() if n not in given)]
    needed = [name for name in named if name != DELETED_COLUMN]  # a scan with deletes has it in any case
    needed = needed or list(schema)[:1]  # a frame without columns has no rows
    left = row_count
    for rows in _narrowed(source, needed, pushed).to_arrow_batch_reader():
        frame = pl.from_arrow(rows)
        assert isinstance(frame, pl.DataFrame)
        if left is not None:
            frame = frame.head(left)
            left -= frame.height
        yield (frame if predicate is None else frame.filter(predicate)).select(given)
        if left == 0:
            return


def _narrowed(source: Scan, columns: Sequence[str], conditions: Sequence[Condition]) -> Scan:
    """All of the conditions may be more than one where can have: then none is pushed down."""
    narrowed = source.narrowed(columns, conditions)
    try:
        _ = narrowed.schema  # made by the where
    except InvalidArgument:
        return source.narrowed(columns, [])
    return narrowed


def pushed_down(predicate: pl.Expr, schema: pl.Schema, accepts: Callable[[Condition], bool]) -> list[Condition]:
    """The parts of the condition that a replica may be told, all of which are true for each row that polars keeps."""
    tree = json.loads(predicate.meta.serialize(format="json"))
    conditions = (_Translation(schema).condition(part) for part in _parts(tree))
    return [condition for condition in conditions if condition is not None and accepts(condition)]


def _parts(node: Any) -> list[Any]:
    """Those that are joined by `and`."""
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            return [*_parts(left), *_parts(right)]
        case _:
            return [node]


class _Translation:
    """Of what polars serializes; None for whatever is not surely the same."""

    def __init__(self, schema: pl.Schema) -> None:
        self._schema = schema

    def condition(self, node: Any) -> Condition | None:
        try:
            return self._condition(node)
        except (InvalidArgument, TypeError, pl.exceptions.PolarsError):
            return None

    def _condition(self, node: Any) -> Condition | None:
        match node:
            case {"BinaryExpr": {"left": left, "op": "And" | "Or" as word, "right": right}}:
                first, second = self._condition(left), self._condition(right)
                if first is None or second is None:
                    return None
                return first & second if word == "And" else first | second
            case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": _} as value}}:
                return self._compared(op, name, value)
            case {"BinaryExpr": {"left": {"Literal": _} as value, "op": op, "right": {"Column": name}}}:
                return self._compared(_MIRRORED.get(op, op), name, value)
            case {"Function": {"input": inputs, "function": {"Boolean": function}}}:
                return self._function(function, inputs)
            case {"Function": {"input": [{"Column": name}, literal], "function": {"StringExpr": "StartsWith"}}}:
                prefix = self._value(name, literal)
                return col(name).starts_with(prefix) if isinstance(prefix, str) else None
            case {"Column": name} if self._schema.get(name) == pl.Boolean:
                return col(name)
        return None

    def _compared(self, op: str, name: str, literal: Any) -> Condition | None:
        value = self._value(name, literal)
        compare = _COMPARISONS.get(op)
        return None if value is None or compare is None else compare(col(name), value)

    def _function(self, function: Any, inputs: Sequence[Any]) -> Condition | None:
        match function, inputs:
            case "Not", [part]:
                inner = self._condition(part)
                return None if inner is None else ~inner
            case "IsNull", [{"Column": name}]:
                return col(name).is_null()
            case "IsNotNull", [{"Column": name}]:
                return col(name).is_not_null()
            case {"IsBetween": {"closed": "Both"}}, [{"Column": name}, low, high]:
                ends = [self._value(name, end) for end in (low, high)]
                return None if None in ends else col(name).between(ends[0], ends[1])
            case {"IsIn": {"nulls_equal": False}}, [{"Column": name}, {"Literal": _} as literal]:
                return self._one_of(name, literal)
        return None

    def _one_of(self, name: str, literal: Any) -> Condition | None:
        values = _evaluated(literal)
        items = values.explode() if isinstance(values.dtype, pl.List) else values
        constants = [self._checked(name, items.dtype, value) for value in items.to_list()]
        return None if not constants or any(value is None for value in constants) else col(name).is_in(constants)

    def _value(self, name: str, literal: Any) -> Any:
        """The constant that a column is compared with, None where it is none or may mean something else."""
        values = _evaluated(literal)
        return self._checked(name, values.dtype, values.item()) if len(values) == 1 else None

    def _checked(self, name: str, kind: pl.DataType, value: Any) -> Any:
        column = self._schema.get(name)
        if column is None or column == pl.Float32:  # polars compares in 32 bits, replicas in 64
            return None
        if isinstance(value, float) and column != pl.Float64:  # polars compares in floats
            return None
        if isinstance(kind, pl.Datetime) and kind.time_unit == "ns":  # Python's datetime has no nanoseconds
            return None
        return value


def _evaluated(literal: Any) -> pl.Series:
    """By polars itself: it alone knows how it writes constants."""
    expression = pl.Expr.deserialize(json.dumps(literal).encode(), format="json")
    return pl.select(expression.alias("value")).to_series()
