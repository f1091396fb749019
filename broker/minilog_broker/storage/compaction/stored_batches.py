"""The batches that compaction reads: with their headers, in the order of offsets, and checked before it believes them.

Compaction gives a batch new checksums. So a batch that is damaged, or is not the next one, ends a cleaning.
"""

from __future__ import annotations

from typing import TypeAlias

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer, check_crc

MAX_LAST_OFFSET_DELTA = 2**31 - 1  # of a joined gap batch: what an int32 holds, as offset deltas are

StoredBatch: TypeAlias = tuple[BatchHeader, Buffer]


def check_batch(key: PartitionKey, header: BatchHeader, batch: Buffer) -> None:
    """Checks that `batch` is whole and of this partition. Raises CorruptMessage."""
    if header.length != len(batch):
        raise CorruptMessage(
            f"the header of a batch at offset {header.base_offset} gives {header.length} bytes, {len(batch)} are there"
        )
    check_crc(key.topic_id, key.partition, batch, header)


class Order:
    """Checks that the first batch has the offset `start_offset`, and that each other one begins where the one before it
    ended."""

    __slots__ = ("_is_first", "next_offset")

    def __init__(self, start_offset: int) -> None:
        self._is_first = True
        self.next_offset = start_offset

    def follow(self, header: BatchHeader) -> None:
        """Take in the next batch. Raises CorruptMessage where it is not the next one."""
        has_start = self._is_first and header.base_offset <= self.next_offset < header.next_offset
        if header.base_offset != self.next_offset and not has_start:
            raise CorruptMessage(
                f"a record batch at offset {header.base_offset} stands where {self.next_offset} follows"
            )
        self._is_first = False
        self.next_offset = header.next_offset


def is_gap(header: BatchHeader) -> bool:
    """Whether the batch has no record, and stands for its offsets only."""
    return header.has_gaps and not header.record_count


def are_joinable(first: BatchHeader, last: BatchHeader) -> bool:
    """Whether the gap batches from `first` to `last`, back to back, can be one."""
    is_in_bounds = last.last_offset - first.base_offset <= MAX_LAST_OFFSET_DELTA
    return is_in_bounds and first.partition_leader_epoch == last.partition_leader_epoch
