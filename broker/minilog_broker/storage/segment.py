"""One segment: a file of batches back to back (segment_name.py), and its sparse index.

One thread writes a segment, and others read it. `end` is one object. The writer replaces it after it has written the
bytes. A cut replaces the segment by a new object, and a removal drops it. So a reader's object is never cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from minilog.errors import CorruptMessage, OffsetOutOfRange, UnsupportedVersion
from minilog.record_batch.header import BatchHeader, Buffer
from minilog_broker.storage.batch_scan import EndTracker, check_first, iterate_segment, replay_segment, walk_segment
from minilog_broker.storage.files import File, FileSystem, InMemory, NotInMemory, Quiet, Readable
from minilog_broker.storage.index import (
    NO_TIMESTAMP,
    SegmentEnd,
    SparseIndex,
    read_index_files,
    remove_index_files,
    write_index_files,
)
from minilog_broker.storage.segment_name import SegmentName


class BatchRun(Protocol):
    """A run of contiguous batches for an append. The buffers, one after another, are their bytes.

    replica_effects.PlacedBatches has this shape. Storage imports no layer above itself."""

    @property
    def headers(self) -> tuple[BatchHeader, ...]: ...

    @property
    def buffers(self) -> tuple[Buffer, ...]: ...


class Segment:
    """A segment that ends at `end`. It opens file and index at the first use, because most segments are never read."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        name: SegmentName,
        *,
        interval_bytes: int,
        end: SegmentEnd | None = None,
        index: SparseIndex | None = None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._interval_bytes = interval_bytes
        self._file: File | None = None
        self._opening = threading.Lock()  # readers at the same time open one file, which the writer uses, too
        self._first_timestamp_us: int | None = None
        self.name = name
        self.base_offset = name.base_offset
        self.end = end or SegmentEnd(name.base_offset, 0)
        self._index = SparseIndex() if end is None else index
        self._tracker: EndTracker | None = None
        self._removed = False  # the writing thread sets it; a reader may still hold this object, with its file closed

    @property
    def path(self) -> str:
        return self.name.path(self._directory)

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            with self._opening:
                file = self._file
                if file is None:
                    file = self._file = self._files.open(self.path)
        return file

    @property
    def index(self) -> SparseIndex:
        index = self._index
        if index is None:
            index = read_index_files(self._files, self._directory, self.name, self.end) or self._rebuilt_index()
            self._index = index
        return index

    @property
    def first_timestamp_us(self) -> int | None:
        """The largest timestamp of the first batch. None if the segment is empty."""
        if self._first_timestamp_us is None and self.end.size_bytes:
            _, header = next(self.headers(0))
            self._first_timestamp_us = header.max_timestamp_us
        return self._first_timestamp_us

    def create(self) -> None:
        """Make an empty file. The caller syncs the directory."""
        self._file = self._files.open(self.path, create=True)
        self._file.truncate(0)

    def append(self, run: BatchRun) -> None:
        """Write a run at the end. After an OSError any part of it may be in the file, and `end` is unchanged."""
        tracker = self._tracker
        if tracker is None:
            tracker = self._tracker = EndTracker(self.end, self.index, self._interval_bytes)
        self.file.write(run.buffers, self.end.size_bytes)
        # The index may be ahead of `end`, because a reader uses only entries below the end that it has read.
        self.end = tracker.end = tracker.extend(run.headers)

    def read(self, offset: int, max_bytes: int, limit_offset: int, pause: Callable[[], None] | None = None) -> bytes:
        """Whole batches. The first one contains `offset`, and all end at or below `limit_offset`.

        They have at most `max_bytes`, unless the first one is larger. Empty if the first one ends above `limit_offset`.
        With `pause` the read is quiet (files.Quiet)."""
        try:
            file = self.file if pause is None else Quiet(self.file, pause)
            return self._read_twice(file, offset, max_bytes, limit_offset)
        except FileNotFoundError as error:
            raise self._gone(offset, error) from None

    def _read_twice(self, file: Readable, offset: int, max_bytes: int, limit_offset: int) -> bytes:
        try:
            return bytes(self._read(file, self.index, offset, max_bytes, limit_offset))
        except CorruptMessage:
            # Either the index is wrong, or the file is damaged. Read again with an index that is made from the headers.
            # If that fails, too, the file is damaged.
            self._index, self._tracker = self._rebuilt_index(), None
            return bytes(self._read(file, self.index, offset, max_bytes, limit_offset))

    def read_now(self, offset: int, max_bytes: int, limit_offset: int) -> Buffer:
        """The same as `read`, but it does not wait for the disk. Raises NotInMemory if bytes are not in memory.

        Also raises NotInMemory after any error. Then a read that may wait finds out the error."""
        file, index = self._file, self._index
        if file is None or index is None:
            raise NotInMemory
        try:
            return self._read(InMemory(file), index, offset, max_bytes, limit_offset)
        except (CorruptMessage, UnsupportedVersion, OSError) as error:
            raise NotInMemory from error

    def batch_base(self, offset: int) -> int:
        """The base offset of the batch that contains `offset`. Raises the errors of `read`."""
        try:
            return self.position_of(offset)[1]
        except FileNotFoundError as error:
            raise self._gone(offset, error) from None

    def _gone(self, offset: int, error: FileNotFoundError) -> Exception:
        """The error for a missing file: OffsetOutOfRange if the log has removed this segment, else `error`."""
        if self._removed:
            return OffsetOutOfRange(f"{self.path} was removed before offset {offset} was read")
        return error

    def _read(self, file: Readable, index: SparseIndex, offset: int, max_bytes: int, limit_offset: int) -> Buffer:
        end = self.end
        start = self._position_at(file, index, offset, end)
        stop = end.size_bytes if limit_offset >= end.end_offset else self._position_at(file, index, limit_offset, end)
        if stop - start > max_bytes:
            # Stop at an index entry, so that no walk is needed. If none is in reach, stop after the last fitting batch.
            within = index.positions[index.last_entry_within(start + max_bytes)]
            stop = within if within > start else self._last_fit(file, start, max_bytes, stop)
        run = file.pread(stop - start, start)
        if run:
            check_first(run, offset)
        if len(run) < stop - start:
            raise CorruptMessage(f"{self.path} ends before position {stop}")
        return run

    def _position_at(self, file: Readable, index: SparseIndex, offset: int, end: SegmentEnd) -> int:
        """The position at which the batch that contains `offset` begins. The end's position if there is none."""
        entry = index.entry_at_or_before(offset)
        first = index.positions[entry]
        if index.offsets[entry] == offset:
            return first
        for position, _, next_offset in walk_segment(file, first, end.size_bytes, self._interval_bytes):
            if next_offset > offset:
                return position
        return end.size_bytes

    def _last_fit(self, file: Readable, start: int, max_bytes: int, stop: int) -> int:
        """The end of the last batch that fits into `max_bytes`. If even the first one does not fit, its end."""
        fit = start
        for position, length, _ in walk_segment(file, start, stop, self._interval_bytes):
            if fit > start and position + length - start > max_bytes:
                break
            fit = position + length
        return fit

    def position_of(self, offset: int) -> tuple[int, int]:
        """(position, base offset) of the batch that contains `offset`. Those of the segment's end if there is none."""
        for position, header in self.headers(offset):
            return position, header.base_offset
        return self.end.size_bytes, self.end.end_offset

    def estimated_position(self, offset: int) -> int:
        """The approximate position of `offset`: between two positions of the index, in proportion to the offsets."""
        end, index = self.end, self.index
        entry = index.entry_at_or_before(offset)
        below, low = (index.offsets[entry], index.positions[entry]) if entry >= 0 else (self.base_offset, 0)
        above, high = end.end_offset, end.size_bytes
        if entry + 1 < len(index) and index.positions[entry + 1] < high:
            above, high = index.offsets[entry + 1], index.positions[entry + 1]
        return low + (high - low) * min(offset - below, above - below) // max(1, above - below)

    def position_after(self, offset: int) -> int:
        """The first position in the index that has all records below `offset` before it."""
        end, index = self.end, self.index
        entry = index.first_entry_from(offset)
        return min(index.positions[entry], end.size_bytes) if entry < len(index) else end.size_bytes

    def boundary_from(self, position: int) -> tuple[int, int]:
        """(offset, position) of the first batch in the index at or above `position`. If there is none, of the end."""
        end, index = self.end, self.index
        entry = index.first_entry_above(position)
        if entry < len(index) and index.positions[entry] < end.size_bytes:
            return index.offsets[entry], index.positions[entry]
        return end.end_offset, end.size_bytes

    def headers(self, from_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch that ends above `from_offset`."""
        size_bytes = self.end.size_bytes
        if not size_bytes:
            return
        for position, header in iterate_segment(self.file, self._walk_from(from_offset), size_bytes):
            if header.next_offset > from_offset:
                yield position, header

    def replay(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The header of each batch that ends above `from_offset`. A control batch comes whole, other batches empty."""
        size_bytes = self.end.size_bytes
        if not size_bytes:
            return
        for header, batch in replay_segment(self.file, self._walk_from(from_offset), size_bytes):
            if header.next_offset > from_offset:
                yield header, batch

    def _walk_from(self, offset: int) -> int:
        return self.index.positions[max(0, self.index.entry_at_or_before(offset))]

    def header_for_timestamp(self, timestamp_us: int, from_offset: int) -> BatchHeader | None:
        """The header of the first batch above `from_offset` with a timestamp at or above `timestamp_us`."""
        if self.end.max_timestamp_us < timestamp_us or not self.end.size_bytes:
            return None
        entry = self.index.entry_for_timestamp(timestamp_us)
        for _, header in self.headers(max(self.index.offsets[entry], from_offset)):
            if header.max_timestamp_us >= timestamp_us:
                return header
        return None

    def cut(self, position: int, end_offset: int) -> Segment:
        """Cut the file, durably, to `position`, where the batch at `end_offset` begins. Returns the new segment."""
        file, index = self.file, self.index.cut(position)  # this loads the index, before its files are removed
        remove_index_files(self._files, self._directory, self.name)
        self._files.fsync_dir(self._directory)
        file.truncate(position)
        file.fdatasync()
        newest = NO_TIMESTAMP
        if len(index):
            newest = index.max_timestamps_before[-1]
            for _, header in iterate_segment(file, index.positions[-1], position):
                newest = max(newest, header.max_timestamp_us)
        segment = Segment(
            self._files,
            self._directory,
            self.name,
            interval_bytes=self._interval_bytes,
            end=SegmentEnd(end_offset, position, newest),
            index=index,
        )
        segment._file = file
        return segment

    def write_index_files(self) -> None:
        """Write the index files for the next life. They are caches, so they are not synced."""
        write_index_files(self._files, self._directory, self.name, self.end, self.index)

    def remove(self) -> None:
        """Remove the files. The caller syncs the directory. A reader may still hold the open file."""
        self._removed = True
        remove_index_files(self._files, self._directory, self.name)
        self._files.remove(self.path)

    def close(self, *, forget: bool = False) -> None:
        """Close the file. The caller makes sure that no thread reads it any more.

        With `forget` its pages may leave the page cache."""
        if self._file is not None:
            if forget and self.end.size_bytes:
                self._file.forget(0, self.end.size_bytes)
            self._file.close()
            self._file = None

    def _rebuilt_index(self) -> SparseIndex:
        tracker = EndTracker(SegmentEnd(self.base_offset, 0), SparseIndex(), self._interval_bytes)
        for _, header in iterate_segment(self.file, 0, self.end.size_bytes):
            tracker.end = tracker.extend((header,))
        return tracker.index
