"""The batch of a typed topic: the columns of one version of its schema, behind an extension of the header.

    header       the 72 bytes of any batch, with the attribute TYPED
    extension    a TypedBatch: the version, what the batch says of its columns (statistics.py), and which rows delete
                 their key (deletions.py); padded to 8 bytes
    payload      one Arrow message: the columns in the version's order, then the time stamps, then the record headers

Time stamps are a column only where they have to be: else they are those of the schema's timestamp column, or all of
them are the header's. A key is no column either: it is made of the key columns (keys.py). All of it is under the crc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from minilog import compute as pc
from minilog.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from minilog.record_batch.bounds import MAX_ROWS_WITH_DELETIONS
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
from minilog.record_batch.schema import HEADERS, TIMESTAMP
from minilog.typed.conditions.statistics import MAX_COLUMNS, default_columns, statistics_of
from minilog.typed.rows.deletions import bitmap_of, check_bitmap, without_deletions
from minilog.typed.schema.payload_forms import Extras
from minilog.typed.schema.row_form import DeletedRow
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.types import Headers
from minilog.v1 import typed_pb2
from minilog.versions import parse_known

# What a row counts at least where bytes are bounded. A reader makes an offset for each row, and nulls for the columns
# that a batch does not have; a row of one boolean is a bit.
ROW_BYTES = 8


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows on their way into a topic: columns of `schema` in its order, as rows.py makes them.

    `timestamps` are null where a row has none of its own; `headers` None where no row has any. `statistics`: the
    columns that their batches tell of, None: those of `default_columns`. `deletions`: which rows delete their key
    (never null), so that their other columns are null; None where no row does."""

    schema: TopicSchema
    columns: pa.RecordBatch
    timestamps: pa.Array | None = None
    headers: pa.Array | None = None
    statistics: tuple[str, ...] | None = None
    deletions: pa.BooleanArray | None = None

    @property
    def num_rows(self) -> int:
        return int(self.columns.num_rows)

    @property
    def nbytes(self) -> int:
        """What bounds count: at least ROW_BYTES a row."""
        extras = (self.timestamps, self.headers, self.deletions)
        size_bytes = self.columns.nbytes + sum(extra.nbytes for extra in extras if extra is not None)
        return max(int(size_bytes), ROW_BYTES * self.num_rows)

    def slice(self, start: int, rows: int) -> TypedRows:
        """Some of them, without a copy."""
        return self._with(lambda array: array.slice(start, rows))

    def take(self, places: pa.Array) -> TypedRows:
        """Those at these places."""
        return self._with(lambda array: array.take(places))

    def _with(self, cut: Callable[[Any], Any]) -> TypedRows:
        timestamps = None if self.timestamps is None else cut(self.timestamps)
        headers = None if self.headers is None else cut(self.headers)
        deletions = None if self.deletions is None else cut(self.deletions)
        has_deletions = deletions is not None and deletions.true_count
        return replace(
            self,
            columns=cut(self.columns),
            timestamps=timestamps,
            headers=headers,
            deletions=deletions if has_deletions else None,
        )


def gathered_rows(
    schema: TopicSchema,
    values: Sequence[tuple[Any, ...]],
    timestamps_us: Sequence[int],
    headers: Sequence[Headers | None],
    statistics: tuple[str, ...] | None,
) -> TypedRows:
    """Rows that were given one by one, and checked (row_form.py)."""
    arrow = schema.arrow_schema
    columns = [pa.array(column, field.type) for field, column in zip(arrow, zip(*values, strict=True), strict=True)]
    rows = pa.RecordBatch.from_arrays(columns, schema=arrow)
    stamped = schema.timestamp_column is None or rows.column(schema.names.index(schema.timestamp_column)).null_count
    return TypedRows(
        schema,
        rows,
        pa.array(timestamps_us, pa.int64()).cast(TIMESTAMP) if stamped else None,
        pa.array(headers, HEADERS) if any(headers) else None,
        statistics,
        _gathered_deletions(values),
    )


def _gathered_deletions(values: Sequence[tuple[Any, ...]]) -> pa.BooleanArray | None:
    deletions = [type(row) is DeletedRow for row in values]
    return pa.array(deletions) if any(deletions) else None


def build_typed_batch(
    topic_id: bytes,
    partition: int,
    rows: TypedRows,
    *,
    compression: str = "none",
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    max_bytes: int | None = None,
    timestamp_us: int,
    transactional: bool = False,
) -> bytes:
    """One batch of all of `rows`; the other arguments are those of `build_batch`.

    Raises InvalidRecord, InvalidArgument, MessageTooLarge."""
    check_compression(compression)
    if rows.num_rows == 0:
        raise InvalidRecord("a record batch holds at least one row: these columns have none")
    if rows.deletions is not None and rows.num_rows > MAX_ROWS_WITH_DELETIONS:
        raise MessageTooLarge(
            f"a record batch with deletions has {rows.num_rows} rows, at most {MAX_ROWS_WITH_DELETIONS} are allowed: "
            "split it"
        )
    stamps, bounds = _timestamps(rows, timestamp_us)
    columns = payload_columns(rows, stamps)
    codec, message = message_of(columns, compression)
    extension = _extension(rows, has_timestamps=stamps is not None)
    header = client_header(
        Attributes.TYPED
        | codec
        | (Attributes.HAS_HEADERS if rows.headers is not None else 0)
        | (Attributes.DELETES if rows.deletions is not None else 0)
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
    extras = [extra for extra in (timestamps, rows.headers) if extra is not None]
    form = rows.schema.payload_forms.form_of(None, Extras(timestamps is not None, rows.headers is not None))
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


def _extension(rows: TypedRows, *, has_timestamps: bool) -> bytes:
    names = default_columns(rows.schema) if rows.statistics is None else rows.statistics
    places = [rows.schema.names.index(name) for name in dict.fromkeys(names) if name in rows.schema.names][:MAX_COLUMNS]
    columns = without_deletions(rows.columns.select(places), rows.deletions).columns
    extension = typed_pb2.TypedBatch(
        schema_version=rows.schema.version,
        statistics=statistics_of(zip((rows.schema.fields[place] for place in places), columns, strict=True)),
        has_timestamps=has_timestamps,
        deletions=b"" if rows.deletions is None else bitmap_of(rows.deletions),
    )
    return extension.SerializeToString()


# -- what stands in a batch


def read_extension(batch: Buffer, header: BatchHeader) -> typed_pb2.TypedBatch:
    """What a typed batch says of itself. Raises CorruptMessage; UnsupportedVersion where a later version says more."""
    where = f"the typed record batch at offset {header.base_offset}"
    if not header.is_typed or not header.extension_bytes:
        raise CorruptMessage(f"{where} has no extension")
    content = bytes(batch[HEADER_BYTES : HEADER_BYTES + header.extension_bytes])
    try:
        extension = parse_known(typed_pb2.TypedBatch, content, where)
    except DecodeError as error:
        raise CorruptMessage(f"{where} has an extension that cannot be read: {error}") from error
    check_bitmap(extension.deletions, header)
    return extension
