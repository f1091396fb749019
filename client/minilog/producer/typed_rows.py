"""Checks the rows of `send` and `send_batch` for a typed topic by its schema, and cuts them into parts. Pure.

Any object with the Arrow C stream interface may bring rows (pandas, polars, DuckDB, ...). The hash of the key columns
decides the partition of a row, as for any key. Without key columns whole parts go to the partitions in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from minilog.errors import InvalidRecord, LevelNotReached, MinilogError
from minilog.net.metadata_cache import CachedTopic
from minilog.producer.partitioner import places_by_key
from minilog.record_batch.bounds import MAX_ROWS_WITH_DELETIONS
from minilog.record_batch.header import Attributes, level_of
from minilog.typed.rows.batch import TypedRows
from minilog.typed.rows.given_rows import given_rows
from minilog.typed.rows.keys import key_of
from minilog.typed.schema.row_form import DELETED_COLUMN, CheckedRow, DeletedRow
from minilog.typed.schema.topic_schema import TopicSchema

DELETIONS_LEVEL = level_of(Attributes.DELETES)
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
    in turn. Raises InvalidRecord, and LevelNotReached for deletions."""
    try:
        rows = given_rows(as_arrow(topic.name, given), schema, statistics=topic.statistics_columns)
    except InvalidRecord as error:
        raise _of_topic(topic, error) from None
    if rows.deletions is not None:
        _check_level(topic)
    if partition is not None or not schema.key_columns:
        return [(partition, part) for part in _parts(rows, limit_bytes)]
    keys = key_of(rows.columns, schema)
    assert keys is not None
    parts: list[tuple[int | None, TypedRows]] = []
    for chosen, places in places_by_key(keys, topic.partition_count):
        part = rows if len(places) == rows.num_rows else rows.take(places)
        parts += [(chosen, piece) for piece in _parts(part, limit_bytes)]
    return parts


def checked_row(topic: CachedTopic, value: object, key: object, timestamp: object) -> tuple[TopicSchema, CheckedRow]:
    """One row of a typed topic, as `send` takes it, with the version of its schema. Raises InvalidRecord, which names
    the column, and LevelNotReached for a deletion."""
    assert topic.schemas is not None
    schema = topic.schemas.latest
    _check_no_key(topic, schema, key, timestamp)
    if not isinstance(value, Mapping):
        raise InvalidRecord(
            f"topic {topic.name!r} has a schema, and the value is {type(value).__name__}: give a row, as a dict of its "
            f"columns: {', '.join(schema.names)}"
        )
    try:
        row = schema.row_form.check(value)
    except InvalidRecord as error:
        raise _of_topic(topic, error) from None
    if type(row.values) is DeletedRow:
        _check_level(topic)
    return schema, row


def deletion_row(topic: CachedTopic, key: object) -> dict[str, Any]:
    """The row that `send` takes for the deletion of a key. Raises InvalidRecord."""
    assert topic.schemas is not None
    schema = topic.schemas.latest
    if not isinstance(key, Mapping):
        raise InvalidRecord(
            f"topic {topic.name!r} has a schema, and the key to delete is {type(key).__name__}: give a dict of its key "
            f"columns: {', '.join(schema.key_columns) or 'it has none'}"
        )
    if not schema.marks_deletions:
        raise InvalidRecord(
            f"topic {topic.name!r} has a column {DELETED_COLUMN!r} of its own, so its rows cannot be deleted: write to "
            "a new topic"
        )
    return {**key, DELETED_COLUMN: True}


def _check_level(topic: CachedTopic) -> None:
    """Raises LevelNotReached where brokers of the cluster may not know deletions, as far as the client knows."""
    if topic.level < DELETIONS_LEVEL:
        raise LevelNotReached(
            f"topic {topic.name!r}: deletions of rows came with level {DELETIONS_LEVEL}, and the cluster is at level "
            f"{topic.level} as far as this client knows. Raise it (`minilog cluster upgrade`). Then make a new "
            "producer, or wait for metadata.max.age.ms"
        )


def columns_of_rows(topic: CachedTopic, rows: Sequence[Any], keys: object) -> pa.RecordBatch:
    """Rows of a typed topic, as `send_many` takes them, by the newest version that the client knows. Raises
    InvalidRecord, which names the number of the row and the column."""
    assert topic.schemas is not None
    arrow, checked = topic.schemas.latest.arrow_schema, list[CheckedRow]()
    for number, row in enumerate(rows):
        try:
            checked.append(checked_row(topic, row, keys, None)[1])
        except InvalidRecord as error:
            raise InvalidRecord(f"row {number}: {error}") from None
    columns = zip(*(row.values for row in checked), strict=True) if checked else ((),) * len(arrow)
    arrays = [pa.array(column, field.type) for field, column in zip(arrow, columns, strict=True)]
    deletions = [type(row.values) is DeletedRow for row in checked]
    if not any(deletions):
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)
    return pa.RecordBatch.from_arrays([*arrays, pa.array(deletions)], names=[*arrow.names, DELETED_COLUMN])


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
    has_too_many = rows.deletions is not None and rows.num_rows > MAX_ROWS_WITH_DELETIONS
    if (size <= _WHOLE * limit_bytes and not has_too_many) or rows.num_rows == 1:
        return [rows]
    count = min(rows.num_rows, max(2, -(-size // limit_bytes)))
    cuts = [rows.num_rows * part // count for part in range(count + 1)]
    slices = [rows.slice(start, end - start) for start, end in pairwise(cuts)]
    return [part for piece in slices for part in _parts(piece, limit_bytes)]
