"""The beginning and the end of a query, as options: offsets, a number of records, an age, or timestamps.

    startingOffsets    earliest | latest | JSON      OffsetSpec (offsets.py)
                       -1000                         LastRecords: the last 1,000 offsets of each partition
                       -10m                          Ago: records of at most this age, or latest if all are older
                       group                         OfGroup: the group's committed offsets, or earliest without one
    …Timestamp, …OffsetsByTimestamp                  AtTimestamp: the first record at or after the timestamp

Pure: another module asks the cluster about timestamps, and `timestamps_ms` returns the timestamps to ask for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark_minilog.errors import refused
from pyspark_minilog.options.durations import duration_ms
from pyspark_minilog.options.offsets import (
    LATEST,
    OffsetSpec,
    Partition,
    Positions,
    check_partitions,
    is_number,
    parse_object,
    parse_offset_spec,
    parse_partition,
)

# Brokers keep microseconds in 64 bits.
LARGEST_TIMESTAMP_MS = (2**63 - 1) // 1000
_LARGEST_COUNT = 2**63 - 1
_EXAMPLE = '{"topic":{"0":1714566600000}}'
_COUNT = re.compile(r"-\s*([0-9]{1,19})")
_AGE = re.compile(r"-\s*([0-9].*)")


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The last `count` offsets of each partition, or as many as there are."""

    option: str
    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Ago:
    """The first record that is at most `age_ms` old when the query begins, or latest if all records are older."""

    option: str
    text: str
    age_ms: int


@dataclass(frozen=True, slots=True)
class OfGroup:
    """The committed offsets of a group. Without a committed offset it is the start of the log, so nothing is
    skipped."""

    option: str
    text: str


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after a timestamp (ms since 1970), for all partitions or one by one.

    If all records are older, it is the latest offset with `or_latest`, and otherwise the connector refuses the query.
    """

    option: str
    text: str
    or_latest: bool
    everywhere_ms: int | None = None
    partitions_ms: dict[Partition, int] = field(default_factory=dict)

    def timestamp_of(self, partition: Partition) -> int | None:
        """The timestamp for one partition, or None if the option does not name the partition."""
        return self.everywhere_ms if self.everywhere_ms is not None else self.partitions_ms.get(partition)


Place: TypeAlias = OffsetSpec | LastRecords | Ago | OfGroup | AtTimestamp


def ends_now(ending: Place) -> bool:
    """Whether a batch reads to the latest offset of any partition, and not to fixed places alone."""
    return isinstance(ending, OffsetSpec) and ending.mentions(LATEST)


def parse_start(option: str, text: str) -> Place:
    """Parses startingOffsets: the forms of `parse_offset_spec`, group, and the two relative forms. Raises
    InvalidOption."""
    if text.strip().lower() == "group":
        return OfGroup(option, text)
    count, age = _COUNT.fullmatch(text.strip()), _AGE.fullmatch(text.strip())
    if count:
        return LastRecords(option, text, _last_records(option, text, int(count.group(1))))
    if age:
        age_ms = duration_ms(age.group(1))
        if age_ms is None or not 0 < age_ms <= LARGEST_TIMESTAMP_MS:
            raise refused(
                option, text, "give a number of records such as -1000, or a time such as -10m (ms, s, m, h, d)"
            )
        return Ago(option, text, age_ms)
    return parse_offset_spec(option, text)


def _last_records(option: str, text: str, count: int) -> int:
    if count in (1, 2):  # in JSON -1 is latest and -2 is earliest: a user who means that must not lose records
        meant = "latest" if count == 1 else "earliest"
        raise refused(option, text, f"in JSON it means {meant}. Give {meant}, or a number of 3 or more last records")
    if not 0 < count <= _LARGEST_COUNT:
        raise refused(option, text, "give a number of last records such as -1000")
    return count


def parse_timestamp(option: str, text: str, *, or_latest: bool) -> AtTimestamp:
    """Milliseconds since 1970 for all partitions. Raises InvalidOption."""
    number = text.strip()
    if not (number.isascii() and number.isdigit()) or int(number) > LARGEST_TIMESTAMP_MS:
        raise refused(option, text, "give milliseconds since 1970 (UTC), such as 1714566600000")
    return AtTimestamp(option, text, or_latest, everywhere_ms=int(number))


def parse_timestamps(option: str, text: str, *, or_latest: bool) -> AtTimestamp:
    """`{"t":{"0":ms}}`: milliseconds since 1970 per partition. Raises InvalidOption."""
    remedy = f"give JSON such as {_EXAMPLE}"
    timestamps_ms: dict[Partition, int] = {}
    for topic, value in parse_object(option, text, remedy).items():
        if not isinstance(value, dict) or not value:
            raise refused(option, text, f"topic '{topic}' needs a timestamp per partition: {remedy}")
        for key, timestamp in value.items():
            if not is_number(timestamp) or not 0 <= timestamp <= LARGEST_TIMESTAMP_MS:
                raise refused(option, text, f"topic '{topic}' needs milliseconds since 1970 (UTC): {remedy}")
            timestamps_ms[parse_partition(option, text, topic, key)] = timestamp
    if not timestamps_ms:
        raise refused(option, text, f"name at least one topic: {remedy}")
    return AtTimestamp(option, text, or_latest, partitions_ms=timestamps_ms)


def timestamps_ms(place: Place, partitions: Iterable[Partition], now_ms: int) -> Positions:
    """The timestamps to look up, by partition. Empty for a place that needs none. Raises InvalidOption."""
    match place:
        case Ago():
            return dict.fromkeys(partitions, max(0, now_ms - place.age_ms))
        case AtTimestamp():
            read = list(partitions)
            if place.everywhere_ms is None:
                check_partitions(place.option, place.text, read, named=place.partitions_ms)
            return {partition: at_ms for partition in read if (at_ms := place.timestamp_of(partition)) is not None}
        case _:
            return {}
