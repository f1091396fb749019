"""The part of a topic's configuration that its log needs."""

from __future__ import annotations

from dataclasses import dataclass

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogSettings:
    """A segment is rolled before the run that would take it above `segment_bytes`, or that is `segment_ms` younger than
    its first batch. A run is never split: a segment of one run may be longer. -1 for a retention means no bound."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    index_interval_bytes: int = 4096  # as in Kafka: a read walks at most so many bytes of headers
    flush_on_append: bool = True  # flush.policy=fsync
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
