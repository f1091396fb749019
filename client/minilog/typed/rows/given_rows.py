"""A user's table, which may say by a column `_deleted` which of its rows delete their key. Pure.

Of such a row only the key columns count. The value of the timestamp column, if it is not one of them, becomes the time
stamp of the deletion. All other values are dropped before anything is cast, so they need not fit.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import InvalidRecord
from minilog.record_batch.schema import TIMESTAMP
from minilog.typed.rows.batch import TypedRows
from minilog.typed.rows.deletions import check_deletions, emptied
from minilog.typed.rows.rows import rows_of
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog.typed.schema.topic_schema import TopicSchema


def given_rows(
    table: pa.RecordBatch | pa.Table,
    schema: TopicSchema,
    *,
    first_row: int = 0,
    statistics: tuple[str, ...] | None = None,
) -> TypedRows:
    """The rows of `table` by `schema`, and their deletions. Raises InvalidRecord as rows_of does, and for a deletion
    without a key."""
    if DELETED_COLUMN not in table.schema.names or not schema.marks_deletions:
        return TypedRows(schema, rows_of(table, schema, first_row=first_row), statistics=statistics)
    deletions = _deletions(table.column(DELETED_COLUMN))
    given = table.drop_columns([DELETED_COLUMN])
    if not deletions.true_count:
        return TypedRows(schema, rows_of(given, schema, first_row=first_row), statistics=statistics)
    if missing := [name for name in schema.key_columns if name not in given.schema.names]:
        raise InvalidRecord(f"rows delete their key, and have no key column {missing[0]!r}: give all key columns")
    rows = rows_of(_of_keys(given, deletions, schema), schema, first_row=first_row, deletions=deletions)
    check_deletions(rows, deletions, schema, first_row=first_row)
    return TypedRows(schema, rows, _timestamps(given, deletions, schema, first_row), None, statistics, deletions)


def _deletions(column: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
    """Never null: a row whose `_deleted` is null is a row like any other."""
    if not pa.types.is_boolean(column.type) and not pa.types.is_null(column.type):
        raise InvalidRecord(f"column {DELETED_COLUMN!r} is boolean, and the rows have {column.type}: cast it yourself")
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    booleans = [chunk.cast(pa.bool_()) for chunk in chunks] or [pa.array([], pa.bool_())]
    return pa.concat_arrays(booleans).fill_null(False)


def _of_keys(
    table: pa.RecordBatch | pa.Table, deletions: pa.BooleanArray, schema: TopicSchema
) -> pa.RecordBatch | pa.Table:
    for place, name in enumerate(table.schema.names):
        if name not in schema.key_columns:
            values = emptied(table.column(place), deletions)
            table = table.set_column(place, table.schema.field(place).with_nullable(True), values)
    return table


def _timestamps(
    table: pa.RecordBatch | pa.Table, deletions: pa.BooleanArray, schema: TopicSchema, first_row: int
) -> pa.Array | None:
    """Those of the deletions, where they have any."""
    name = schema.timestamp_column
    if name is None or name in schema.key_columns or name not in table.schema.names:
        return None
    column = table.column(name)
    live = pc.if_else(deletions, pc.arange(0, len(deletions)), pa.scalar(None, pa.int64()))
    alone = TopicSchema((replace(schema.column(name), nullable=True),))
    stamps = rows_of(pa.table({name: column.take(live)}), alone, first_row=first_row).column(0)
    return stamps.cast(TIMESTAMP)
