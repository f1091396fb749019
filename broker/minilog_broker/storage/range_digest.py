"""The digest of a range of a log, from the disk and with a check of every checksum. Equal copies have equal digests.

Replicas have the same batches, byte for byte, and other segments. So offsets name a range, and it begins and ends where
batches do.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from minilog.errors import CorruptMessage
from minilog.record_batch.header import check_crc, iterate_headers
from minilog_broker.storage.log import Log

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """The digest of the batches from the one with `start_offset` up to `end_offset`, where a batch ends."""

    start_offset: int
    end_offset: int
    size_bytes: int
    digest: bytes


def digest_range(log: Log, start_offset: int, end_offset: int, max_bytes: int) -> RangeDigest:
    """The digest of about `max_bytes` of the batches that end at or below `end_offset`, of at least one where it can.

    Raises CorruptMessage, UnsupportedVersion, OSError for damage, and OffsetOutOfRange where the log does not hold the
    offset (any more)."""
    total, offset, size_bytes = hashlib.blake2b(digest_size=DIGEST_BYTES), start_offset, 0
    while offset < end_offset and size_bytes < max_bytes:
        run = log.read(offset, max_bytes - size_bytes, end_offset)
        if not run:
            break
        offset = _check_run(log, run, offset)
        total.update(run)
        size_bytes += len(run)
    return RangeDigest(start_offset, offset, size_bytes, total.digest())


def _check_run(log: Log, run: bytes, offset: int) -> int:
    """The end offset of a run after all checks. Raises CorruptMessage, UnsupportedVersion."""
    topic_id, partition = log.key
    view, expected = memoryview(run), offset
    for position, header in iterate_headers(run):
        check_crc(topic_id, partition, view[position : position + header.length], header)
        is_first = position == 0 and header.base_offset <= offset < header.next_offset
        if not is_first and header.base_offset != expected:
            raise CorruptMessage(f"a record batch at offset {header.base_offset} stands where {expected} follows")
        expected = header.next_offset
    return expected
