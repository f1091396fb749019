"""The reading half of a log: any thread may call it while the disk thread writes.

The event loop reads the bytes that are in memory (`read_now`), and the readers' threads read the bytes that are only on
the disk. So the disk thread never changes the objects that readers use, but replaces them: the tuple of segments, a
segment's end, the columns of the epoch cache. It publishes `log_end_offset` when all records below it are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from minilog.errors import OffsetOutOfRange
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer
from minilog_broker.storage.lookups import offset_for_timestamp, offsets_at_sizes, replay_between, segment_with
from minilog_broker.storage.recovery import Recovered
from minilog_broker.storage.segment import Segment

_T = TypeVar("_T")


class ReadableLog:
    """The segments and ends of one log, and the ways to read them.

    Log start <= last stable offset <= high watermark <= durable end <= log end."""

    def __init__(self, directory: str, key: PartitionKey, recovered: Recovered) -> None:
        self.directory = directory
        self.key = key
        self.epochs = recovered.epochs
        self._segments = recovered.segments
        self.log_start_offset = recovered.log_start_offset
        self.high_watermark = self.last_stable_offset = recovered.high_watermark
        self.log_end_offset = self.durable_end_offset = self._segments[-1].end.end_offset

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory!r}, {self.log_start_offset} to {self.log_end_offset})"

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(segment.end.size_bytes for segment in self._segments)

    @property
    def record_bytes(self) -> int:
        """The average size of the records of all segments: of one offset, where compaction removed some. 0 where there
        are no records."""
        segments = self._segments
        records = segments[-1].end.end_offset - segments[0].base_offset
        return self.size_bytes // records if records else 0

    @property
    def sealed_end_offset(self) -> int:
        """The end of the sealed segments."""
        return self._segments[-1].base_offset

    @property
    def sealed_segments(self) -> tuple[Segment, ...]:
        """All segments but the active one. They never change. Retention, a truncation and compaction remove them."""
        return self._segments[:-1]

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int | None = None,
        pause: Callable[[], None] | None = None,
    ) -> bytes:
        """Whole batches of one segment. The first one contains `offset`, and all end at or below `end_offset`.

        They have at most `max_bytes`, unless the first one is larger. Empty if there is no such batch. With `pause` the
        read is quiet (files.Quiet). Raises OffsetOutOfRange, OSError, CorruptMessage."""

        def read() -> bytes:
            segment, limit = self._to_read(offset, end_offset)
            return segment.read(offset, max_bytes, limit, pause) if offset < limit else b""

        return self._of_current(read)

    def read_now(self, offset: int, max_bytes: int, end_offset: int | None = None) -> Buffer:
        """The same as `read`, but it does not wait for the disk. Raises OffsetOutOfRange, NotInMemory."""
        segment, limit = self._to_read(offset, end_offset)
        return segment.read_now(offset, max_bytes, limit) if offset < limit else b""

    def _to_read(self, offset: int, end_offset: int | None) -> tuple[Segment, int]:
        """The segment that holds `offset`, and the offset at which the read must end."""
        end = self.log_end_offset
        segments = self._segments
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(f"{self!r} holds no offset {offset}")
        return segments[segment_with(segments, offset)], end if end_offset is None else min(end_offset, end)

    def _of_current(self, read: Callable[[], _T]) -> _T:
        """The result of `read`. If the disk thread has replaced segments meanwhile, their files may be gone: then the
        log calls `read` again. Once is enough, because one segment is not replaced twice within one read."""
        before = self._segments
        try:
            return read()
        except (OffsetOutOfRange, FileNotFoundError):
            if self._segments is before:
                raise
        return read()

    def begins_segment(self, offset: int) -> bool:
        """Whether a segment begins at `offset`. Then a batch begins there, too."""
        segments = self._segments
        return segments[segment_with(segments, offset)].base_offset == offset

    def epoch_before(self, offset: int) -> int | None:
        """The leader epoch of the record at `offset` - 1. None if the log does not have that record."""
        if not self.log_start_offset < offset <= self.log_end_offset:
            return None
        return self.epochs.epoch_for_offset(offset - 1)

    def replay(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The headers of all batches that end above `from_offset`, up to the end as of now, in one walk.

        A control batch comes whole. Raises CorruptMessage, OSError."""
        return replay_between(self._segments, from_offset, self.log_end_offset)

    def offset_for_timestamp(self, timestamp_us: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first batch with a record at or after `timestamp_us`. lookups.py has the rules."""
        return self._of_current(
            lambda: offset_for_timestamp(self._segments, timestamp_us, self.log_start_offset, self.log_end_offset)
        )

    def offsets_at_sizes(self, from_offset: int, sizes_bytes: Sequence[int], end_offset: int) -> list[tuple[int, int]]:
        """For each size a pair (offset, bytes from `from_offset` to that offset). No offset is above `end_offset`.

        lookups.py has the rules."""
        return self._of_current(
            lambda: offsets_at_sizes(self._segments, max(from_offset, self.log_start_offset), sizes_bytes, end_offset)
        )

    def batch_base(self, offset: int) -> int:
        """The base offset of the batch around `offset`. It may be below the log start, which may lie inside a batch.

        Raises OffsetOutOfRange if retention deletes the batch meanwhile, OSError, CorruptMessage."""

        def base() -> int:
            segments = self._segments
            return segments[segment_with(segments, offset)].batch_base(offset)

        return self._of_current(base)
