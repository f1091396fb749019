"""The sparse indexes of one segment. They are caches: code rebuilds a missing, stale or wrong one from the batches.

In memory an index has three parallel columns: the offset of a batch, its position, and the largest timestamp of all
earlier batches of the segment. It has one entry about every `index_interval_bytes`, and always one for the first batch.
On disk it has two files. The log writes them when it seals the segment, and when it closes. It does not sync them,
because a checksum is enough for a cache:

    .index       stamp | offsets | positions
    .timeindex   stamp | largest timestamp before the entry | offsets

segment_name.py defines the name before the suffix.

The stamp has the segment's size and end at the time of writing. If the segment has another size, the file is stale.
"""

from __future__ import annotations

import contextlib
import enum
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass

import google_crc32c

from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.segment_name import SegmentName

NO_TIMESTAMP = -(1 << 63)
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"

_STAMP = struct.Struct("<4sIqqqqI")  # magic, entries, base offset, size, end offset, max timestamp, crc of the columns
_STAMP_CRC = struct.Struct("<I")
_HEAD_BYTES = _STAMP.size + _STAMP_CRC.size
_MAGIC = b"MLI1"


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """The end of a segment. It is one object, so that another thread never sees half of a change."""

    end_offset: int
    size_bytes: int
    max_timestamp_us: int = NO_TIMESTAMP


class IndexState(enum.Enum):
    """The state of an index file. The broker uses only a file that is RIGHT."""

    RIGHT = "is right"
    MISSING = "is missing"
    STALE = "was made for another size or end of its segment"
    WRONG = "is damaged: its checksum is wrong, or it contradicts the batches"


class SparseIndex:
    """The three columns in memory. One thread may add entries while others search.

    Searches go by the offset. So `add` appends the offset last."""

    __slots__ = ("max_timestamps_before", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.max_timestamps_before = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, position: int, max_timestamp_before_us: int) -> None:
        self.max_timestamps_before.append(max_timestamp_before_us)
        self.positions.append(position)
        self.offsets.append(offset)

    def entry_at_or_before(self, offset: int) -> int:
        """The number of the last entry at or below `offset`."""
        return bisect_right(self.offsets, offset) - 1

    def first_entry_from(self, offset: int) -> int:
        """The number of the first entry at or above `offset`. The number of entries if there is no such entry."""
        return bisect_left(self.offsets, offset)

    def last_entry_within(self, position: int) -> int:
        """The number of the last entry at or below `position`."""
        return bisect_right(self.positions, position, 0, len(self.offsets)) - 1

    def first_entry_above(self, position: int) -> int:
        """The number of the first entry at or above `position`. The number of entries if there is no such entry."""
        return bisect_left(self.positions, position, 0, len(self.offsets))

    def entry_for_timestamp(self, timestamp_us: int) -> int:
        """The number of the last entry before which all timestamps are smaller than `timestamp_us`."""
        return max(0, bisect_left(self.max_timestamps_before, timestamp_us, 0, len(self.offsets)) - 1)

    def cut(self, position: int) -> SparseIndex:
        """A copy with the entries below `position`."""
        kept = bisect_left(self.positions, position)
        copy = SparseIndex()
        copy.offsets = self.offsets[:kept]
        copy.positions = self.positions[:kept]
        copy.max_timestamps_before = self.max_timestamps_before[:kept]
        return copy


def write_index_files(
    files: FileSystem,
    directory: str,
    name: SegmentName,
    end: SegmentEnd,
    index: SparseIndex,
    only: Collection[str] = (INDEX_SUFFIX, TIME_INDEX_SUFFIX),
) -> None:
    """Write the index files of a segment that ends at `end`. Only the files whose suffix is in `only` are written."""
    for suffix, columns in (
        (INDEX_SUFFIX, (index.offsets, index.positions)),
        (TIME_INDEX_SUFFIX, (index.max_timestamps_before, index.offsets)),
    ):
        if suffix not in only:
            continue
        body = b"".join(column.tobytes() for column in columns)
        crc = google_crc32c.value(body)
        stamp = _STAMP.pack(
            _MAGIC, len(index), name.base_offset, end.size_bytes, end.end_offset, end.max_timestamp_us, crc
        )
        file = files.open(name.path(directory, suffix), create=True)
        try:
            file.truncate(0)
            file.write([stamp, _STAMP_CRC.pack(google_crc32c.value(stamp)), body], 0)
        finally:
            file.close()


def read_stamp(files: FileSystem, directory: str, name: SegmentName) -> SegmentEnd | None:
    """The segment's end according to the offset index. None if the file is missing or wrong. Reads only a few bytes."""
    head = _read(files, name.path(directory, INDEX_SUFFIX), _HEAD_BYTES)
    stamp = _parse_head(head, name.base_offset)
    return None if stamp is None else stamp[0]


def read_index_files(files: FileSystem, directory: str, name: SegmentName, end: SegmentEnd) -> SparseIndex | None:
    """The index of a segment that ends at `end`. None if a file is missing, stale or wrong."""
    offset_columns = _read_columns(files, name.path(directory, INDEX_SUFFIX), name.base_offset, end)
    time_columns = _read_columns(files, name.path(directory, TIME_INDEX_SUFFIX), name.base_offset, end)
    if offset_columns is None or time_columns is None or offset_columns[0] != time_columns[1]:
        return None
    index = SparseIndex()
    index.offsets, index.positions = offset_columns
    index.max_timestamps_before = time_columns[0]
    return index


def index_state(
    files: FileSystem, directory: str, name: SegmentName, end: SegmentEnd, index: SparseIndex, suffix: str
) -> IndexState:
    """The state of the file with `suffix`, for a segment that ends at `end` and whose batches give `index`."""
    path = name.path(directory, suffix)
    if not files.exists(path):
        return IndexState.MISSING
    head = _parse_head(_read(files, path, _HEAD_BYTES), name.base_offset)
    if head is not None and head[0] != end:
        return IndexState.STALE
    wanted = (
        (index.offsets, index.positions) if suffix == INDEX_SUFFIX else (index.max_timestamps_before, index.offsets)
    )
    return IndexState.RIGHT if _read_columns(files, path, name.base_offset, end) == wanted else IndexState.WRONG


def remove_index_files(files: FileSystem, directory: str, name: SegmentName) -> None:
    """Remove both files. The caller syncs the directory."""
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        with contextlib.suppress(FileNotFoundError):
            files.remove(name.path(directory, suffix))


def _read_columns(
    files: FileSystem, path: str, base_offset: int, end: SegmentEnd
) -> tuple[array[int], array[int]] | None:
    # A segment has at most one entry for each batch, and no batch is smaller than its header: the size is bounded.
    stored = _read(files, path, _HEAD_BYTES + end.size_bytes)
    head = _parse_head(stored, base_offset)
    if head is None or head[0] != end:
        return None
    _, count, crc = head
    body = stored[_HEAD_BYTES:]
    if len(body) != 2 * 8 * count or google_crc32c.value(body) != crc:
        return None
    first, second = array("q"), array("q")
    first.frombytes(body[: 8 * count])
    second.frombytes(body[8 * count :])
    return first, second


def _parse_head(stored: bytes, base_offset: int) -> tuple[SegmentEnd, int, int] | None:
    if len(stored) < _HEAD_BYTES:
        return None
    if _STAMP_CRC.unpack_from(stored, _STAMP.size)[0] != google_crc32c.value(stored[: _STAMP.size]):
        return None
    magic, count, base, size_bytes, end_offset, max_timestamp_us, crc = _STAMP.unpack_from(stored)
    if magic != _MAGIC or base != base_offset:
        return None
    return SegmentEnd(end_offset, size_bytes, max_timestamp_us), count, crc


def _read(files: FileSystem, path: str, size_bytes: int) -> bytes:
    try:
        file = files.open(path)
    except FileNotFoundError:
        return b""
    try:
        return file.pread(size_bytes, 0)
    finally:
        file.close()
