"""What was written and read, what the logs held afterwards, judged (V2, V7, V9, V14, V16).

A write is acknowledged (with its place), failed (surely not written) or unknown (may be there, once). Of what the log
holds: each acknowledged value stands exactly once, at its offset; each unknown one at most once; no failed one; nothing
that nobody wrote; the values of one writer stand in the order in which it sent them, partition by partition. A reader's
offsets go up by one, and what it saw is what stands there in the end.
"""

from __future__ import annotations

import bisect
import itertools
import pathlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

Place: TypeAlias = tuple[int, int]
"""Partition and offset."""
Stored: TypeAlias = dict[int, list[tuple[int, bytes]]]
"""Offset and value of each record, by partition."""
INSTANTS_PER_S = 100


@dataclass(frozen=True, slots=True)
class Standstill:
    """The longest time from one acknowledgement of a partition to its next."""

    seconds: float
    partition: int
    since_s: float


@dataclass
class History:
    """What became of each value written. Values begin with the writer's name and a number: `name:17|`."""

    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    failed: dict[bytes, str] = field(default_factory=dict)
    longest_stall_s: float = 0.0
    instants: dict[int, set[int]] = field(default_factory=dict)
    """By partition: the hundredths of a second, of the monotonic clock, in which it acknowledged something."""

    def acknowledged_at(self, partition: int, now_s: float) -> None:
        """An acknowledgement came."""
        self.instants.setdefault(partition, set()).add(int(now_s * INSTANTS_PER_S))

    def longest_standstill(self, since_s: float, until_s: float) -> Standstill:
        """Of all partitions, between these times; the last acknowledgement before them counts as its beginning."""
        found = [Standstill(0.0, -1, since_s)]
        for partition, instants in self.instants.items():
            times_s = [instant / INSTANTS_PER_S for instant in sorted(instants)]
            first = max(bisect.bisect_right(times_s, since_s) - 1, 0)
            inside = [*times_s[first : bisect.bisect_left(times_s, until_s) + 1], until_s]
            found += [
                Standstill(later_s - earlier_s, partition, earlier_s)
                for earlier_s, later_s in itertools.pairwise(inside)
                if later_s > earlier_s
            ]
        return max(found, key=lambda each: each.seconds)

    def joined(self, other: History) -> History:
        """Both as one; no value may be in both."""
        return History(
            self.acknowledged | other.acknowledged,
            self.unknown | other.unknown,
            self.failed | other.failed,
            max(self.longest_stall_s, other.longest_stall_s),
            {
                partition: self.instants.get(partition, set()) | other.instants.get(partition, set())
                for partition in self.instants.keys() | other.instants.keys()
            },
        )

    def judge(self, stored: Stored) -> list[str]:
        """Every way in which `stored` breaks the promise; empty: none."""
        places = {value: (partition, offset) for partition, records in stored.items() for offset, value in records}
        counts = Counter(value for records in stored.values() for _, value in records)
        wrong = [f"{value[:40]!r} stands {count} times" for value, count in counts.items() if count > 1]
        for value, place in self.acknowledged.items():
            if places.get(value) != place:
                wrong.append(f"{value[:40]!r} was acknowledged at {place}, it stands at {places.get(value)}")
        known = self.acknowledged.keys() | self.unknown
        wrong += [
            f"{value[:40]!r} stands at {place} though it was not acknowledged nor unknown"
            for value, place in places.items()
            if value not in known
        ]
        for partition, records in stored.items():
            wrong += _gaps(f"partition {partition}", [offset for offset, _ in records])
            wrong += _reordered(partition, [value for _, value in records])
        return wrong


def _gaps(where: str, offsets: list[int]) -> Iterable[str]:
    if offsets and offsets != list(range(offsets[0], offsets[0] + len(offsets))):
        yield f"{where} has gaps in its offsets"


def _reordered(partition: int, values: Iterable[bytes]) -> Iterable[str]:
    last: dict[bytes, int] = {}
    for value in values:
        writer, _, number = value.partition(b"|")[0].rpartition(b":")
        if int(number) < last.get(writer, -1):
            yield f"partition {partition}: {value[:40]!r} stands behind number {last[writer]} of the same writer"
        last[writer] = int(number)


def judge_reading(read: Stored, stored: Stored) -> list[str]:
    """Every way in which a reader saw something else than what stands there in the end."""
    wrong: list[str] = []
    for partition, records in read.items():
        wrong += _gaps(f"what was read of partition {partition}", [offset for offset, _ in records])
        standing = dict(stored[partition])
        wrong += [
            f"{value[:40]!r} was read at {partition}, {offset}; {standing.get(offset, b'nothing')[:40]!r} stands there"
            for offset, value in records
            if standing.get(offset) != value
        ]
    return wrong


def judge_copies(data_directories: Iterable[pathlib.Path], topic: str) -> list[str]:
    """Partitions of which two stopped brokers hold different bytes: a copy was not truncated, or is behind."""
    copies: dict[str, dict[str, bytes]] = {}
    for directory in data_directories:
        for partition in directory.glob(f"{topic}-*"):
            content = b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))
            copies.setdefault(partition.name, {})[directory.name] = content
    return [
        f"the copies of {name} differ: " + ", ".join(f"{broker} {len(each)} bytes" for broker, each in found.items())
        for name, found in sorted(copies.items())
        if len(set(found.values())) > 1
    ]
