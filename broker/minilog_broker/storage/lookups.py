"""Lookups in the segments of a log. A replay and a lookup by timestamp walk over headers. The number of bytes between
two offsets comes from the sparse indexes alone.

A size is exact to about `index_interval_bytes` or one batch. That is enough for a reader that wants "about 100 MiB". If
`from_offset` lies inside a batch, only the rest of the batch counts, in proportion to its records. Else a reader of a
large batch in parts would see the whole size each time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from minilog.record_batch.header import BatchHeader
from minilog_broker.storage.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


def replay_between(
    segments: Sequence[Segment], from_offset: int, end_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The headers of all batches that end above `from_offset` and at or below `end_offset`. A control batch comes
    whole."""
    for segment in segments:
        if segment.end.end_offset <= from_offset:
            continue
        for header, batch in segment.replay(from_offset):
            if header.next_offset > end_offset:
                return
            yield header, batch


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp_us: int, log_start: int, log_end: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first batch with a record at or after `timestamp_us`. None if there is no such batch.

    The offset is that of the batch's first record, at least `log_start`. The timestamp is that of the first record if
    it is at or after `timestamp_us`. Else it is the largest one of the batch, because the lookup does not read records.
    """
    for segment in segments:
        header = segment.header_for_timestamp(timestamp_us, log_start)
        if header is not None and header.next_offset <= log_end:
            first = header.base_timestamp_us
            return max(header.base_offset, log_start), first if first >= timestamp_us else header.max_timestamp_us
    return None


def segment_with(segments: Sequence[Segment], offset: int) -> int:
    """The number of the segment that holds `offset`. If no segment holds it: the last one that begins below it, or else
    the first one."""
    if segments[-1].base_offset <= offset:
        return len(segments) - 1
    return max(0, bisect_right(segments, offset, key=_BASE_OFFSET) - 1)


def offsets_at_sizes(
    segments: Sequence[Segment], from_offset: int, sizes_bytes: Sequence[int], end_offset: int
) -> list[tuple[int, int]]:
    """For each size a pair (offset, bytes between `from_offset` and that offset).

    The offset is the first one in the indexes with at least so many bytes between `from_offset` and it. If that one is
    not below `end_offset`, or if there is none, the offset is `end_offset`, with all bytes up to it.
    """
    if from_offset >= end_offset:
        return [(end_offset, 0) for _ in sizes_bytes]
    tail = segments[segment_with(segments, from_offset) : segment_with(segments, end_offset) + 1]
    ends = list(accumulate(segment.end.size_bytes for segment in tail))
    begun = tail[0].estimated_position(from_offset)
    last = (end_offset, (ends[-2] if len(ends) > 1 else 0) + tail[-1].position_after(end_offset) - begun)
    answers = []
    for size in sizes_bytes:
        number = bisect_left(ends, begun + size)
        if number == len(tail):
            answers.append(last)
            continue
        below = ends[number - 1] if number else 0
        offset, position = tail[number].boundary_from(begun + size - below)
        answers.append((offset, below + position - begun) if offset < end_offset else last)
    return answers
