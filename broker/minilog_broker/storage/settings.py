"""The part of a topic's configuration that its log needs."""

from __future__ import annotations

from dataclasses import dataclass

_DAY_MS = 24 * 60 * 60 * 1000
NO_BOUND = -1  # of retention


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of one log.

    The log begins a new segment before a run that would make the segment larger than `segment_bytes`, and before a run
    that is more than `segment_ms` younger than the segment's first batch. It never splits a run, so a segment of one
    run may be larger. A retention of NO_BOUND removes nothing."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    index_interval_bytes: int = 4096  # as in Kafka: a read walks at most so many bytes of headers
    flush_on_append: bool = True  # flush.policy=fsync
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = NO_BOUND
