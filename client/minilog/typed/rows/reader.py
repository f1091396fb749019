"""From typed batches, whole or projected, to the rows that a reader asked for. Pure.

Columns come by field id, with the names and types of the version that the reader was made with. A column that a batch
does not have is null. The reader applies `where` to every row, even if the replica has left rows out already. Beside
the columns there is always `_offset`, and `_timestamp`, `_key`, `_headers` and `_deleted` if the reader asked for them.

A reader that asks for deletions gets all of them, whatever `where` says: a program that keeps a table may have a row of
that key from before. Any other reader gets none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import CorruptMessage, InvalidArgument
from minilog.record_batch.gaps import records_between
from minilog.record_batch.header import Attributes, BatchHeader, Buffer
from minilog.record_batch.reader import arrow_errors, check_message
from minilog.record_batch.schema import (
    HEADERS,
    MAX_BATCH_BYTES,
    MAX_MESSAGE_BYTES,
    TIMESTAMP,
    uncompressed_limit,
)
from minilog.typed.conditions.predicate import Predicate, evaluate, field_ids
from minilog.typed.conditions.predicate_wire import predicate_to_wire
from minilog.typed.rows.batch import ROW_BYTES, read_extension
from minilog.typed.rows.conversion import as_promised, as_wanted
from minilog.typed.rows.deletions import deletions_of
from minilog.typed.rows.keys import key_of_columns
from minilog.typed.schema.fields import Field, arrow_field
from minilog.typed.schema.payload_forms import PayloadForm
from minilog.typed.schema.projection import check_order
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2

OFFSET = pa.field("_offset", pa.int64(), nullable=False)
DELETED = pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)


@dataclass(frozen=True)
class TypedSelection:
    """What is read of a typed topic: `columns` of `schema` by name, in this order, of the rows for which `where` is
    true (None: all). `asked_version`: by which version replicas are asked, None: that of `schema`. They are asked for
    all rows where they do not know the types of `where` by that version."""

    schema: TopicSchema
    columns: tuple[str, ...]
    where: Predicate | None = None
    timestamps: bool = False
    keys: bool = False
    headers: bool = False
    asked_version: TopicSchema | None = None
    deletions: bool = False

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The columns, in whatever case they are named. Raises InvalidSchema for one that is not there."""
        return tuple(self.schema.column_as_spark(name) for name in self.columns)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """What `rows` gives."""
        extras = [
            *([pa.field("_timestamp", TIMESTAMP)] if self.timestamps else []),
            *([pa.field("_key", pa.binary())] if self.keys else []),
            *([pa.field("_headers", HEADERS)] if self.headers else []),
            *([DELETED] if self.deletions else []),
        ]
        return pa.schema([*map(self._arrow_field, self.fields), *extras, OFFSET])

    def _arrow_field(self, field: Field) -> pa.Field:
        """In a deletion all columns but those of the key are null."""
        is_null = self.deletions and field.name not in self.schema.key_columns
        return arrow_field(field).with_nullable(True) if is_null else arrow_field(field)

    def check(self) -> None:
        """Raises InvalidSchema for a column that is not there, InvalidArgument for one that is named twice."""
        if len({field.id for field in self.fields}) != len(self.columns):
            raise InvalidArgument(f"a column is named twice: {', '.join(self.columns)}")

    def to_wire(self) -> typed_pb2.Selection:
        """What a replica is asked for: also what only the condition or the key needs."""
        names = self.schema.key_columns if self.keys else ()
        wanted = {field.id for field in self.fields} | {self.schema.column(name).id for name in names}
        compared = frozenset() if self.where is None else field_ids(self.where)
        other = self.schema if self.asked_version is None else self.asked_version
        same = all(other.by_id[field_id].type == self.schema.by_id[field_id].type for field_id in compared)
        return typed_pb2.Selection(
            schema_version=other.version,
            field_ids=sorted(wanted | compared),
            timestamps=self.timestamps,
            headers=self.headers,
            where=predicate_to_wire(self.where) if self.where is not None and same else None,
            deletions=self.deletions,
        )


class TypedReader:
    """The reader of one topic. It makes the rows of one selection. `wire_selection` is the message of it for replicas,
    None for a reader of whole batches."""

    def __init__(self, schemas: TopicSchemas, selection: TypedSelection, *, is_narrow: bool = True) -> None:
        self.schemas = schemas
        self.selection = selection
        self.wire_selection = selection.to_wire() if is_narrow else None

    def rows(self, batch: Buffer, header: BatchHeader, first: int, end: int) -> pa.RecordBatch | None:
        """Those of a batch with offsets in [first, end) that are selected, as `selection.arrow_schema`; None where
        there are none. The crc is not checked here.

        Raises CorruptMessage, ResourceExhausted, UnknownSchemaVersion, NarrowSchemaVersion."""
        if header.is_control or not header.record_count:
            return None  # a marker, a gap, or what the replica left out since the condition cannot be true for it
        if not header.is_typed:
            raise CorruptMessage(
                f"the record batch at offset {header.base_offset} of a typed topic has attributes "
                f"{header.attributes:#x}: it is not read as rows"
            )
        extension = read_extension(batch, header)
        schema = self.schemas.version(extension.schema_version)
        form = schema.payload_forms.form(extension, header)
        decoded = read_columns(batch, header, form, max_message_bytes=MAX_MESSAGE_BYTES)
        deletions = deletions_of(extension.deletions, header.record_count)
        with arrow_errors(header):
            records, offsets, deletions = _rows_between(decoded, deletions, header, first, end)
            if deletions is not None and not self.selection.deletions:
                stay = pc.invert(deletions)
                records, offsets, deletions = _filtered(records, stay), offsets.filter(stay), None
            parts = _Parts(records, len(offsets), form, schema, header.base_timestamp_us, deletions)
            return self._selected(parts, offsets) if len(offsets) else None

    def _selected(self, parts: _Parts, offsets: pa.Array) -> pa.RecordBatch | None:
        selection = self.selection
        by_id = {field.id: field for field in selection.schema.fields}

        def column(field_id: int) -> pa.Array:
            return parts.column(by_id[field_id])

        columns = [parts.column(field) for field in selection.fields]
        if selection.timestamps:
            columns.append(parts.timestamps())
        if selection.keys:
            columns.append(parts.keys(selection.schema, column))
        if selection.headers:
            columns.append(parts.headers())
        if selection.deletions:
            columns.append(parts.are_deletions())
        rows = pa.RecordBatch.from_arrays([*columns, offsets], schema=selection.arrow_schema)
        if selection.where is not None:
            rows = rows.filter(self._are_wanted(selection.where, parts, column))
        return rows if rows.num_rows else None

    @staticmethod
    def _are_wanted(where: Predicate, parts: _Parts, column: Callable[[int], pa.Array]) -> pa.BooleanArray:
        are_true = evaluate(where, column, parts.count)
        return are_true if parts.deletions is None else pc.or_(are_true.fill_null(False), parts.deletions)


def _rows_between(
    decoded: pa.RecordBatch, deletions: pa.BooleanArray | None, header: BatchHeader, first: int, end: int
) -> tuple[pa.RecordBatch, pa.Array, pa.BooleanArray | None]:
    """What records_between gives, and which of the rows are deletions."""
    if deletions is None:
        return *records_between(decoded, header, first, end), None
    place = decoded.num_columns - header.has_gaps
    columns, names = list(decoded.columns), list(decoded.schema.names)
    columns.insert(place, deletions)
    names.insert(place, DELETED_COLUMN)
    records, offsets = records_between(pa.RecordBatch.from_arrays(columns, names=names), header, first, end)
    return records.select(range(place)), offsets, records.column(place)


def _filtered(records: pa.RecordBatch, stay: pa.BooleanArray) -> pa.RecordBatch:
    return records.filter(stay) if records.num_columns else records


@dataclass(frozen=True, slots=True)
class _Parts:
    """The columns of some rows of one batch."""

    decoded: pa.RecordBatch
    count: int
    form: PayloadForm
    schema: TopicSchema
    base_timestamp_us: int
    deletions: pa.BooleanArray | None = None

    def column(self, wanted: Field) -> pa.Array:
        """By its id, as the reader knows it."""
        for place, column in enumerate(self.form.columns):
            if column == wanted:
                return self.decoded.column(place)
            if column.id == wanted.id:
                return self._promised(as_wanted(self.decoded.column(place), column, wanted), wanted)
        if wanted.id in self.schema.by_id:
            raise CorruptMessage(f"a projected batch does not have column {wanted.name!r}, which was asked for")
        return self._promised(pa.nulls(self.count, arrow_field(wanted).type), wanted)

    def _promised(self, values: pa.Array, wanted: Field) -> pa.Array:
        is_of_key = wanted.id in self.schema.key_field_ids
        return as_promised(values, wanted, None if is_of_key else self.deletions)

    def are_deletions(self) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(False), self.count) if self.deletions is None else self.deletions

    def timestamps(self) -> pa.Array:
        if self.form.extras.timestamps:
            return self.decoded.column(len(self.form.columns))
        if self.schema.timestamp_column is not None:
            return self.column(self.schema.column(self.schema.timestamp_column))
        return pa.repeat(pa.scalar(self.base_timestamp_us, TIMESTAMP), self.count)

    def keys(self, schema: TopicSchema, column: Callable[[int], pa.Array]) -> pa.Array:
        key = key_of_columns([column(schema.column(name).id) for name in schema.key_columns])
        return pa.nulls(self.count, pa.binary()) if key is None else key

    def headers(self) -> pa.Array:
        return (
            self.decoded.column(self.decoded.num_columns - 1)
            if self.form.extras.headers
            else pa.nulls(self.count, HEADERS)
        )


def read_columns(batch: Buffer, header: BatchHeader, form: PayloadForm, *, max_message_bytes: int) -> pa.RecordBatch:
    """The payload of a typed batch, as `form.arrow_schema`, looked at as read_payload does.

    Raises CorruptMessage, also where no replica could cut it; ResourceExhausted."""
    if header.length != len(batch):
        raise CorruptMessage(
            f"the header of a batch at offset {header.base_offset} gives {header.length} bytes, {len(batch)} are there"
        )
    payload = memoryview(batch)[header.payload_start :]
    if header.attributes & Attributes.PROJECTED:
        max_message_bytes = MAX_BATCH_BYTES  # a column may have become smaller than the batch that it is of
    if header.record_count * ROW_BYTES > (limit := uncompressed_limit(header.length, max_message_bytes)):
        raise CorruptMessage(
            f"the header of the batch at offset {header.base_offset} gives {header.record_count} rows of at least "
            f"{ROW_BYTES} bytes, {limit} bytes are allowed for the {header.length} that it has"
        )
    if header.attributes & Attributes.PROJECTED and not form.arrow_schema.names:
        if len(payload):
            raise CorruptMessage(f"the record batch at offset {header.base_offset} has no columns, and a payload")
        return pa.RecordBatch.from_arrays([], schema=form.arrow_schema)
    check_order(check_message(payload, header, form.shape, max_message_bytes).buffers)
    with arrow_errors(header):
        decoded = pa.ipc.read_record_batch(pa.py_buffer(payload), form.arrow_schema)
        decoded.validate(full=True)
    return decoded
