"""The checks that a leader makes before it writes a batch to a topic, with or without a schema.

The leader checks a typed batch as `validate_batch` does, by the schema version that the batch names. Then it checks
that columns without nulls have none, that rows which delete their key have key columns alone, and that the statistics
are those of the other rows, because readers skip batches by them. So no batch that harms a reader gets into the log.
"""

from __future__ import annotations

import pyarrow as pa

from minilog.errors import CorruptMessage, InvalidRecord
from minilog.record_batch.header import HEADER_BYTES, Attributes, BatchHeader, Buffer
from minilog.record_batch.reader import arrow_errors
from minilog.record_batch.schema import TIMESTAMP
from minilog.record_batch.validation import (
    TimestampBounds,
    check_envelope,
    check_headers,
    check_records,
    check_timestamps,
)
from minilog.typed.conditions.statistics import check_statistics, read_statistics
from minilog.typed.rows.batch import read_extension
from minilog.typed.rows.deletions import check_deletions, deletions_of, without_deletions
from minilog.typed.rows.reader import read_columns
from minilog.typed.rows.rows import check_nulls
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2
from minilog_broker.replication.leader.required_keys import require_record_keys, require_row_keys


def validate_topic_batch(
    topic_id: bytes,
    partition: int,
    batch: Buffer,
    *,
    max_message_bytes: int,
    schemas: TopicSchemas | None,
    bounds: TimestampBounds | None = None,
    is_compacted: bool = False,
) -> BatchHeader:
    """The header of `batch`, one whole data batch that a client sent for this topic id and partition.

    `schemas`: the topic's, None for a topic without a schema. `bounds`: of the batch's time stamps, None for any.
    `is_compacted`: whether the topic is. Then each record and each row needs a key.

    Raises what `validate_batch` raises. Raises UnknownSchemaVersion for a version that this broker does not know yet.
    Raises InvalidRecord for rows in a topic without a schema, for keys and values in a topic with one, for nulls that
    the schema forbids, for a deletion without a key or with more than that, and for what has no key in a compacted
    topic."""
    header = check_envelope(topic_id, partition, batch, max_message_bytes=max_message_bytes)
    if not header.is_typed and schemas is None:
        records = check_records(batch, header, max_message_bytes=max_message_bytes, bounds=bounds)
        if is_compacted:
            require_record_keys(records.column("key"))
        return header
    if schemas is None:
        raise InvalidRecord("the batch has rows, but the topic has no schema: send keys and values")
    if not header.is_typed:
        raise InvalidRecord(
            "the batch has keys and values, but the topic has a schema: send rows of its version "
            f"{schemas.latest.version}"
        )
    extension = read_extension(batch, header)
    schema = schemas.version(extension.schema_version)
    with arrow_errors(header):
        rows = _check_rows(batch, header, extension, schema, max_message_bytes, bounds)
    if is_compacted:
        require_row_keys(rows.columns, schema)
    return header


def _check_rows(
    batch: Buffer,
    header: BatchHeader,
    extension: typed_pb2.TypedBatch,
    schema: TopicSchema,
    max_message_bytes: int,
    bounds: TimestampBounds | None,
) -> pa.RecordBatch:
    """The rows of the batch, those that delete their key among them."""
    if header.attributes & Attributes.HAS_KEY:
        raise CorruptMessage("a typed batch claims a column of keys, but it has only the columns of its schema")
    if extension.field_ids:
        raise CorruptMessage("a batch names its columns, but only a batch with chosen columns may do that")
    padding = batch[HEADER_BYTES + header.extension_bytes : header.payload_start]
    if any(padding):
        raise CorruptMessage(f"the padding behind a batch's extension must be zeros, and it is {bytes(padding)!r}")
    form = schema.payload_forms.form(extension, header)
    payload = read_columns(batch, header, form, max_message_bytes=max_message_bytes)
    columns, extras = payload.columns[: len(schema.fields)], payload.columns[len(schema.fields) :]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
    deletions = deletions_of(extension.deletions, header.record_count)
    if deletions is not None:
        check_deletions(rows, deletions, schema)
    check_nulls(rows, schema, deletions)
    _check_statistics(extension, schema, without_deletions(rows, deletions))
    check_timestamps(header, _timestamps(header, extension, schema, rows, extras), bounds)
    if form.extras.headers:
        check_headers(extras[-1])
    return rows


def _check_statistics(extension: typed_pb2.TypedBatch, schema: TopicSchema, rows: pa.RecordBatch) -> None:
    """Check that the statistics are those of `rows`, the rows that delete nothing."""
    read_statistics(extension.statistics, schema, rows.num_rows)
    places = {field.id: place for place, field in enumerate(schema.fields)}
    for statistics in extension.statistics:
        if statistics.field_id not in places:
            raise CorruptMessage(f"a batch has statistics of field {statistics.field_id}, but no such column")
        place = places[statistics.field_id]
        check_statistics(statistics, schema.fields[place], rows.column(place))


def _timestamps(
    header: BatchHeader,
    extension: typed_pb2.TypedBatch,
    schema: TopicSchema,
    rows: pa.RecordBatch,
    extras: list[pa.Array],
) -> pa.Array:
    if extension.has_timestamps:
        return extras[0]
    if schema.timestamp_column is not None:
        return rows.column(schema.names.index(schema.timestamp_column))
    if header.base_timestamp_us != header.max_timestamp_us:
        raise CorruptMessage("a batch without a column of time stamps has different first and highest time stamps")
    return pa.array([header.base_timestamp_us], TIMESTAMP)
