"""The batches that compaction reads, with their headers, in the order of offsets. Compaction checks each of them.

Compaction gives a batch new checksums, which would hide damage. So a batch ends a cleaning if it is damaged, or if it
is not the next one.
"""

from __future__ import annotations

from typing import TypeAlias

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer, check_crc

MAX_LAST_OFFSET_DELTA = 2**31 - 1  # of a joined gap batch: offset deltas are int32

StoredBatch: TypeAlias = tuple[BatchHeader, Buffer]


def check_batch(key: PartitionKey, header: BatchHeader, batch: Buffer) -> None:
    """Check that `batch` is whole and belongs to this partition. Raises CorruptMessage."""
    if header.length != len(batch):
        raise CorruptMessage(
            f"the header of a batch at offset {header.base_offset} gives {header.length} bytes, {len(batch)} are there"
        )
    check_crc(key.topic_id, key.partition, batch, header)


class Order:
    """Checks that the first batch contains the offset `start_offset`, and that each other batch begins where the batch
    before it ended."""

    __slots__ = ("_is_first", "next_offset")

    def __init__(self, start_offset: int) -> None:
        self._is_first = True
        self.next_offset = start_offset

    def follow(self, header: BatchHeader) -> None:
        """Take in the next batch. Raises CorruptMessage if it is not the next one."""
        has_start = self._is_first and header.base_offset <= self.next_offset < header.next_offset
        if header.base_offset != self.next_offset and not has_start:
            raise CorruptMessage(
                f"a record batch at offset {header.base_offset} stands where {self.next_offset} follows"
            )
        self._is_first = False
        self.next_offset = header.next_offset


def is_gap(header: BatchHeader) -> bool:
    """Whether the batch is a gap batch: it has no record, and only covers its offsets."""
    return header.has_gaps and not header.record_count


def are_joinable(first: BatchHeader, last: BatchHeader) -> bool:
    """Whether the adjacent gap batches from `first` to `last` can become one."""
    is_in_bounds = last.last_offset - first.base_offset <= MAX_LAST_OFFSET_DELTA
    return is_in_bounds and first.partition_leader_epoch == last.partition_leader_epoch
