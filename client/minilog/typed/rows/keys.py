"""The key of a typed row, made of its key columns: what its partition is hashed of (murmur2, as of any key). Pure.

One column: its own bytes, so that a column of text goes where the same text as a Kafka key would; null is no key.
Several: of each its length (i32, big-endian; -1: null) and its bytes, one after another. The bytes of a value:

    string, binary      themselves          boolean          one byte, 0 or 1
    decimal             16, big-endian      all other types  i64, big-endian (days and microseconds since 1970)
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from minilog import compute as pc
from minilog.typed.schema.topic_schema import TopicSchema

_INTEGER_BYTES, _DECIMAL_BYTES, _LENGTH_BYTES = 8, 16, 4
_NULL_LENGTH = -1


def key_of(rows: pa.RecordBatch, schema: TopicSchema) -> pa.BinaryArray | None:
    """The keys of `rows` (columns of the schema, in its order); None where the topic has no key columns."""
    return key_of_columns([rows.column(schema.names.index(name)) for name in schema.key_columns])


def key_of_columns(key_columns: Sequence[pa.Array]) -> pa.BinaryArray | None:
    """The same of the key columns alone, in the order of `TopicSchema.key_columns`."""
    columns = list(map(_bytes_of, key_columns))
    if len(columns) < 2:
        return columns[0] if columns else None
    parts = [part for column in columns for part in (_lengths(column), column.fill_null(b""))]
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))


def _bytes_of(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_binary(kind):
        return values
    if pa.types.is_string(kind):
        return values.cast(pa.binary())
    if pa.types.is_decimal(kind):
        return _big_endian(values, _DECIMAL_BYTES)
    if pa.types.is_boolean(kind):
        return pc.if_else(values, pa.scalar(b"\1"), pa.scalar(b"\0"))
    days = values.cast(pa.int32()) if pa.types.is_date(kind) else values
    return _big_endian(days.cast(pa.int64()), _INTEGER_BYTES)


def _lengths(values: pa.Array) -> pa.Array:
    return _big_endian(pc.binary_length(values).cast(pa.int32()).fill_null(_NULL_LENGTH), _LENGTH_BYTES)


def _big_endian(numbers: pa.Array, width: int) -> pa.Array:
    """The bytes of each number, null where it is; Arrow holds them with the lowest byte first."""
    content = numbers.buffers()[1]
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(numbers), [None, content], offset=numbers.offset)
    turned = pc.binary_reverse(fixed.cast(pa.binary()))
    return pc.if_else(numbers.is_valid(), turned, pa.scalar(None, pa.binary()))
