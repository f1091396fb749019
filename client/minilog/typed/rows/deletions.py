"""The rows of a typed batch that delete their key. Pure.

A batch with the attribute DELETES has a bitmap in its extension: a bit for each row, the least significant one first,
as Arrow has them. Of such a row only key columns, time stamp and record headers count. All its other columns
are null, also those that forbid nulls, so one deletion has one form. The statistics of a batch pass such rows over
(docs/spec/formats.md).
"""

from __future__ import annotations

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import CorruptMessage, InvalidRecord
from minilog.record_batch.bounds import MAX_ROWS_WITH_DELETIONS
from minilog.record_batch.header import BatchHeader
from minilog.typed.schema.topic_schema import TopicSchema


def bitmap_of(deletions: pa.BooleanArray) -> bytes:
    """The bitmap of an extension. `deletions` has no nulls."""
    whole = pa.concat_arrays([deletions])  # begins at a whole byte
    count = len(whole)
    bitmap = bytearray(whole.buffers()[1].to_pybytes()[: _bytes_of(count)])
    if count % 8:
        bitmap[-1] &= (1 << count % 8) - 1
    return bytes(bitmap)


def deletions_of(bitmap: bytes, row_count: int) -> pa.BooleanArray | None:
    """For each row whether it deletes its key, never null. None for an empty bitmap."""
    if not bitmap:
        return None
    return pa.BooleanArray.from_buffers(pa.bool_(), row_count, [None, pa.py_buffer(bitmap)])


def deletion_count(bitmap: bytes) -> int:
    """The number of rows that delete their key."""
    return int.from_bytes(bitmap, "little").bit_count()


def check_bitmap(bitmap: bytes, header: BatchHeader) -> None:
    """Check that the bitmap of a batch has the form of the module's text. Raises CorruptMessage."""
    where, count = f"the typed record batch at offset {header.base_offset}", header.record_count
    if not header.has_deletions:
        if bitmap:
            raise CorruptMessage(f"{where} has a bitmap of deletions, and not the attribute for it")
        return
    if count > MAX_ROWS_WITH_DELETIONS:
        raise CorruptMessage(
            f"{where} has deletions and {count} rows, and at most {MAX_ROWS_WITH_DELETIONS} are allowed"
        )
    if len(bitmap) != _bytes_of(count):
        raise CorruptMessage(
            f"{where} has {count} rows and a bitmap of deletions of {len(bitmap)} bytes: {_bytes_of(count)} are needed"
        )
    if count % 8 and bitmap[-1] >> count % 8:
        raise CorruptMessage(f"{where} has {count} rows, and its bitmap deletes a row behind the last one")
    if not any(bitmap):
        raise CorruptMessage(f"{where} has the attribute of deletions, and deletes no row")


def check_deletions(
    rows: pa.RecordBatch, deletions: pa.BooleanArray, schema: TopicSchema, *, first_row: int = 0
) -> None:
    """Check the deletions among `rows` (columns of the schema, in its order): each has a key, and its other columns are
    null. Raises InvalidRecord, which names the first row that is wrong. Rows count from `first_row`."""
    if not schema.key_columns:
        raise InvalidRecord("rows delete their key, but the topic has no key columns: create one with a key")
    for field, column in zip(schema.fields, rows.columns, strict=True):
        if field.name not in schema.key_columns:
            if (row := _first(deletions, column.is_valid())) >= 0:
                raise InvalidRecord(
                    f"row {first_row + row} deletes its key and has a value in column {field.name!r}: a deletion has "
                    f"key columns alone, {', '.join(schema.key_columns)}"
                )
        elif len(schema.key_columns) == 1 and (row := _first(deletions, column.is_null())) >= 0:
            raise InvalidRecord(
                f"row {first_row + row} deletes its key, and its key column {field.name!r} is null: it has no key"
            )


def without_deletions(columns: pa.RecordBatch, deletions: pa.BooleanArray | None) -> pa.RecordBatch:
    """The rows that delete nothing. Columns, at least one if their rows are counted."""
    return columns if deletions is None or not columns.num_columns else columns.filter(pc.invert(deletions))


def emptied(values: pa.Array | pa.ChunkedArray, deletions: pa.BooleanArray) -> pa.Array | pa.ChunkedArray:
    """A column, null in the rows that delete their key."""
    places = pc.if_else(deletions, pa.scalar(None, pa.int64()), pc.arange(0, len(deletions)))
    return values.take(places)


def _first(deletions: pa.BooleanArray, are_wrong: pa.BooleanArray) -> int:
    """The first deletion that is wrong, or -1."""
    return int(pc.index(pc.and_(deletions, are_wrong), True).as_py())


def _bytes_of(row_count: int) -> int:
    return -(-row_count // 8)
