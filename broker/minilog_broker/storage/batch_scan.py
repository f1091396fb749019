"""Walks over the batches of a segment file: fast by their headers, or with every checksum as recovery does.

This module does not judge a batch of a later version. It raises UnsupportedVersion to the caller, which cuts nothing.

Recovery asks where the valid batches end. The bytes behind that end prove nothing: unsynced writes reach the disk in
any order, so a valid batch may stand behind a torn one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import HEADER_BYTES, MAGIC, BatchHeader, Buffer, check_crc, decode_header
from minilog_broker.storage.files import File, Readable, Sized
from minilog_broker.storage.index import SegmentEnd, SparseIndex

HEADER_CHUNK_BYTES = 64 << 10  # many small batches in one read, little wasted where batches are large
SCAN_CHUNK_BYTES = 4 << 20
_MAGIC = MAGIC.to_bytes(4, "little")
_WALK = struct.Struct("<IIq20xI")  # magic, length, base_offset, ..., last_offset_delta


class _Window:
    """A file that is read in chunks. A caller may ask for any place, but moving forward is cheapest."""

    def __init__(self, file: Readable, size_bytes: int, chunk_bytes: int) -> None:
        self._file = file
        self.size_bytes = size_bytes
        self._chunk_bytes = chunk_bytes
        self._start = 0
        self._chunk = memoryview(b"")

    def view(self, position: int, length: int) -> memoryview:
        """Return up to `length` bytes at `position`. Only at the end of the file there are fewer."""
        length = min(length, self.size_bytes - position)
        if position < self._start or position + length > self._start + len(self._chunk):
            wanted = min(max(length, self._chunk_bytes), self.size_bytes - position)
            self._chunk = memoryview(self._file.pread(wanted, position))
            self._start = position
        start = position - self._start
        return self._chunk[start : start + length]


def iterate_segment(file: File, position: int, size_bytes: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch from `position` on. The walk does not read payloads.

    Raises CorruptMessage at a bad header."""
    window = _Window(file, size_bytes, HEADER_CHUNK_BYTES)
    while position < size_bytes:
        header = decode_header(window.view(position, HEADER_BYTES))
        yield position, header
        position += header.length


def replay_segment(file: File, position: int, size_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each header from `position` on, together with the whole batch if it is a control batch.

    For any other batch the second item is empty. Raises CorruptMessage at a bad header."""
    window = _Window(file, size_bytes, HEADER_CHUNK_BYTES)
    while position < size_bytes:
        header = decode_header(window.view(position, HEADER_BYTES))
        yield header, window.view(position, header.length if header.is_control else 0)
        position += header.length


def walk_segment(file: Readable, position: int, stop: int, chunk_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield (position, length, next offset) of each batch from `position` to `stop`.

    The walk checks no checksum, so that a read is quick. Raises CorruptMessage at a position where no batch can be."""
    window = _Window(file, stop, chunk_bytes + HEADER_BYTES)
    while position < stop:
        header = window.view(position, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            raise CorruptMessage(
                f"the last {len(header)} bytes of a segment, at position {position}, are too few for a record batch"
            )
        magic, length, base_offset, last_offset_delta = _WALK.unpack_from(header)
        if magic != MAGIC:
            decode_header(header)  # it raises UnsupportedVersion if a later version wrote the batch
        if magic != MAGIC or length < HEADER_BYTES or position + length > stop:
            raise CorruptMessage(f"no record batch begins at position {position} of a segment")
        yield position, length, base_offset + last_offset_delta + 1
        position += length


def check_first(run: Buffer, offset: int) -> None:
    """Raises CorruptMessage unless `run` begins with the batch that contains `offset`."""
    if len(run) >= HEADER_BYTES:
        magic, _, base_offset, last_offset_delta = _WALK.unpack_from(run)
        if magic == MAGIC and base_offset <= offset <= base_offset + last_offset_delta:
            return
        if magic != MAGIC:
            decode_header(run)  # it raises UnsupportedVersion if a later version wrote the batch
    raise CorruptMessage(f"a segment does not hold offset {offset} where its index has it")


class EndTracker:
    """Follows the batches of a segment in order. It computes the segment's end and the entries of its index."""

    __slots__ = ("_indexed_position", "_interval_bytes", "end", "index")

    def __init__(self, end: SegmentEnd, index: SparseIndex, interval_bytes: int) -> None:
        self.end = end
        self.index = index
        self._interval_bytes = interval_bytes
        self._indexed_position = index.positions[-1] if len(index) else -interval_bytes

    def extend(self, headers: tuple[BatchHeader, ...]) -> SegmentEnd:
        """Take in `headers`, in order. The index has them at once. The caller publishes the returned `end`."""
        end_offset, position, newest = self.end.end_offset, self.end.size_bytes, self.end.max_timestamp_us
        for header in headers:
            if position - self._indexed_position >= self._interval_bytes:
                self.index.add(end_offset, position, newest)
                self._indexed_position = position
            position += header.length
            end_offset = header.next_offset
            if header.max_timestamp_us > newest:
                newest = header.max_timestamp_us
        return SegmentEnd(end_offset, position, newest)


@dataclass(slots=True)
class BatchScan:
    """The result of reading a segment file. `problem` is None if the whole file is valid batches."""

    end: SegmentEnd
    index: SparseIndex
    file_bytes: int
    problem: str | None = None
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)

    @property
    def surplus_bytes(self) -> int:
        return self.file_bytes - self.end.size_bytes


def scan_segment(file: Sized, base_offset: int, key: PartitionKey, interval_bytes: int) -> BatchScan:
    """Read the whole file, check every batch, and build its index."""
    window = _Window(file, file.size(), SCAN_CHUNK_BYTES)
    tracker = EndTracker(SegmentEnd(base_offset, 0), SparseIndex(), interval_bytes)
    scan = BatchScan(tracker.end, tracker.index, window.size_bytes)
    while tracker.end.size_bytes < window.size_bytes:
        try:
            header = _valid_batch(window, tracker.end.size_bytes, key)
            _check_place(header, tracker.end.end_offset, scan.epoch_starts)
        except CorruptMessage as error:
            scan.problem = str(error)
            break
        if not scan.epoch_starts or header.partition_leader_epoch > scan.epoch_starts[-1][0]:
            scan.epoch_starts.append((header.partition_leader_epoch, header.base_offset))
        tracker.end = tracker.extend((header,))
    scan.end = tracker.end
    return scan


def has_batch_above(file: File, position: int, offset: int, key: PartitionKey) -> bool:
    """Whether the file has, at or behind `position`, a valid batch that ends above `offset`.

    The bytes before that batch need not be valid."""
    window = _Window(file, file.size(), SCAN_CHUNK_BYTES)
    while position < window.size_bytes:
        try:
            header = _valid_batch(window, position, key)
        except CorruptMessage:
            position = _next_magic(window, position + 1)
            continue
        if header.next_offset > offset:
            return True
        position += header.length
    return False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes of a segment in which no valid batch begins."""

    position: int
    size_bytes: int


def salvage(file: Sized, key: PartitionKey) -> Iterator[memoryview | Unreadable]:
    """Yield each valid batch of a segment, also those behind damage, and the bytes between."""
    window, position = _Window(file, file.size(), SCAN_CHUNK_BYTES), 0
    bad_since: int | None = None
    while position < window.size_bytes:
        try:
            header = _valid_batch(window, position, key)
        except CorruptMessage:
            bad_since = position if bad_since is None else bad_since
            position = _next_magic(window, position + 1)
            continue
        if bad_since is not None:
            yield Unreadable(bad_since, position - bad_since)
            bad_since = None
        yield window.view(position, header.length)
        position += header.length
    if bad_since is not None:
        yield Unreadable(bad_since, window.size_bytes - bad_since)


def _next_magic(window: _Window, position: int) -> int:
    """The next position at which a header may begin. The end of the file if there is no such position."""
    while position < window.size_bytes:
        ahead = bytes(window.view(position, HEADER_CHUNK_BYTES))
        place = ahead.find(_MAGIC)
        if place >= 0:
            return position + place
        position += max(1, len(ahead) - len(_MAGIC) + 1)
    return position


def _valid_batch(window: _Window, position: int, key: PartitionKey) -> BatchHeader:
    header = decode_header(window.view(position, HEADER_BYTES))
    if position + header.length > window.size_bytes:
        raise CorruptMessage(
            f"the record batch at offset {header.base_offset} is {header.length} bytes long, "
            f"but the file ends after {window.size_bytes - position} of them"
        )
    check_crc(key.topic_id, key.partition, window.view(position, header.length), header)
    return header


def _check_place(header: BatchHeader, offset: int, epoch_starts: list[tuple[int, int]]) -> None:
    if header.base_offset != offset:
        raise CorruptMessage(f"a record batch has offset {header.base_offset} instead of offset {offset}")
    if epoch_starts and header.partition_leader_epoch < epoch_starts[-1][0]:
        raise CorruptMessage(
            f"the record batch at offset {offset} has leader epoch {header.partition_leader_epoch}, "
            f"but follows a batch of epoch {epoch_starts[-1][0]}"
        )
