"""The part of stored batches that a replica sends to a reader that selects columns, rows or headers. Pure.

A stored batch of a typed topic goes out in one of three forms, always with its own offsets, epoch, producer and time
stamps:

    projected       the selected columns, which the replica does not decode
    left out        header and extension alone, without records: the statistics show that no row fits the condition, or
                    all rows delete their key, and the reader does not ask for deletions
    as it is        a batch that is not typed (a marker) or has no records (a gap), or of a schema version that this
                    broker does not know yet

Of a topic without a schema a reader may ask for the headers of batches: a batch goes out without its payload then.
Markers and compacted batches go out as they are.

The replica checks the stored checksum of a batch before it gives it a new one.

The replica cuts a run as far as an amount of work allows, because the core has no clock and others wait for the loop. A
piece of work is the cost of one comparison with the statistics of a batch, some microseconds. So neither many small
batches nor a long condition nor both together hold the loop for long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache

from minilog.errors import CorruptMessage, InvalidArgument, UnknownSchemaVersion
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import (
    HEADER_BYTES,
    Attributes,
    BatchHeader,
    Buffer,
    check_crc,
    crc_of_parts,
    encode_header,
    iterate_headers,
    payload_start,
)
from minilog.typed.conditions.predicate import TRUE, ColumnStatistics, Predicate, field_ids, outcomes, size_of
from minilog.typed.conditions.predicate_wire import predicate_from_wire
from minilog.typed.conditions.statistics import read_statistics
from minilog.typed.rows.batch import read_extension
from minilog.typed.rows.deletions import deletion_count
from minilog.typed.schema.evolution import is_widened
from minilog.typed.schema.payload_forms import Extras, PayloadForm
from minilog.typed.schema.projection import Projection
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2

BATCH_WORK = 20  # for each batch: check its checksum, read its extension, make its new header
BYTES_PER_WORK = 16 << 10  # in addition, for these bytes of a batch: compute the checksum, and join the columns


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of cutting a run: the bytes to send, the position `end` behind the last cut batch, and the work."""

    batches: bytes
    end: int
    work: int


def cut_run(
    run: Buffer, most_work: int, condition_work: int, cut: Callable[[memoryview, BatchHeader], Sequence[Buffer]]
) -> Scanned:
    """The part to send of a run of whole stored batches. `cut` cuts each of them. The part has at least the first
    batch. When `most_work` is done, no further batch begins."""
    view, pieces, end, work = memoryview(run), list[Buffer](), 0, 0
    for position, header in iterate_headers(view):
        if end and work >= most_work:
            break
        end = position + header.length
        pieces += cut(view[position:end], header)
        work += BATCH_WORK + condition_work + header.length // BYTES_PER_WORK
    return Scanned(b"".join(pieces), end, work)


class Scanner:
    """The columns and the condition that one position of a reader selects.

    Raises InvalidArgument if the schema does not have the columns, or if the condition does not fit it. Raises
    UnknownSchemaVersion if they were chosen by a version that this broker does not know yet."""

    def __init__(self, selection: typed_pb2.Selection, schemas: TopicSchemas) -> None:
        self._selection = selection
        self._schemas = schemas
        self._cuts: dict[tuple[int, Extras], _VersionCut] = {}
        schema = schemas.version(selection.schema_version)
        self._columns = columns = {field.id: field for field in schema.fields}
        if unknown := [field_id for field_id in selection.field_ids if field_id not in columns]:
            raise InvalidArgument(f"version {schema.version} of the schema has no column with the id {unknown[0]}")
        self._where: Predicate | None = None
        self.condition_work = 0
        """The work that the condition costs for each batch."""
        self._looked_at: AbstractSet[int] = frozenset()
        if selection.HasField("where"):
            try:
                self._where = predicate_from_wire(selection.where, columns.get)
            except CorruptMessage as error:
                raise InvalidArgument(str(error)) from error
            self._looked_at = field_ids(self._where)
            self.condition_work = size_of(self._where)

    def scan(self, key: PartitionKey, run: Buffer, most_work: int) -> Scanned:
        """See cut_run. Raises CorruptMessage for a damaged batch."""
        return cut_run(run, most_work, self.condition_work, lambda batch, header: self._cut(key, batch, header))

    def _cut(self, key: PartitionKey, batch: memoryview, header: BatchHeader) -> Sequence[Buffer]:
        if not header.is_typed or not header.record_count:
            return [batch]
        check_crc(key.topic_id, key.partition, batch, header)
        extension = read_extension(batch, header)
        try:
            schema = self._schemas.version(extension.schema_version)
        except UnknownSchemaVersion:
            return [batch]
        if not self._may_want(extension, schema, header):
            return _left_out(key, header, schema.version)
        form = schema.payload_forms.form(extension, header)  # of a stored batch, which has all columns
        kind = (schema.version, form.extras)
        if kind not in self._cuts:
            self._cuts[kind] = _VersionCut(self._selection, schema, form)
        return self._cuts[kind].cut(key, batch, header, extension.deletions)

    def _may_want(self, extension: typed_pb2.TypedBatch, schema: TopicSchema, header: BatchHeader) -> bool:
        """Whether the reader may want any row. It wants all deletions, or none."""
        if extension.deletions and self._selection.deletions:
            return True
        if self._where is None:
            return not extension.deletions or deletion_count(extension.deletions) < header.record_count
        return bool(outcomes(self._where, self._statistics(extension, schema, header)) & TRUE)

    def _statistics(
        self, extension: typed_pb2.TypedBatch, schema: TopicSchema, header: BatchHeader
    ) -> Callable[[int], ColumnStatistics | None]:
        """The statistics of a batch, by field, of the rows that delete nothing. A field that the batch's version does
        not have is null in all of its rows. A field that has become wider than the condition's type has no statistics,
        because a fact about all values of the narrow type need not hold for the wider one."""
        looked_at = [statistics for statistics in extension.statistics if statistics.field_id in self._looked_at]
        row_count = header.record_count - deletion_count(extension.deletions)
        of_batch = read_statistics(looked_at, schema, row_count)
        missing = ColumnStatistics(row_count, row_count)

        def of_field(field_id: int) -> ColumnStatistics | None:
            field = schema.by_id.get(field_id)
            if field is None:
                return missing
            return of_batch.get(field_id) if is_widened(field.type, self._columns[field_id].type) else None

        return of_field


class HeaderScanner:
    """The scanner of a position in a topic without a schema that asks for the headers of batches."""

    condition_work = 0

    def scan(self, key: PartitionKey, run: Buffer, most_work: int) -> Scanned:
        """See cut_run. Raises CorruptMessage for a damaged batch."""
        return cut_run(run, most_work, self.condition_work, lambda batch, header: _header_alone(key, batch, header))


def _header_alone(key: PartitionKey, batch: memoryview, header: BatchHeader) -> Sequence[Buffer]:
    """A batch without its payload, whose header still counts its records. A marker stays as it is. A compacted batch
    does, too, because its header does not show the offsets of its records."""
    if header.is_control or header.attributes & Attributes.COMPACTED:
        return [batch]
    check_crc(key.topic_id, key.partition, batch, header)
    gone = Attributes.HAS_KEY | Attributes.HAS_HEADERS | Attributes.LZ4 | Attributes.ZSTD
    return _sealed(key, header, b"", [], attributes=(header.attributes | Attributes.PROJECTED) & ~gone)


class _VersionCut:
    """The columns to send of batches of one version."""

    def __init__(self, selection: typed_pb2.Selection, schema: TopicSchema, whole: PayloadForm) -> None:
        stored, wanted = whole.extras, set(selection.field_ids)
        if selection.timestamps and not stored.timestamps and schema.timestamp_column is not None:
            wanted.add(schema.column(schema.timestamp_column).id)
        places = [place for place, field in enumerate(schema.fields) if field.id in wanted]
        sent = Extras(
            stored.timestamps and selection.timestamps, stored.headers and selection.headers, stored.offset_deltas
        )
        self._typed = typed_pb2.TypedBatch(
            schema_version=schema.version,
            field_ids=[schema.fields[place].id for place in places],
            has_timestamps=sent.timestamps,
        )
        self._extension = self._typed.SerializeToString()
        self._without: int = 0 if sent.headers else Attributes.HAS_HEADERS
        sent_names = [field.name for field in sent.arrow_fields]
        extras = [
            place
            for place, field in enumerate(stored.arrow_fields, start=len(schema.fields))
            if field.name in sent_names
        ]
        chosen = [*places, *extras]
        self._projection = Projection(whole.arrow_schema, chosen) if chosen else None
        if self._projection is None:
            self._without |= Attributes.LZ4 | Attributes.ZSTD

    def cut(self, key: PartitionKey, batch: memoryview, header: BatchHeader, deletions: bytes) -> list[Buffer]:
        payload = [] if self._projection is None else self._projection.cut(batch[header.payload_start :])
        attributes = (header.attributes | Attributes.PROJECTED) & ~self._without
        extension = self._extension_with(deletions) if deletions else self._extension
        return _sealed(key, header, extension, payload, attributes=attributes)

    def _extension_with(self, deletions: bytes) -> bytes:
        typed = typed_pb2.TypedBatch(deletions=deletions)
        typed.MergeFrom(self._typed)
        return typed.SerializeToString()


def _left_out(key: PartitionKey, header: BatchHeader, version: int) -> list[Buffer]:
    """A batch without its records, which keeps its place in the log."""
    gone = Attributes.HAS_HEADERS | Attributes.LZ4 | Attributes.ZSTD | Attributes.GAPS | Attributes.DELETES
    attributes = (header.attributes | Attributes.PROJECTED | Attributes.COMPACTED) & ~gone
    return _sealed(key, header, _bare_extension(version), [], attributes=attributes, record_count=0)


@lru_cache(256)
def _bare_extension(version: int) -> bytes:
    return typed_pb2.TypedBatch(schema_version=version).SerializeToString()


def _sealed(
    key: PartitionKey, header: BatchHeader, extension: bytes, payload: Sequence[Buffer], **changes: int
) -> list[Buffer]:
    """The pieces of a batch from these parts. Its header has the changes, the new length and the new checksums."""
    start = payload_start(len(extension))
    padded = extension.ljust(start - HEADER_BYTES, b"\0")
    length = start + sum(map(len, payload))
    header = replace(header, extension_bytes=len(extension), length=length, **changes)
    crc = crc_of_parts(key.topic_id, key.partition, encode_header(header), padded, *payload)
    return [encode_header(replace(header, crc=crc)), padded, *payload]
