"""Where a timestamp is met first in a log's segments."""

from __future__ import annotations

from collections.abc import Sequence

from minilog_broker.storage.segment import Segment


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp_us: int, start_offset: int, end_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first batch with a record at or after `timestamp_us`; None where there is none.

    Of its first record where that is one, else its first offset and largest timestamp: records are not looked into.
    """
    for segment in segments:
        header = segment.header_for_timestamp(timestamp_us, start_offset)
        if header is not None and header.next_offset <= end_offset:
            first = header.base_timestamp_us
            return max(header.base_offset, start_offset), first if first >= timestamp_us else header.max_timestamp_us
    return None
