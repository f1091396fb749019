"""The digest of a range of a log, from the disk and with a check of every checksum. Equal copies have equal digests.

Replicas have the same batches, byte for byte, but other segments. So a range is given by its offsets. It begins where a
batch begins, and ends where a batch ends. The digest is over the headers of the batches. A header has the checksum of
the rest of its batch, and the reading compares it with the rest. So a batch of other bytes has another header, but for
one in four billion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from minilog.errors import CorruptMessage
from minilog.record_batch.header import HEADER_BYTES, check_crc, iterate_headers
from minilog_broker.storage.log import Log

DIGEST_BYTES = 16
BATCH_COST_BYTES = 8 << 10
"""The least cost of a batch. The check of a small batch takes about 30 µs, at least as long as the check of so many
bytes of a large one."""
_BATCHES_AT_ONCE = 16  # batches between two pauses: a tenth of a millisecond of Python


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """The digest of the batches from the one that contains `start_offset` up to `end_offset`, where a batch ends."""

    start_offset: int
    end_offset: int
    size_bytes: int
    digest: bytes


class RangeReading:
    """A range that is being read. It has the batches from `start_offset` on that end at or below `end_offset`: as many
    as cost about `max_bytes`, and at least one. A caller reads slice by slice, and may do other things meanwhile.

    Within a slice the reading calls `pause` between two short parts of the work. Without `pause` it reads and checks a
    slice without a break."""

    def __init__(
        self, log: Log, start_offset: int, end_offset: int, max_bytes: int, pause: Callable[[], None] | None = None
    ) -> None:
        self._pause = pause
        self._log = log
        self._start_offset = self._offset = start_offset
        self._end_offset = end_offset
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self.cost_bytes = 0  # a batch counts as BATCH_COST_BYTES at least
        self._is_at_end = False
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)

    @property
    def is_done(self) -> bool:
        """Whether the whole range is read."""
        return self._is_at_end or self._offset >= self._end_offset or self.cost_bytes >= self._max_bytes

    @property
    def has_small_batches(self) -> bool:
        """Whether batches cost more than their bytes. Also true before the first slice."""
        return self.cost_bytes > self._size_bytes or not self._size_bytes

    def read_slice(self, slice_bytes: int) -> int:
        """Read about `slice_bytes` more, but at least one batch. Returns the number of bytes that were read.

        Raises CorruptMessage, UnsupportedVersion, OSError for damage. Raises OffsetOutOfRange if the log does not hold
        the offset, or does not hold it any more."""
        most_bytes = min(slice_bytes, self._max_bytes - self.cost_bytes)
        run = self._log.read(self._offset, most_bytes, self._end_offset, self._pause)
        self._is_at_end = not run
        self._check(run)
        self._size_bytes += len(run)
        return len(run)

    def _check(self, run: bytes) -> None:
        topic_id, partition = self._log.key
        view, expected = memoryview(run), self._offset
        for number, (position, header) in enumerate(iterate_headers(run), start=1):
            if self._pause is not None and number % _BATCHES_AT_ONCE == 0:
                self._pause()
            check_crc(topic_id, partition, view[position : position + header.length], header)
            is_first = position == 0 and header.base_offset <= expected < header.next_offset
            if not is_first and header.base_offset != expected:
                raise CorruptMessage(f"a record batch at offset {header.base_offset} stands where {expected} follows")
            self._digest.update(view[position : position + HEADER_BYTES])
            self.cost_bytes += max(header.length, BATCH_COST_BYTES)
            expected = header.next_offset
        self._offset = expected

    def digest(self) -> RangeDigest:
        """The digest of all slices until now."""
        return RangeDigest(self._start_offset, self._offset, self._size_bytes, self._digest.digest())


def digest_range(log: Log, start_offset: int, end_offset: int, max_bytes: int) -> RangeDigest:
    """Read a whole range at once, and return its digest. Raises the errors of RangeReading.read_slice."""
    reading = RangeReading(log, start_offset, end_offset, max_bytes)
    while not reading.is_done:
        reading.read_slice(max_bytes)
    return reading.digest()
