"""Up to which offset a leader should clean its log next.

The records up to `clean_to` must be in sealed segments, below the last stable offset, and older than
min.compaction.lag.ms. A cleaning is due if one of these is true:

    the dirty bytes have their share    of the bytes up to there: min.cleanable.dirty.ratio
    the oldest dirty record is overdue  it is older than max.compaction.lag.ms

*Dirty* are the records that no cleaning of this log has seen. The names and the meanings are Kafka's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log
    from minilog_broker.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """The settings of one topic. Times are in microseconds. `max_lag_us` None: no record is overdue."""

    min_dirty_ratio: float
    min_lag_us: int
    max_lag_us: int | None


@dataclass(frozen=True, slots=True)
class DirtyBytes:
    """The bytes of one log below its last stable offset, without the active segment."""

    clean_bytes: int
    dirty_bytes: int

    @property
    def ratio(self) -> float:
        """The share of the dirty bytes, 0 for an empty log."""
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)


def dirty_bytes(log: Log) -> DirtyBytes:
    """The bytes that a cleaning now would call clean and dirty. A segment with both counts as dirty."""
    return _bytes_of(log, _below(log, log.last_stable_offset))


def next_clean_to(log: Log, settings: CompactionSettings, now_us: int | None) -> int | None:
    """The next `clean_to`. None if no cleaning is due.

    `now_us` is the wall clock, None if it is not trusted: then only bytes decide, and no record is old enough for a
    lag above 0. May read the first batch of a segment. Raises OSError, CorruptMessage."""
    segments = _below(log, log.last_stable_offset)
    if settings.min_lag_us:
        segments = _older(segments, None if now_us is None else now_us - settings.min_lag_us)
    dirty = [segment for segment in segments if segment.end.end_offset > log.compaction.done.clean_to]
    if not dirty:
        return None
    has_share = _bytes_of(log, segments).ratio >= settings.min_dirty_ratio
    return segments[-1].end.end_offset if has_share or _is_overdue(dirty[0], settings, now_us) else None


def _below(log: Log, offset: int) -> list[Segment]:
    return [segment for segment in log.sealed_segments if segment.end.end_offset <= offset]


def _older(segments: list[Segment], than_us: int | None) -> list[Segment]:
    """The segments up to the first one with a record that is not older."""
    older = []
    for segment in segments:
        if than_us is None or segment.end.max_timestamp_us > than_us:
            break
        older.append(segment)
    return older


def _bytes_of(log: Log, segments: list[Segment]) -> DirtyBytes:
    done = log.compaction.done.clean_to
    clean_bytes = sum(segment.end.size_bytes for segment in segments if segment.end.end_offset <= done)
    return DirtyBytes(clean_bytes, sum(segment.end.size_bytes for segment in segments) - clean_bytes)


def _is_overdue(first: Segment, settings: CompactionSettings, now_us: int | None) -> bool:
    if settings.max_lag_us is None or now_us is None:
        return False
    oldest_us = first.first_timestamp_us
    return oldest_us is not None and oldest_us < now_us - settings.max_lag_us
