"""The keys of a stored batch. The reader does not decode its other columns. Pure.

A key is bytes. In a topic without a schema it is the column `key`. In a typed topic the key columns of the batch's
schema version make the key, in the same way as for the partition's hash (`typed/rows/keys.py`). Two rows have the
same bytes if and only if their key columns are equal:

- The types of key columns never change, so the versions of a schema do not differ in them.
- If there are several columns, each has its length before it, so no two different rows join to the same bytes.
- No key column is a float or a double. So there is no NaN and no -0.0.

A deletion is a record with a null value, and in a typed topic a row that the extension of its batch says to be one.

A record without a key has null: an untyped record without `key`, and a row whose only key column is null. If a schema
has several key columns, some or all may be null. That is a key, and it is equal to a key with the same nulls.

Compressed columns that are not needed stay compressed (`minilog/typed/schema/projection.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import pyarrow as pa

from minilog import compute as pc
from minilog.partition_key import PartitionKey
from minilog.record_batch.arrow_metadata import ArrowMessage
from minilog.record_batch.compaction import CODECS
from minilog.record_batch.gaps import offset_deltas
from minilog.record_batch.header import Attributes, BatchHeader, Buffer
from minilog.record_batch.reader import arrow_errors, check_message, read_stored
from minilog.record_batch.schema import MAX_MESSAGE_BYTES, payload_schema
from minilog.typed.rows.batch import read_extension
from minilog.typed.rows.deletions import deletions_of
from minilog.typed.rows.keys import key_of_columns
from minilog.typed.schema.projection import Projection
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog_broker.storage.compaction.stored_batches import check_batch

_MOST_PROJECTIONS = 1_024  # one for each form of a payload and choice of columns; an entry has some kibibytes
_KEY_PLACE, _VALUE_PLACE = 0, 1  # in a payload of keys and values
_FORM_ATTRIBUTES = Attributes.HAS_KEY | Attributes.HAS_HEADERS | Attributes.GAPS
_NO_SCHEMA = TopicSchemas(())


class KeyedRecords(NamedTuple):
    """The records of one batch. The columns are copies, so they do not keep the batch in memory."""

    keys: pa.BinaryArray
    """Null for a record without a key."""
    offsets: pa.Int64Array
    has_deletions: bool
    deletions: pa.BooleanArray | None = None
    """Which records delete their key, never null. None if the batch has no such record, or the caller did not ask."""


class KeyReader:
    """The reader of one partition. `schemas` are those of a typed topic. None for any other topic."""

    def __init__(self, key: PartitionKey, schemas: TopicSchemas | None) -> None:
        self.key = key
        self.schemas = schemas or _NO_SCHEMA
        self._projections: dict[Hashable, Projection] = {}

    def read(self, header: BatchHeader, batch: Buffer, *, finds_deletions: bool = False) -> KeyedRecords | None:
        """The records of a data batch that has records. None if the batch or its schema has no key column.

        Raises CorruptMessage, ResourceExhausted. Raises UnknownSchemaVersion if the metadata does not have the schema
        version yet."""
        check_batch(self.key, header, batch)
        if header.is_typed:
            return self._read_rows(header, batch, finds_deletions=finds_deletions)
        if not header.attributes & Attributes.HAS_KEY:
            return None
        if not header.attributes & CODECS:
            columns = read_stored(batch, header)  # without a copy
            has_deletions = columns.column(_VALUE_PLACE).null_count > 0
        else:
            columns, has_deletions = self._read_compressed(header, batch, finds_deletions=finds_deletions)
        records = _keyed(header, columns, columns.column(_KEY_PLACE), has_deletions=has_deletions)
        if not finds_deletions or not has_deletions:
            return records
        return records._replace(deletions=columns.column(_VALUE_PLACE).is_null())

    def _read_compressed(
        self, header: BatchHeader, batch: Buffer, *, finds_deletions: bool
    ) -> tuple[pa.RecordBatch, bool]:
        """The columns, with the key first, and whether the batch has deletions.

        If it has some and `finds_deletions` is set, the values follow the key."""
        schema = payload_schema(header.attributes)
        form = header.attributes & _FORM_ATTRIBUTES
        projection = self._projection(form, header, schema, (_KEY_PLACE,))
        message = _checked_message(header, batch, projection)
        has_deletions = message.nodes[_VALUE_PLACE][1] > 0
        if has_deletions and finds_deletions:
            projection = self._projection(form, header, schema, (_KEY_PLACE, _VALUE_PLACE))
        return _decoded(header, message, projection), has_deletions

    def _read_rows(self, header: BatchHeader, batch: Buffer, *, finds_deletions: bool) -> KeyedRecords | None:
        extension = read_extension(batch, header)
        schema = self.schemas.version(extension.schema_version)
        if not schema.key_columns:
            return None
        form = schema.payload_forms.form(extension, header)
        of_key = [schema.names.index(name) for name in schema.key_columns]
        places = tuple(sorted(of_key))
        projection = self._projection((schema.version, form.extras), header, form.arrow_schema, places)
        columns = _decoded(header, _checked_message(header, batch, projection), projection)
        with arrow_errors(header):
            keys = key_of_columns([columns.column(places.index(place)) for place in of_key])
        records = _keyed(header, columns, keys, has_deletions=header.has_deletions)
        if not finds_deletions or not header.has_deletions:
            return records
        return records._replace(deletions=deletions_of(extension.deletions, header.record_count))

    def _projection(
        self, form: Hashable, header: BatchHeader, schema: pa.Schema, places: tuple[int, ...]
    ) -> Projection:
        """The projection to the columns at these places, and to the offset deltas if the payload has them."""
        chosen = (form, places)
        projection = self._projections.get(chosen)
        if projection is None:
            if len(self._projections) >= _MOST_PROJECTIONS:
                self._projections.clear()
            last = (len(schema) - 1,) if header.has_gaps else ()
            projection = self._projections[chosen] = Projection(schema, (*places, *last))
        return projection


def _checked_message(header: BatchHeader, batch: Buffer, projection: Projection) -> ArrowMessage:
    payload = memoryview(batch)[header.payload_start :]
    return check_message(payload, header, projection.whole_shape, MAX_MESSAGE_BYTES)


def _decoded(header: BatchHeader, message: ArrowMessage, projection: Projection) -> pa.RecordBatch:
    """Decode the columns of a projection. Raises CorruptMessage, ResourceExhausted."""
    cut = b"".join(projection.cut_message(message))
    with arrow_errors(header):
        columns = pa.ipc.read_record_batch(pa.py_buffer(cut), projection.schema)
        columns.validate(full=True)
    return columns


def _keyed(header: BatchHeader, columns: pa.RecordBatch, keys: pa.Array, *, has_deletions: bool) -> KeyedRecords:
    with arrow_errors(header):
        if header.has_gaps:
            offsets = pc.add(offset_deltas(columns, header).cast(pa.int64()), header.base_offset)
        else:
            offsets = pc.arange(header.base_offset, header.next_offset)
        return KeyedRecords(pa.concat_arrays([keys]), offsets, has_deletions)
