"""The records of a compacted topic, as the judge reads them from batches on disks: key, content, deletion or not.

It reads each batch once: the crc of a header covers the rest of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader
from minilog.record_batch.reader import read_records
from tests.simulation.clients.keyed import IDENTITY

Place: TypeAlias = tuple[int, int, int, int]
"""Where a batch is and what it holds: base offset, last offset, leader epoch, crc. Two with one place are one batch."""


def place_of(header: BatchHeader) -> Place:
    return header.base_offset, header.last_offset_delta, header.partition_leader_epoch, header.crc


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """One record. `content` is all of it but the offset. `producer_id` is that of a transaction, else -1."""

    offset: int
    key: bytes | None
    is_deletion: bool
    content: tuple[Any, ...]
    producer_id: int = NO_PRODUCER_ID
    identity: bytes = b""  # the value that the workload knows it by; of a deletion it is in a header


class KeyedRecordReader:
    """Reads the records of batches of one partition of a topic without a schema."""

    def __init__(self, key: PartitionKey) -> None:
        self._key = key
        self._read: dict[Place, Mapping[int, KeyedRecord]] = {}

    def read(self, header: BatchHeader, content: Callable[[], bytes]) -> Mapping[int, KeyedRecord]:
        """The records by offset. None for a batch of markers. Raises CorruptMessage."""
        place = place_of(header)
        found = self._read.get(place)
        if found is None:
            found = self._read[place] = {each.offset: each for each in self._records(header, content())}
        return found

    def has_read(self, header: BatchHeader) -> bool:
        return place_of(header) in self._read

    def _records(self, header: BatchHeader, batch: bytes) -> list[KeyedRecord]:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        found = []
        for rows in read_records(batch, *self._key):
            for row in rows.to_pylist():
                headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
                content = row["key"], row["value"], row["timestamp"], headers
                is_deletion = row["key"] is not None and row["value"] is None
                identity = dict(headers).get(IDENTITY, b"") if row["value"] is None else row["value"]
                found.append(KeyedRecord(row["offset"], row["key"], is_deletion, content, producer_id, identity))
        return found
