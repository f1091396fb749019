"""The writer of a compacted segment: one file with the batches that compaction keeps of one or more sealed segments.

    write     batches in the order of their offsets, to `<name>.tmp`
    finish    the file is whole and synced, and still has the name `<name>.tmp`
    then      Log.replace_segments gives it its name and swaps it in, or `abandon` removes it

Recovery removes a file that still has the name `<name>.tmp`. So a file with the name of a generation above 0 is always
whole and synced (manifest.py).

The writer checks two things that no later step could mend: each batch fits its checksums, and each offset of the former
segments is in exactly one batch. Readers, followers and the next recovery rely on that.

The compaction job has a thread of its own. Only one thread may change files of a pool of open files (open_files.py). So
the job writes through a file system of its own. It reads the former segments through their log.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer, check_crc, iterate_headers
from minilog_broker.storage.batch_scan import EndTracker
from minilog_broker.storage.durable_file import TEMPORARY_SUFFIX
from minilog_broker.storage.errors import NO_SPACE
from minilog_broker.storage.files import File, FileSystem
from minilog_broker.storage.index import SegmentEnd, SparseIndex
from minilog_broker.storage.manifest import ManifestFile
from minilog_broker.storage.segment import Segment
from minilog_broker.storage.segment_name import LOG_SUFFIX, SegmentName

TEMPORARY_LOG_SUFFIX = LOG_SUFFIX + TEMPORARY_SUFFIX
MOST_UNSYNCED_BYTES = 1 << 20
"""The writer syncs after so many bytes, so that the sync of another log does not wait for a whole segment."""


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    """A segment that is written and synced, and is not part of a log yet.

    `epoch_starts` has an entry (leader epoch, offset) for its first batch and for each later batch that begins an
    epoch."""

    name: SegmentName
    end: SegmentEnd
    index: SparseIndex
    epoch_starts: tuple[tuple[int, int], ...]

    def as_segment(self, files: FileSystem, directory: str, interval_bytes: int) -> Segment:
        """The segment object for a log. The log may use it after the file has its name."""
        return Segment(files, directory, self.name, interval_bytes=interval_bytes, end=self.end, index=self.index)


class CompactedSegmentWriter:
    """One segment that is being written, in the directory of its log. Its batches must end at `end_offset`.

    If a call raises, the caller must call `abandon`."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        key: PartitionKey,
        name: SegmentName,
        end_offset: int,
        *,
        interval_bytes: int,
    ) -> None:
        """Make the file. The index has an entry about every `interval_bytes`. Raises OSError."""
        self._files = files
        self._path = name.path(directory, TEMPORARY_LOG_SUFFIX)
        self._key = key
        self._name = name
        self._end_offset = end_offset
        self._tracker = EndTracker(SegmentEnd(name.base_offset, 0), SparseIndex(), interval_bytes)
        self._epoch_starts: list[tuple[int, int]] = []
        self._synced_bytes = 0
        self._file: File | None = files.open(self._path, create=True)
        self._file.truncate(0)

    def __repr__(self) -> str:
        return f"CompactedSegmentWriter({self._path!r}, at offset {self.next_offset} of {self._end_offset})"

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch must begin."""
        return self._tracker.end.end_offset

    @property
    def size_bytes(self) -> int:
        """The bytes that are written."""
        return self._tracker.end.size_bytes

    def write(self, run: Buffer) -> None:
        """Append a run of batches to the file.

        Raises ValueError if the run does not begin at `next_offset`, CorruptMessage if a batch is damaged, OSError."""
        file = self._open_file()
        view, headers = memoryview(run), []
        for position, header in iterate_headers(run):
            check_crc(*self._key, view[position : position + header.length], header)
            headers.append(header)
        self._check_place(headers)
        if headers:
            file.write([run], self.size_bytes)
            self._tracker.end = self._tracker.extend(tuple(headers))
        if self.size_bytes - self._synced_bytes >= MOST_UNSYNCED_BYTES:
            self._synced_bytes = self.size_bytes
            file.fdatasync()

    def _check_place(self, headers: Sequence[BatchHeader]) -> None:
        next_offset = self.next_offset
        for header in headers:
            if header.base_offset != next_offset or header.next_offset > self._end_offset:
                raise ValueError(
                    f"{self!r}: a batch of the offsets {header.base_offset} to {header.last_offset} "
                    f"cannot stand at offset {next_offset}"
                )
            epoch = header.partition_leader_epoch
            if self._epoch_starts and epoch < self._epoch_starts[-1][0]:
                raise ValueError(f"{self!r}: leader epoch {epoch} cannot follow epoch {self._epoch_starts[-1][0]}")
            if not self._epoch_starts or epoch > self._epoch_starts[-1][0]:
                self._epoch_starts.append((epoch, header.base_offset))
            next_offset = header.next_offset

    def finish(self) -> CompactedSegment:
        """Sync the file. Raises ValueError if batches are missing, OSError."""
        file = self._open_file()
        if self.next_offset != self._end_offset or not self.size_bytes:
            raise ValueError(f"{self!r}: batches are missing")
        self._file = None  # a failed sync is not tried again
        file.fdatasync()
        file.close()
        return CompactedSegment(self._name, self._tracker.end, self._tracker.index, tuple(self._epoch_starts))

    def abandon(self) -> None:
        """Remove the file. The caller may also abandon a finished file that no log took over. Raises OSError.

        If the file is not there, nothing happens."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self._path)

    def _open_file(self) -> File:
        if self._file is None:
            raise ValueError(f"{self!r} is finished or abandoned: it takes no more batches")
        return self._file


def with_compacted(segments: tuple[Segment, ...], former: Sequence[Segment], compacted: Segment) -> tuple[Segment, ...]:
    """The segments of a log after `compacted` has replaced `former`.

    Raises ValueError unless `former` are adjacent sealed segments. Raises ValueError unless `compacted` has exactly
    their offsets, and its name is the name of the first of them in a later generation."""
    sealed = segments[:-1]
    first = sealed.index(former[0]) if former and former[0] in sealed else len(sealed)
    behind = first + len(former)
    if not former or sealed[first:behind] != tuple(former):
        names = ", ".join(str(segment.name) for segment in former) or "(none)"
        raise ValueError(
            f"the log does not have the segments {names} one behind the other, all sealed: compact what it has now"
        )
    name, end_offset = former[0].name, former[-1].end.end_offset
    is_later = compacted.base_offset == name.base_offset and compacted.name.generation > name.generation
    if not is_later or compacted.end.end_offset != end_offset:
        raise ValueError(
            f"the segment {compacted.name} with the end {compacted.end.end_offset} cannot take the place of the "
            f"segments from {name} to the end {end_offset}"
        )
    return (*segments[:first], compacted, *segments[behind:])


def swap_in(
    files: FileSystem, directory: str, segment: Segment, manifest: ManifestFile, swap: Callable[[], None]
) -> None:
    """Give a finished segment its name, and call `swap`, which swaps the manifest of its log.

    Raises OSError. If the disk is full, the log is as before, and the segment's file has its temporary name again: the
    caller tries once more with more space, or abandons it. After any other error all files are still there, and only
    the next start can find out which list of segments counts."""
    try:
        files.rename(segment.path + TEMPORARY_SUFFIX, segment.path)
        files.fsync_dir(directory)
        swap()
    except OSError as error:
        if error.errno in NO_SPACE:
            _withdraw(files, directory, segment, manifest)
        raise


def _withdraw(files: FileSystem, directory: str, segment: Segment, manifest: ManifestFile) -> None:
    try:
        if not manifest.is_in_place():
            raise OSError(errno.EIO, f"the disk was full, and the manifest may name {segment.path} already")
        with contextlib.suppress(FileNotFoundError):
            files.rename(segment.path, segment.path + TEMPORARY_SUFFIX)
        files.fsync_dir(directory)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise OSError(errno.EIO, f"the disk is too full to rename {segment.path}") from error
