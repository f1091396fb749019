"""A user's table as the columns of a topic: matched by name, cast without a loss, or refused. Pure.

A column of type float or double takes any number and rounds it to the nearest that it has, as Spark's store assignment
does. Only a number above the largest one is refused: Spark makes it infinite.

Refused is whatever else a reader could not get back: a number that does not fit, digits behind the last one of an
integer or a decimal (Spark cuts them off), an instant below a microsecond, a null where the schema forbids it, a column
that the topic does not have. What is refused is told by its column, its first row and how many rows there are, before
anything leaves the producer. Text is never read as a number, nor a time without a zone as an instant: that would be a
guess.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import InvalidRecord
from minilog.typed.rows.as_json import value_shown
from minilog.typed.rows.nested import entries_of, offsets_of
from minilog.typed.schema.arrow_kinds import is_cast, is_instant, is_local_time
from minilog.typed.schema.fields import Array, Field, Map, Struct, arrow_type, children
from minilog.typed.schema.layouts import has_text, places_of_pandas, plain_layout
from minilog.typed.schema.topic_schema import TopicSchema

_ALL_INTEGERS = pa.decimal128(20, 0)


class _Unfit(Exception):
    """What is told of rows that do not fit, before and behind the number of the first of them."""

    def __init__(self, before: str, row: int, behind: str, count: int) -> None:
        self.before, self.row, self.behind, self.count = before, row, behind, count

    def as_error(self, first_row: int = 0) -> InvalidRecord:
        """`first_row`: the number of the first row there is."""
        more = f", and {self.count - 1:,} more" if self.count > 1 else ""
        return InvalidRecord(f"{self.before} row {first_row + self.row} {self.behind}{more}")


@contextlib.contextmanager
def _by_row(lists: pa.ListArray) -> Iterator[None]:
    """What does not fit among the flattened values of lists is told by the row whose list has it."""
    try:
        yield
    except _Unfit as unfit:
        starts = offsets_of(lists).to_numpy()
        row = int(starts.searchsorted(unfit.row, side="right")) - 1
        raise _Unfit(unfit.before, row, unfit.behind, unfit.count) from None


def rows_of(
    table: pa.RecordBatch | pa.Table,
    schema: TopicSchema,
    *,
    first_row: int = 0,
    deletions: pa.BooleanArray | None = None,
) -> pa.RecordBatch:
    """The rows of `table` as columns of `schema`, in its order; a column that is not there is null. `deletions`: the
    rows that delete their key (given_rows.py).

    Raises InvalidRecord, naming the column, the first row that does not fit (they count from `first_row`), and how many
    do not."""
    table = _without_places(table, schema)
    names = table.schema.names
    if unknown := [name for name in names if name not in schema.names]:
        raise InvalidRecord(
            f"the topic has no column {', '.join(map(repr, unknown))}: it has {', '.join(schema.names)}. Add it to the "
            "schema (minilog topic schema evolve), or leave it out"
        )
    if doubled := {name for name in names if names.count(name) > 1}:
        raise InvalidRecord(f"the rows have two columns {sorted(doubled)[0]!r}: rename one of them")
    try:
        columns = [_column(table, field) for field in schema.fields]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
        _check_all_nulls(rows, schema, deletions)
    except _Unfit as unfit:
        raise unfit.as_error(first_row) from None
    return rows


def _without_places(table: pa.RecordBatch | pa.Table, schema: TopicSchema) -> pa.RecordBatch | pa.Table:
    strange = [name for name in places_of_pandas(table.schema) if name not in schema.names]
    return table.drop_columns(strange) if strange else table


def _column(table: pa.RecordBatch | pa.Table, field: Field) -> pa.Array:
    if field.name not in table.schema.names:
        return pa.nulls(table.num_rows, arrow_type(field.type))
    try:
        given = table.column(field.name)
        chunks = [plain_layout(chunk) for chunk in (given.chunks if isinstance(given, pa.ChunkedArray) else [given])]
        values = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [pa.nulls(0, given.type)])
        cast = _cast(values, field, field.name)
        _check_text(cast, field.name)
    except pa.ArrowException as error:
        raise InvalidRecord(
            f"column {field.name!r} is {field.type}, and the rows have {given.type}, which Arrow cannot cast to it "
            f"({error}): cast it yourself"
        ) from error
    return cast


def _check_text(values: pa.Array, path: str) -> None:
    """All text, at any depth, is UTF-8."""
    if not has_text(values.type):
        return
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        bad = [row for row in range(len(values)) if not _is_valid(values.slice(row, 1))]
        raise _Unfit(
            f"column {path!r}:", bad[0], "has text that is not UTF-8: decode it by its real encoding", len(bad)
        ) from None


def _is_valid(values: pa.Array) -> bool:
    try:
        pa.concat_arrays([values]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _cast(values: pa.Array, field: Field, path: str) -> pa.Array:
    kind = arrow_type(field.type)
    values = plain_layout(values)
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    match field.type:
        case Struct(fields) if pa.types.is_struct(values.type):
            return _cast_struct(values, fields, path)
        case Array(element) if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            with _by_row(values):
                inner = _cast(values.flatten(), element, f"{path}.element")
            return pa.ListArray.from_arrays(offsets_of(values), inner, kind, mask=values.is_null())
        case Map(key, value) if pa.types.is_map(values.type):
            return _cast_map(values, key, value, path)
    if not is_cast(values.type, kind):
        raise InvalidRecord(
            f"column {path!r} is {field.type}, and the rows have {values.type}: {_advice(values.type, kind)}"
        )
    return _cast_values(values, kind, path, str(field.type))


def _advice(given: pa.DataType, kind: pa.DataType) -> str:
    if is_local_time(given) and is_instant(kind):
        return "these times have no zone: set it, with pandas' tz_localize or Arrow's assume_timezone"
    if is_instant(given) and is_local_time(kind):
        return "these are instants, and the column has times without a zone: take the zone off yourself"
    return "cast it yourself"


def _cast_values(values: pa.Array, kind: pa.DataType, path: str, name: str) -> pa.Array:
    """Each value as it was, or in a float or double the nearest; or none."""
    converted = _fitting(values, kind)
    if converted is not None:
        return converted
    row, count = _first_lost(values, kind)
    raise _Unfit(f"column {path!r} is {name}, and {value_shown(values[row])} in", row, "does not fit", count)


def _fitting(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast as a write casts, None where a value does not fit."""
    if not pa.types.is_floating(kind):
        return exactly(values, kind)
    if pa.types.is_decimal(values.type):
        values = pc.cast(values, pa.string())  # Arrow reads each digit of a text, but computes with few of a decimal
    # By way of a double, as Python's float() and JSON have it.
    converted = pc.cast(pc.cast(values, pa.float64(), safe=False), kind, safe=False)
    if pa.types.is_floating(values.type) and pc.any(pc.xor(pc.is_inf(converted), pc.is_inf(values))).as_py():
        return None
    if not pa.types.is_floating(values.type) and pc.any(pc.is_inf(converted)).as_py():
        return None
    return converted


def exactly(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Cast, None where anything is lost. Arrow sees all of that but the digits of a double."""
    if pa.types.is_integer(values.type) and pa.types.is_decimal(kind):
        values = pc.cast(values, _ALL_INTEGERS)
    try:
        converted = pc.cast(values, kind)
    except pa.ArrowInvalid:
        return None
    if pa.types.is_floating(values.type) and pa.types.is_floating(kind):
        same = pc.or_(pc.equal(pc.cast(converted, values.type), values), pc.is_nan(values))
        return converted if pc.all(same).as_py() in (True, None) else None
    return converted


def _first_lost(values: pa.Array, kind: pa.DataType) -> tuple[int, int]:
    """The first row that cannot be cast, and how many cannot: one by one, since the batch is refused anyway."""
    lost = [row for row in range(len(values)) if _fitting(values.slice(row, 1), kind) is None]
    return lost[0], len(lost)


def _cast_struct(values: pa.Array, fields: tuple[Field, ...], path: str) -> pa.Array:
    given = {values.type.field(place).name: place for place in range(values.type.num_fields)}
    if unknown := sorted(given.keys() - {field.name for field in fields}):
        raise InvalidRecord(f"column {path!r} has no field {unknown[0]!r}: leave it out, or add it to the schema")
    parts = [
        _cast(values.field(given[field.name]), field, f"{path}.{field.name}")
        if field.name in given
        else pa.nulls(len(values), arrow_type(field.type))
        for field in fields
    ]
    wanted = [pa.field(field.name, arrow_type(field.type), field.nullable) for field in fields]
    return pa.StructArray.from_arrays(parts, fields=wanted, mask=values.is_null())


def _cast_map(values: pa.Array, key: Field, value: Field, path: str) -> pa.Array:
    entries = entries_of(values)
    flat = entries.flatten()
    with _by_row(entries):
        keys = _cast(flat.field(0), key, f"{path}.key")
        items = _cast(flat.field(1), value, f"{path}.value")
    kind = arrow_type(Map(key, value))
    return pa.MapArray.from_arrays(offsets_of(entries), keys, items, kind, mask=values.is_null())


def check_nulls(rows: pa.RecordBatch, schema: TopicSchema, deletions: pa.BooleanArray | None = None) -> None:
    """Nulls only where the schema allows them; in a row that deletes its key also in all other columns. Raises
    InvalidRecord, with the column, the first row, and how many."""
    try:
        _check_all_nulls(rows, schema, deletions)
    except _Unfit as unfit:
        raise unfit.as_error() from None


def _check_all_nulls(rows: pa.RecordBatch, schema: TopicSchema, deletions: pa.BooleanArray | None = None) -> None:
    for field, values in zip(schema.fields, rows.columns, strict=True):
        _check_column_nulls(values, field, None if field.name in schema.key_columns else deletions)


def check_column_nulls(values: pa.Array, field: Field, deletions: pa.BooleanArray | None = None) -> None:
    """The same of one column, which may be null in the rows of `deletions`."""
    try:
        _check_column_nulls(values, field, deletions)
    except _Unfit as unfit:
        raise unfit.as_error() from None


def _check_column_nulls(values: pa.Array, field: Field, deletions: pa.BooleanArray | None = None) -> None:
    if not field.nullable or children(field.type):
        there = pa.repeat(pa.scalar(True), len(values)) if deletions is None else pc.invert(deletions)
        _check_nulls(values, field, field.name, there)


def _check_nulls(values: pa.Array, field: Field, path: str, there: pa.Array) -> None:
    """Nulls only where the schema allows them; `there`: whether what this is part of is not null itself."""
    missing = pc.and_(there, values.is_null())
    if not field.nullable and pc.any(missing).as_py():
        row, count = pc.index(missing, True).as_py(), pc.sum(missing).as_py()
        raise _Unfit(f"column {path!r} may not be null, and", row, "has no value for it", count)
    if isinstance(field.type, Struct):
        present = pc.and_(there, values.is_valid())
        for part, child in zip(values.flatten(), field.type.fields, strict=True):  # null where the struct is
            _check_nulls(part, child, f"{path}.{child.name}", present)
    elif isinstance(field.type, Array):
        inner = values.flatten()
        with _by_row(values):
            _check_nulls(inner, field.type.element, f"{path}.element", pa.repeat(pa.scalar(True), len(inner)))
    elif isinstance(field.type, Map):
        entries = entries_of(values)
        inner = entries.flatten()
        everywhere = pa.repeat(pa.scalar(True), len(inner))
        with _by_row(entries):
            for part, child in zip(inner.flatten(), (field.type.key, field.type.value), strict=True):
                _check_nulls(part, child, f"{path}.{child.name}", everywhere)
