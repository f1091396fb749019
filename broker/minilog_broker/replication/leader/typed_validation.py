"""What a leader checks before a batch is written to a topic, whether it has a schema or not.

Of a typed batch all that `validate_batch` checks, by the version that the batch names; then what the schema forbids to
be null, and that the statistics are those of the rows: a reader skips batches by them. So no poison reaches a reader.
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
from minilog.typed.batch import read_extension
from minilog.typed.reader import read_columns
from minilog.typed.rows import check_nulls
from minilog.typed.statistics import check_statistics, read_statistics
from minilog.typed.topic_schema import TopicSchema
from minilog.typed.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2


def validate_topic_batch(
    topic_id: bytes,
    partition: int,
    batch: Buffer,
    *,
    max_message_bytes: int,
    schemas: TopicSchemas | None,
    bounds: TimestampBounds | None = None,
) -> BatchHeader:
    """The header of `batch`, one whole data batch that a client sent for this topic id and partition; `schemas` are
    the topic's, None where it has none. `bounds`: of its time stamps, None: any.

    Raises what `validate_batch` raises; UnknownSchemaVersion for a version that is not known here yet; InvalidRecord
    for rows where there is no schema, for records where there is one, and for nulls that the schema forbids."""
    header = check_envelope(topic_id, partition, batch, max_message_bytes=max_message_bytes)
    if not header.is_typed and schemas is None:
        check_records(batch, header, max_message_bytes=max_message_bytes, bounds=bounds)
        return header
    if schemas is None:
        raise InvalidRecord("a batch of rows was sent, and the topic has no schema: send key and value")
    if not header.is_typed:
        raise InvalidRecord(
            "a batch of keys and values was sent, and the topic has a schema: send rows of its version "
            f"{schemas.latest.version}"
        )
    told = read_extension(batch, header)
    schema = schemas.version(told.schema_version)
    with arrow_errors(header):
        _check_rows(batch, header, told, schema, max_message_bytes, bounds)
    return header


def _check_rows(
    batch: Buffer,
    header: BatchHeader,
    told: typed_pb2.TypedBatch,
    schema: TopicSchema,
    max_message_bytes: int,
    bounds: TimestampBounds | None,
) -> None:
    if header.attributes & Attributes.HAS_KEY:
        raise CorruptMessage("a typed batch says that it has a column of keys, and is made of columns of its own")
    if told.field_ids:
        raise CorruptMessage("a batch that is not projected names the columns that it has")
    padding = batch[HEADER_BYTES + header.extension_bytes : header.payload_start]
    if any(padding):
        raise CorruptMessage(f"the extension of a batch is padded with {bytes(padding)!r} and not with zeros")
    form = schema.payload_forms.form(told, header)
    found = read_columns(batch, header, form, max_message_bytes=max_message_bytes)
    columns, extras = found.columns[: len(schema.fields)], found.columns[len(schema.fields) :]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
    check_nulls(rows, schema)
    read_statistics(told.statistics, schema, header.record_count)
    places = {each.id: place for place, each in enumerate(schema.fields)}
    for said in told.statistics:
        if said.field_id not in places:
            raise CorruptMessage(f"a batch tells of field {said.field_id}, which is not a column of its own")
        place = places[said.field_id]
        check_statistics(said, schema.fields[place], columns[place])
    check_timestamps(header, _timestamps(header, told, schema, rows, extras), bounds)
    if form.has_headers:
        check_headers(extras[-1])


def _timestamps(
    header: BatchHeader,
    told: typed_pb2.TypedBatch,
    schema: TopicSchema,
    rows: pa.RecordBatch,
    extras: list[pa.Array],
) -> pa.Array:
    if told.has_timestamps:
        return extras[0]
    if schema.timestamp_column is not None:
        return rows.column(schema.names.index(schema.timestamp_column))
    if header.base_timestamp_us != header.max_timestamp_us:
        raise CorruptMessage("a batch without a column of time stamps has a first and another highest one")
    return pa.array([header.base_timestamp_us], TIMESTAMP)
