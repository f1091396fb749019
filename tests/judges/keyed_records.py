"""The records of a compacted topic, as the judge reads them from batches on disks: key, content, deletion or not.

It reads each batch once: the crc of a header covers the rest of a batch. A row is read by the version that it was
written by, and its columns are known by their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader
from minilog.record_batch.reader import read_records
from minilog.typed.rows.batch import read_extension
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas

IDENTITY = "value"  # the header of a deletion that has the value it is known by
Place: TypeAlias = tuple[int, int, int, int]
"""Where a batch is and what it holds: base offset, last offset, leader epoch, crc. Two with one place are one batch."""


def place_of(header: BatchHeader) -> Place:
    return header.base_offset, header.last_offset_delta, header.partition_leader_epoch, header.crc


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """One record. `content` is all of it but the offset. `producer_id` is that of a transaction, else -1.
    `timestamp_s` is that of the record."""

    offset: int
    key: Hashable  # None: it has none
    is_deletion: bool
    content: tuple[Any, ...]
    producer_id: int = NO_PRODUCER_ID
    identity: bytes = b""  # the value that the workload knows it by; of a deletion it is in a header
    timestamp_s: float = 0.0


class KeyedRecordReader:
    """Reads the records of batches of one partition. `schema`: a version of its topic's schema, by its number."""

    def __init__(self, key: PartitionKey, schema: Callable[[int], TopicSchema]) -> None:
        self._key = key
        self._schema = schema
        self._read: dict[Place, Mapping[int, KeyedRecord]] = {}

    def read(self, header: BatchHeader, content: Callable[[], bytes]) -> Mapping[int, KeyedRecord]:
        """The records by offset. None for a batch of markers. Raises CorruptMessage."""
        place = place_of(header)
        found = self._read.get(place)
        if found is None:
            read = self._rows if header.is_typed else self._records
            found = self._read[place] = {each.offset: each for each in read(header, content())}
        return found

    def has_read(self, header: BatchHeader) -> bool:
        return place_of(header) in self._read

    def _records(self, header: BatchHeader, batch: bytes) -> Iterator[KeyedRecord]:
        for rows in read_records(batch, *self._key):
            for row in rows.to_pylist():
                headers = _headers_of(row["headers"])
                content = row["key"], row["value"], row["timestamp"], headers
                is_deletion = row["key"] is not None and row["value"] is None
                identity = value_in(headers) if row["value"] is None else row["value"]
                producer_id, timestamp_s = _producer_of(header), row["timestamp"].timestamp()
                yield KeyedRecord(row["offset"], row["key"], is_deletion, content, producer_id, identity, timestamp_s)

    def _rows(self, header: BatchHeader, batch: bytes) -> Iterator[KeyedRecord]:
        schema = self._schema(read_extension(batch, header).schema_version)
        selection = TypedSelection(schema, schema.names, timestamps=True, headers=True, deletions=True)
        schemas = TopicSchemas((schema,) * schema.version)  # this batch is of that one
        rows = TypedReader(schemas, selection, is_narrow=False).rows(
            batch, header, header.base_offset, header.next_offset
        )
        for row in () if rows is None else rows.to_pylist():
            columns = tuple((each.id, row[each.name]) for each in schema.fields if row[each.name] is not None)
            key = tuple(row[name] for name in schema.key_columns)
            content = columns, row["_timestamp"], _headers_of(row["_headers"])
            has_key = len(key) > 1 or key[0] is not None
            yield KeyedRecord(
                row["_offset"],
                key if has_key else None,
                row["_deleted"],
                content,
                _producer_of(header),
                timestamp_s=row["_timestamp"].timestamp(),
            )


def value_in(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """The value of a deletion, by its headers."""
    return dict(headers).get(IDENTITY) or b""


def _headers_of(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((each["key"], each["value"]) for each in headers or ())


def _producer_of(header: BatchHeader) -> int:
    """The one of the transaction that a batch belongs to."""
    return header.producer_id if header.is_transactional else NO_PRODUCER_ID
