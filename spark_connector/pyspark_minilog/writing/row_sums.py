"""One number of rows, which is the same in whatever order and in whatever batches Spark brings them. Pure.

It is the sum of the hashes of the rows. The sink compares it where it does not know the offsets that rows come from
(replay_facts.py). A row is hashed with the length of each value, so no bytes of a value look like its end. Hashes are
those of BLAKE2b: sums of checksums would often agree where values change places between rows. Aggregates of floating
point may differ in their last digits each time, so floats count with the seven digits of single precision.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pyspark_minilog.writing.sink_protocol import SUM_BITS

if TYPE_CHECKING:
    import pyarrow as pa

_HASH_BYTES = SUM_BITS // 8
_NULL_LENGTH = -1


def sum_of_rows(rows: pa.RecordBatch) -> int:
    """The sum of `rows`, below 2^64. It depends on the names of the columns, and not on their order. Sums of batches
    are added modulo 2^64."""
    import pyarrow as pa

    from minilog import compute as pc

    if not rows.num_rows or not rows.num_columns:
        return 0
    parts = []
    for name in sorted(rows.schema.names):
        values = _as_bytes(rows.column(name))
        lengths = pc.fill_null(pc.binary_length(values), _NULL_LENGTH)
        parts.append(lengths.cast(pa.string()).cast(pa.large_binary()))
        parts.append(pc.fill_null(values, pa.scalar(b"", pa.large_binary())))
    texts = pc.binary_join_element_wise(*parts, pa.scalar(b":", pa.large_binary()))
    hashes = (hashlib.blake2b(text, digest_size=_HASH_BYTES).digest() for text in texts.to_pylist())
    return sum(int.from_bytes(each, "little") for each in hashes) % (1 << SUM_BITS)


def _as_bytes(column: pa.Array) -> pa.Array:
    """Bytes that tell the values apart. Types that Arrow does not make text of, such as nested ones, take Python's
    way."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_float64(kind):
        column = column.cast(pa.float32())
    kind = column.type
    are = pa.types
    if are.is_integer(kind) or are.is_floating(kind) or are.is_decimal(kind) or are.is_boolean(kind):
        return column.cast(pa.string()).cast(pa.large_binary())
    if are.is_binary(kind) or are.is_string(kind) or are.is_large_binary(kind) or are.is_large_string(kind):
        return column.cast(pa.large_binary())
    texts = [None if value is None else repr(value).encode() for value in column.to_pylist()]
    return pa.array(texts, pa.large_binary())
