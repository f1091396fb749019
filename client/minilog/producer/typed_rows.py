"""What users hand to `send` and `send_batch` of a typed topic: rows by its schema, cut into parts. Pure.

Whatever speaks Arrow is taken (the Arrow C stream interface: pandas, polars, DuckDB, ...). Rows go to partitions by the
hash of the key columns, as any key does; without key columns whole parts go to the partitions in turn.
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
    """Raises InvalidRecord for what is no table."""
    if isinstance(given, pa.RecordBatch | pa.Table):
        return given
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return pa.table(given)
        if hasattr(given, "__arrow_c_array__"):
            return pa.record_batch(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRecord(f"what send_batch to topic {topic!r} was given cannot become Arrow: {error}") from error
    raise InvalidRecord(
        f"send_batch to topic {topic!r} was given {type(given).__name__}: give a pyarrow.Table or RecordBatch, or what "
        "speaks Arrow, as DataFrames of pandas and polars do"
    )


def cut_rows(
    topic: CachedTopic, schema: TopicSchema, given: object, partition: int | None, limit_bytes: int
) -> list[tuple[int | None, TypedRows]]:
    """(partition, rows) in order, each about `limit_bytes`; None: the next partition in turn. Raises InvalidRecord."""
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
    """One row of a typed topic, as `send` takes it, and by which version. Raises InvalidRecord, with the column."""
    assert topic.schemas is not None
    schema = topic.schemas.latest
    _check_no_key(topic, schema, key, timestamp)
    if not isinstance(value, Mapping):
        raise InvalidRecord(
            f"topic {topic.name!r} has a schema, and was sent {type(value).__name__}: give a row, as a dict of its "
            f"columns: {', '.join(schema.names)}"
        )
    try:
        return schema, schema.row_form.check(value)
    except InvalidRecord as error:
        raise _of_topic(topic, error) from None


def columns_of_rows(topic: CachedTopic, rows: Sequence[Any], keys: object) -> pa.RecordBatch:
    """Rows of a typed topic, as `send_many` takes them, by the newest version that is known here. Raises InvalidRecord,
    with the number of the row and the column."""
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
    """A row has its key and its time stamp in its columns. Raises InvalidRecord."""
    if key is not None:
        columns = f"its key columns, {', '.join(schema.key_columns)}" if schema.key_columns else "none: it has no key"
        raise InvalidRecord(f"topic {topic.name!r} has a schema: the key of a row is {columns}; give none")
    if timestamp is not None and schema.timestamp_column is not None:
        raise InvalidRecord(
            f"the time stamp of a row of topic {topic.name!r} is its column {schema.timestamp_column!r}: give none"
        )


def _of_topic(topic: CachedTopic, error: MinilogError) -> MinilogError:
    return type(error)(f"topic {topic.name!r}: {error}")


def _parts(rows: TypedRows, limit_bytes: int) -> list[TypedRows]:
    """Slices in order, without a copy: even ones, and those that are still too large divided again."""
    if rows.num_rows == 0:
        return []
    size = rows.nbytes
    if size <= _WHOLE * limit_bytes or rows.num_rows == 1:
        return [rows]
    count = min(rows.num_rows, max(2, -(-size // limit_bytes)))
    cuts = [rows.num_rows * part // count for part in range(count + 1)]
    slices = [rows.slice(start, end - start) for start, end in pairwise(cuts)]
    return [part for piece in slices for part in _parts(piece, limit_bytes)]
