"""Checks the rows of `send` and `send_batch` for a typed topic by its schema, and cuts them into parts. Pure.

Any object with the Arrow C stream interface may bring rows (pandas, polars, DuckDB, ...). The hash of the key columns
decides the partition of a row, as for any key. Without key columns whole parts go to the partitions in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from minilog.errors import InvalidRecord, MinilogError
from minilog.net.metadata_cache import CachedTopic
from minilog.producer.partitioner import places_by_key
from minilog.typed.batch import TypedRows
from minilog.typed.keys import key_of
from minilog.typed.row_form import CheckedRow
from minilog.typed.rows import rows_of
from minilog.typed.topic_schema import TopicSchema

_WHOLE = 1.25  # a batch this much above batch.size goes whole: two halves would cost more


def as_arrow(topic: str, given: object) -> pa.RecordBatch | pa.Table:
    """The argument as an Arrow table or batch. Raises InvalidRecord for an object that is no table."""
    if isinstance(given, pa.RecordBatch | pa.Table):
        return given
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return pa.table(given)
        if hasattr(given, "__arrow_c_array__"):
            return pa.record_batch(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRecord(f"send_batch to topic {topic!r} cannot make Arrow of its argument: {error}") from error
    raise InvalidRecord(
        f"send_batch to topic {topic!r} got {type(given).__name__}: give a pyarrow.Table or RecordBatch, or a "
        "DataFrame of pandas or polars"
    )


def cut_rows(
    topic: CachedTopic, schema: TopicSchema, given: object, partition: int | None, limit_bytes: int
) -> list[tuple[int | None, TypedRows]]:
    """(partition, rows) in order. The rows take about `limit_bytes`. Without a partition (None) they go to the next one
    in turn. Raises InvalidRecord."""
    try:
        columns = rows_of(as_arrow(topic.name, given), schema)
    except InvalidRecord as error:
        raise _of_topic(topic, error) from None
    rows = TypedRows(schema, columns, statistics=topic.statistics_columns)
    if partition is not None or not schema.key_columns:
        return [(partition, part) for part in _parts(rows, limit_bytes)]
    keys = key_of(columns, schema)
    assert keys is not None
    parts: list[tuple[int | None, TypedRows]] = []
    for chosen, places in places_by_key(keys, topic.partition_count):
        part = rows if len(places) == rows.num_rows else rows.take(places)
        parts += [(chosen, piece) for piece in _parts(part, limit_bytes)]
    return parts


def checked_row(topic: CachedTopic, value: object, key: object, timestamp: object) -> tuple[TopicSchema, CheckedRow]:
    """One row of a typed topic, as `send` takes it, with the version of its schema. Raises InvalidRecord, which names
    the column."""
    assert topic.schemas is not None
    schema = topic.schemas.latest
    _check_no_key(topic, schema, key, timestamp)
    if not isinstance(value, Mapping):
        raise InvalidRecord(
            f"topic {topic.name!r} has a schema, and the value is {type(value).__name__}: give a row, as a dict of its "
            f"columns: {', '.join(schema.names)}"
        )
    try:
        return schema, schema.row_form.check(value)
    except InvalidRecord as error:
        raise _of_topic(topic, error) from None


def columns_of_rows(topic: CachedTopic, rows: Sequence[Any], keys: object) -> pa.RecordBatch:
    """Rows of a typed topic, as `send_many` takes them, by the newest version that the client knows. Raises
    InvalidRecord, which names the number of the row and the column."""
    assert topic.schemas is not None
    arrow, checked = topic.schemas.latest.arrow_schema, list[tuple[Any, ...]]()
    for number, row in enumerate(rows):
        try:
            checked.append(checked_row(topic, row, keys, None)[1].values)
        except InvalidRecord as error:
            raise InvalidRecord(f"row {number}: {error}") from None
    columns = zip(*checked, strict=True) if checked else ((),) * len(arrow)
    arrays = [pa.array(column, field.type) for field, column in zip(arrow, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _check_no_key(topic: CachedTopic, schema: TopicSchema, key: object, timestamp: object) -> None:
    """A row has its key and its time stamp in its columns, so the caller gives neither. Raises InvalidRecord."""
    if key is not None:
        place = f"in its key columns, {', '.join(schema.key_columns)}" if schema.key_columns else "always empty"
        raise InvalidRecord(f"topic {topic.name!r} has a schema: the key of a row is {place}. Give no key")
    if timestamp is not None and schema.timestamp_column is not None:
        raise InvalidRecord(
            f"the time stamp of a row of topic {topic.name!r} is in its column {schema.timestamp_column!r}: give no "
            "timestamp"
        )


def _of_topic(topic: CachedTopic, error: MinilogError) -> MinilogError:
    return type(error)(f"topic {topic.name!r}: {error}")


def _parts(rows: TypedRows, limit_bytes: int) -> list[TypedRows]:
    """Even slices in order, without a copy. This divides again a slice that is still too large."""
    if rows.num_rows == 0:
        return []
    size = rows.nbytes
    if size <= _WHOLE * limit_bytes or rows.num_rows == 1:
        return [rows]
    count = min(rows.num_rows, max(2, -(-size // limit_bytes)))
    cuts = [rows.num_rows * part // count for part in range(count + 1)]
    slices = [rows.slice(start, end - start) for start, end in pairwise(cuts)]
    return [part for piece in slices for part in _parts(piece, limit_bytes)]
