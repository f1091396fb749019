"""What a source reports with the latest offset of what the query has left unread: for those who observe it. Pure.

Spark takes no metrics from a Python source, but puts the latest offset that it reports into the query's progress. So
there stands, where a batch leaves anything unread, `"__unread": {"bytes": {"t": 1234}, "since_ms": {"t": 1714566600}}`:
how many bytes are left of each topic, as they are stored, and when the first record that is left was written. A topic
that is not there has nothing left, or it is not known yet. behind.py reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_minilog.limits import SizeMarks
from pyspark_minilog.offsets import Partition, Positions, is_number


@dataclass(frozen=True, slots=True)
class Unread:
    """By topic: bytes as they are stored, and the timestamp of the first record, in milliseconds since 1970."""

    bytes: dict[str, int]
    since_ms: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """What stands under UNREAD_KEY."""
        return {"bytes": self.bytes, "since_ms": self.since_ms}

    @classmethod
    def from_json(cls, value: object) -> Unread:
        """What of it can be understood: another version may say other things."""
        fields = value if isinstance(value, Mapping) else {}
        return cls(_numbers(fields.get("bytes")), _numbers(fields.get("since_ms")))


def _numbers(value: object) -> dict[str, int]:
    numbers = value if isinstance(value, Mapping) else {}
    return {str(topic): value for topic, value in numbers.items() if is_number(value)}


def left_over(end: Positions, latest: Positions) -> dict[Partition, tuple[int, int]]:
    """The offsets from the end of a batch to the latest ones, of the partitions that have any."""
    return {partition: (at, latest[partition]) for partition, at in end.items() if at < latest.get(partition, at)}


def unread_bytes(left: Mapping[Partition, tuple[int, int]], marks: Mapping[Partition, SizeMarks]) -> dict[str, int]:
    """About how many bytes they are, by topic; of topics all of whose partitions the brokers have measured."""
    measured: dict[str, int] = {}
    unknown = {partition.topic for partition in left if partition not in marks}
    for partition, (first, last) in left.items():
        if partition.topic not in unknown:
            size = marks[partition].bytes_to(last) - marks[partition].bytes_to(first)
            measured[partition.topic] = measured.get(partition.topic, 0) + size
    return measured
