"""The rules that decide when a new segment begins, and which segments retention may remove.

Retention removes the oldest segments if they are too old, or if the log is too large. All of them lie below the last
stable offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minilog_broker.storage.segment import Segment
from minilog_broker.storage.settings import LogSettings

LEAST_FILE_BYTES = 1 << 20
FUTURE_US = 3_600_000_000  # the clocks of sound machines differ by less (Kafka's bound of time stamps, too)


def roll_is_due(active: Segment, settings: LogSettings, run_bytes: int, timestamp_us: int) -> bool:
    """Whether a run of `run_bytes` at this time belongs into a new segment."""
    if not active.end.size_bytes:
        return False
    if active.end.size_bytes + run_bytes > settings.segment_bytes:
        return True
    first_us = active.first_timestamp_us
    return first_us is not None and timestamp_us - first_us > settings.segment_ms * 1000


def is_all_below(active: Segment, log_start: int) -> bool:
    """Whether the segment has records, and all of them lie below the log start."""
    return active.end.size_bytes > 0 and active.end.end_offset <= log_start


def is_expired(segment: Segment, settings: LogSettings, now_us: int | None) -> bool:
    """Whether every record of the segment is older than retention.ms, by its timestamp against the wall clock.

    If `now_us` is None, the wall clock is not trusted, and no segment is expired."""
    if now_us is None:
        return False
    oldest_us = now_us - settings.retention_ms * 1000
    return settings.retention_ms >= 0 and segment.end.size_bytes > 0 and segment.end.max_timestamp_us < oldest_us


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """The oldest segment of a log, if it has a record with a time stamp in the future. It stays until that time."""

    base_offset: int
    end_offset: int
    max_timestamp_us: int


def held_by_the_future(segments: Sequence[Segment], settings: LogSettings, now_us: int) -> HeldSegment | None:
    """The segment that keeps records of a log for longer than retention.ms. None if there is none."""
    oldest = segments[0]
    if settings.retention_ms < 0 or not oldest.end.size_bytes:
        return None
    if oldest.end.max_timestamp_us <= now_us + FUTURE_US:
        return None
    return HeldSegment(oldest.base_offset, oldest.end.end_offset, oldest.end.max_timestamp_us)


def removable(segments: Sequence[Segment], settings: LogSettings, stable_offset: int, now_us: int | None) -> int:
    """How many of the first `segments` retention may remove.

    It removes no record at or above the last stable offset, and never the last segment."""
    total_bytes = sum(segment.end.size_bytes for segment in segments)
    for count, segment in enumerate(segments[:-1]):
        total_bytes -= segment.end.size_bytes
        too_much = 0 <= settings.retention_bytes <= total_bytes
        if segment.end.end_offset > stable_offset or not (too_much or is_expired(segment, settings, now_us)):
            return count
    return max(0, len(segments) - 1)


def first_within(segments: Sequence[Segment], most_bytes: int) -> int:
    """How many of the first `segments` have at most `most_bytes` together, but at least one.

    A file counts as at least LEAST_FILE_BYTES, because the removal of a small file takes time, too."""
    total_bytes = 0
    for count, segment in enumerate(segments):
        total_bytes += max(segment.end.size_bytes, LEAST_FILE_BYTES)
        if count and total_bytes > most_bytes:
            return count
    return len(segments)
