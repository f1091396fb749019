"""The check of some batches of a log against their checksums, with the bytes that are on the disk now."""

from __future__ import annotations

from minilog.errors import CorruptMessage, OffsetOutOfRange
from minilog.record_batch.header import check_crc, iterate_headers
from minilog_broker.storage.log import Log


def check_copy(
    log: Log, topic_id: bytes, partition: int, offset: int, max_bytes: int
) -> CorruptMessage | OSError | None:
    """Check about `max_bytes` of batches, beginning with the batch that contains `offset`.

    Returns the error of the first bad batch, None if all are good. Also returns None if the log does not have the
    offset, or does not have it any more: then there is no copy to check."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    try:
        run = log.read(offset, max_bytes)
        for position, header in iterate_headers(run):
            check_crc(topic_id, partition, memoryview(run)[position : position + header.length], header)
    except OffsetOutOfRange:  # retention was quicker
        return None
    except (OSError, CorruptMessage) as error:
        return error
    return None
