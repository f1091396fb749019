"""A stored batch of rows without some of its rows (record_batch/gaps.py). Pure."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from minilog import compute as pc
from minilog.record_batch.compaction import CODECS, compressed_batch, compression_of
from minilog.record_batch.gaps import gap_batch, offset_deltas
from minilog.record_batch.header import HEADER_BYTES, Attributes, BatchHeader, Buffer
from minilog.record_batch.schema import MAX_MESSAGE_BYTES
from minilog.typed.conditions.statistics import statistics_of
from minilog.typed.rows.batch import read_extension
from minilog.typed.rows.deletions import bitmap_of, deletions_of, without_deletions
from minilog.typed.rows.reader import read_columns
from minilog.typed.schema.payload_forms import Extras
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2


def compacted_typed_batch(
    topic_id: bytes,
    partition: int,
    batch: Buffer,
    header: BatchHeader,
    is_kept: pa.BooleanArray,
    schemas: TopicSchemas,
) -> bytes:
    """`batch` without some of its rows. `is_kept` has one entry for each of its rows: true or false, never null. The
    columns that had statistics have those of the rows that stay. The result is a gap batch if no row stays. The caller
    has checked the crc of `batch`. Raises CorruptMessage, ResourceExhausted, UnknownSchemaVersion."""
    extension = read_extension(batch, header)
    schema = schemas.version(extension.schema_version)
    form = schema.payload_forms.form(extension, header)
    decoded = read_columns(batch, header, form, max_message_bytes=MAX_MESSAGE_BYTES)
    deltas = offset_deltas(decoded, header).filter(is_kept)
    if not len(deltas):
        return gap_batch(topic_id, partition, header)
    extras = Extras(form.extras.timestamps, form.extras.headers, offset_deltas=True)
    schema_with_gaps = schema.payload_forms.form_of(None, extras).arrow_schema
    columns = [*decoded.columns[: len(schema_with_gaps) - 1]]
    rows = pa.RecordBatch.from_arrays(
        [*(column.filter(is_kept) for column in columns), deltas], schema=schema_with_gaps
    )
    deletions = _deletions_left(extension, header, is_kept)
    content = _extension_of(extension, schema, rows, deletions).SerializeToString()
    kept = _header_of(header, schema, rows, has_timestamps=extras.timestamps, extension_bytes=len(content))
    if deletions is None:
        kept = replace(kept, attributes=kept.attributes & ~Attributes.DELETES)
    padded = content.ljust(kept.payload_start - HEADER_BYTES, b"\0")
    return compressed_batch(topic_id, partition, kept, padded, rows, compression_of(header))


def _deletions_left(
    stored: typed_pb2.TypedBatch, header: BatchHeader, is_kept: pa.BooleanArray
) -> pa.BooleanArray | None:
    """Which of the rows that stay delete their key. None if none does."""
    deletions = deletions_of(stored.deletions, header.record_count)
    if deletions is None:
        return None
    left = deletions.filter(is_kept)
    return left if left.true_count else None


def _extension_of(
    stored: typed_pb2.TypedBatch, schema: TopicSchema, rows: pa.RecordBatch, deletions: pa.BooleanArray | None
) -> typed_pb2.TypedBatch:
    places_by_id = {field.id: place for place, field in enumerate(schema.fields)}
    places = [places_by_id[statistics.field_id] for statistics in stored.statistics]
    columns = without_deletions(rows.select(places), deletions).columns
    extension = typed_pb2.TypedBatch()
    extension.CopyFrom(stored)
    del extension.statistics[:]
    extension.statistics.extend(statistics_of(zip((schema.fields[place] for place in places), columns, strict=True)))
    extension.deletions = b"" if deletions is None else bitmap_of(deletions)
    return extension


def _header_of(
    header: BatchHeader, schema: TopicSchema, rows: pa.RecordBatch, *, has_timestamps: bool, extension_bytes: int
) -> BatchHeader:
    """Where no column has time stamps, those of the header are those of every row."""
    stamps = None
    if has_timestamps:
        stamps = rows.column(len(schema.fields))
    elif schema.timestamp_column is not None:
        stamps = rows.column(schema.names.index(schema.timestamp_column))
    first_us, highest_us = header.base_timestamp_us, header.max_timestamp_us
    if stamps is not None:
        first_us, highest_us = stamps[0].value, pc.max(stamps).value
    return replace(
        header,
        attributes=header.attributes & ~CODECS | Attributes.COMPACTED | Attributes.GAPS,
        record_count=rows.num_rows,
        base_timestamp_us=first_us,
        max_timestamp_us=highest_us,
        extension_bytes=extension_bytes,
    )
