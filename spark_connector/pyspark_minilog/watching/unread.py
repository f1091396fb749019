"""The unread part of a query's topics, which a source reports with its latest offset for observers. Pure.

Spark takes no metrics from a Python source, but it puts the source's latest offset into the query's progress. If a
batch leaves records unread, that offset has `"__unread": {"bytes": {"t": 1234}, "since_ms": {"t": 1714566600}}`: the
stored bytes that are left of each topic, and the time of the first unread record. A topic that is missing there has no
unread records, or its numbers are not known yet. behind.py reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_minilog.options.limits import SizeMarks
from pyspark_minilog.options.offsets import Partition, Positions, is_number


@dataclass(frozen=True, slots=True)
class Unread:
    """By topic: the stored bytes, and the timestamp of the first record, in milliseconds since 1970."""

    bytes: dict[str, int]
    since_ms: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """The value of UNREAD_KEY."""
        return {"bytes": self.bytes, "since_ms": self.since_ms}

    @classmethod
    def from_json(cls, value: object) -> Unread:
        """Reads the value of UNREAD_KEY. It ignores other forms, which another version may have written."""
        fields = value if isinstance(value, Mapping) else {}
        return cls(_numbers(fields.get("bytes")), _numbers(fields.get("since_ms")))


def _numbers(value: object) -> dict[str, int]:
    numbers = value if isinstance(value, Mapping) else {}
    return {str(topic): value for topic, value in numbers.items() if is_number(value)}


def left_over(end: Positions, latest: Positions) -> dict[Partition, tuple[int, int]]:
    """The unread offsets between the end of a batch and the latest offset, of each partition with unread offsets."""
    return {partition: (at, latest[partition]) for partition, at in end.items() if at < latest.get(partition, at)}


def unread_bytes(left: Mapping[Partition, tuple[int, int]], marks: Mapping[Partition, SizeMarks]) -> dict[str, int]:
    """About the number of unread bytes, by topic. Only for topics with measures of all their partitions."""
    measured: dict[str, int] = {}
    unknown = {partition.topic for partition in left if partition not in marks}
    for partition, (first, last) in left.items():
        if partition.topic not in unknown:
            size = marks[partition].bytes_to(last) - marks[partition].bytes_to(first)
            measured[partition.topic] = measured.get(partition.topic, 0) + size
    return measured
