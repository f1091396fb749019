"""What is looked up in the segments of a log by a walk over headers: batches in order, and offsets by timestamp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minilog.record_batch.header import BatchHeader
from minilog_broker.storage.segment import Segment


def headers_between(segments: Sequence[Segment], from_offset: int, end_offset: int) -> Iterator[BatchHeader]:
    """The headers of all batches that end above `from_offset`, and at or below `end_offset`."""
    for segment in segments:
        if segment.end.end_offset <= from_offset:
            continue
        for _, header in segment.headers(from_offset):
            if header.next_offset > end_offset:
                return
            yield header


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp_us: int, log_start: int, log_end: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first batch with a record at or after `timestamp_us`; None where there is none.

    Of its first record where that is one, else its first offset and largest timestamp: records are not looked into.
    """
    for segment in segments:
        header = segment.header_for_timestamp(timestamp_us, log_start)
        if header is not None and header.next_offset <= log_end:
            first = header.base_timestamp_us
            return max(header.base_offset, log_start), first if first >= timestamp_us else header.max_timestamp_us
    return None
