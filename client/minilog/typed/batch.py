"""The batch of a typed topic: the columns of one version of its schema, behind an extension of the header.

    header       the 72 bytes of any batch, with the attribute TYPED
    extension    a TypedBatch: the version, and what the batch says of its columns (statistics.py); padded to 8 bytes
    payload      one Arrow message: the columns in the version's order, then the time stamps, then the record headers

Time stamps are a column only where they have to be: else they are those of the schema's timestamp column, or all of
them are the header's. A key is no column either: it is made of the key columns (keys.py). All of it is under the crc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from minilog.errors import CorruptMessage, InvalidRecord
from minilog.record_batch.builder import assemble, check_compression, check_size, client_header, message_of
from minilog.record_batch.header import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Attributes,
    BatchHeader,
    Buffer,
)
from minilog.record_batch.schema import TIMESTAMP
from minilog.typed.statistics import MAX_COLUMNS, default_columns, statistics_of
from minilog.typed.topic_schema import TopicSchema
from minilog.v1 import typed_pb2
from minilog.versions import parse_known

# What a row counts at least where bytes are bounded. A reader makes an offset for each row, and nulls for the columns
# that a batch does not have; a row of one boolean is a bit.
ROW_BYTES = 8


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows on their way into a topic: columns of `schema` in its order, as rows.py makes them.

    `timestamps` are null where a row has none of its own; `headers` None where no row has any."""

    schema: TopicSchema
    columns: pa.RecordBatch
    timestamps: pa.Array | None = None
    headers: pa.Array | None = None

    @property
    def num_rows(self) -> int:
        return int(self.columns.num_rows)

    @property
    def nbytes(self) -> int:
        """What bounds count: at least ROW_BYTES a row."""
        extras = (self.timestamps, self.headers)
        found = self.columns.nbytes + sum(each.nbytes for each in extras if each is not None)
        return max(int(found), ROW_BYTES * self.num_rows)

    def slice(self, start: int, rows: int) -> TypedRows:
        """Some of them, without a copy."""
        extras = (None if each is None else each.slice(start, rows) for each in (self.timestamps, self.headers))
        return TypedRows(self.schema, self.columns.slice(start, rows), *extras)

    def take(self, places: pa.Array) -> TypedRows:
        """Those at these places."""
        extras = (None if each is None else each.take(places) for each in (self.timestamps, self.headers))
        return TypedRows(self.schema, self.columns.take(places), *extras)


def build_typed_batch(
    topic_id: bytes,
    partition: int,
    rows: TypedRows,
    *,
    statistics_columns: Sequence[str] | None = None,
    compression: str = "none",
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    max_bytes: int | None = None,
    timestamp_us: int,
    transactional: bool = False,
) -> bytes:
    """One batch of all of `rows`; the other arguments are those of `build_batch`.

    `statistics_columns`: what the batch tells of, by default what `default_columns` names; those that the schema does
    not have are left out, and those behind the first MAX_COLUMNS.

    Raises InvalidRecord, InvalidArgument, MessageTooLarge."""
    check_compression(compression)
    if rows.num_rows == 0:
        raise InvalidRecord("a record batch holds at least one row: these columns have none")
    stamps, bounds = _timestamps(rows, timestamp_us)
    columns = payload_columns(rows, stamps)
    codec, message = message_of(columns, compression)
    extension = _extension(rows, statistics_columns, has_timestamps=stamps is not None)
    header = client_header(
        Attributes.TYPED
        | codec
        | (Attributes.HAS_HEADERS if rows.headers is not None else 0)
        | (Attributes.TRANSACTIONAL if transactional else 0),
        record_count=rows.num_rows,
        timestamps_us=bounds,
        producer=(producer_id, producer_epoch, base_sequence),
        extension_bytes=len(extension),
    )
    before = extension.ljust(header.payload_start - HEADER_BYTES, b"\0")
    uncompressed = max(pa.ipc.get_record_batch_size(columns), ROW_BYTES * rows.num_rows)
    check_size(header.payload_start + len(message), uncompressed, max_bytes)
    return assemble(topic_id, partition, header, before, message)


def payload_columns(rows: TypedRows, timestamps: pa.Array | None) -> pa.RecordBatch:
    """What the payload of a batch of these rows has."""
    extras = [each for each in (timestamps, rows.headers) if each is not None]
    form = rows.schema.payload_forms.form_of(
        None, has_timestamps=timestamps is not None, has_headers=rows.headers is not None
    )
    return pa.RecordBatch.from_arrays([*rows.columns.columns, *extras], schema=form.arrow_schema)


def _timestamps(rows: TypedRows, timestamp_us: int) -> tuple[pa.Array | None, tuple[int, int]]:
    """A column of them, where they have to be one; the first and the highest. A row has its own, else that of the
    schema's timestamp column, else `timestamp_us`."""
    schema, given = rows.schema, rows.timestamps
    if given is not None and given.null_count == len(given):
        given = None
    if schema.timestamp_column is not None:
        column = rows.columns.column(schema.names.index(schema.timestamp_column))
        if given is None and column.null_count == 0:
            return None, _bounds(column)
        given = column if given is None else pc.coalesce(given, column)
    elif given is None:
        return None, (timestamp_us, timestamp_us)
    filled = given.fill_null(pa.scalar(timestamp_us, TIMESTAMP))
    if schema.timestamp_column is None and pc.min(filled).value == pc.max(filled).value:
        return None, _bounds(filled)
    return filled, _bounds(filled)


def _bounds(timestamps: pa.Array) -> tuple[int, int]:
    return timestamps[0].value, pc.max(timestamps).value


def _extension(rows: TypedRows, statistics_columns: Sequence[str] | None, *, has_timestamps: bool) -> bytes:
    names = default_columns(rows.schema) if statistics_columns is None else statistics_columns
    places = [rows.schema.names.index(name) for name in dict.fromkeys(names) if name in rows.schema.names][:MAX_COLUMNS]
    told = typed_pb2.TypedBatch(
        schema_version=rows.schema.version,
        statistics=statistics_of((rows.schema.fields[place], rows.columns.column(place)) for place in places),
        has_timestamps=has_timestamps,
    )
    return told.SerializeToString()


# -- what stands in a batch


def read_extension(batch: Buffer, header: BatchHeader) -> typed_pb2.TypedBatch:
    """What a typed batch says of itself. Raises CorruptMessage; UnsupportedVersion where a later version says more."""
    where = f"the typed record batch at offset {header.base_offset}"
    if not header.is_typed or not header.extension_bytes:
        raise CorruptMessage(f"{where} has no extension")
    content = bytes(batch[HEADER_BYTES : HEADER_BYTES + header.extension_bytes])
    try:
        return parse_known(typed_pb2.TypedBatch, content, where)
    except DecodeError as error:
        raise CorruptMessage(f"{where} has an extension that cannot be read: {error}") from error
