"""The sums of T20-groups: who owns which partition, how long a hand-over takes, and how long a partition pauses. Pure.

A row is one record that a member has read. The last reader of a partition is its owner.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

ROW = np.dtype([(name, "i8") for name in ("member", "partition", "offset", "sent_ns", "read_ns")])
"""`member`: its number. `sent_ns`, `read_ns`: by the clock that all processes of the machine share."""
Rows: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.void]]"
Owners: TypeAlias = Mapping[int, int]
"""The number of the member, by partition."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What an event did. `handovers_s`: of each partition that moved, from the event to the first record that its new
    owner read. Of the others: `pauses_ms`, the longest pause of each; `delay_ms`, the longest time from the sending of
    a record to its reader."""

    handovers_s: list[float]
    pauses_ms: list[float]
    delay_ms: float

    def details(self, name: str) -> dict[str, float]:
        """Median and worst, for the figures of a run."""
        return {
            f"{name}_median_s": statistics.median(self.handovers_s),
            f"{name}_worst_s": max(self.handovers_s),
            f"{name}_moved": float(len(self.handovers_s)),
            f"{name}_pause_median_ms": statistics.median(self.pauses_ms),
            f"{name}_pause_ms": max(self.pauses_ms),
            f"{name}_delay_ms": self.delay_ms,
        }


def owners(rows: Rows, start_ns: int, end_ns: int) -> dict[int, int]:
    """The last reader of each partition. A partition counts if a reader got a record of it in that time."""
    inside = _read_between(rows, start_ns, end_ns)
    inside = inside[np.argsort(inside["read_ns"], kind="stable")]
    return dict(zip(inside["partition"].tolist(), inside["member"].tolist(), strict=True))


def is_settled(rows: Rows, start_ns: int, end_ns: int, members: frozenset[int], partitions: int) -> bool:
    """Whether in that time each partition had one reader, and the members have equal numbers of them within one."""
    inside = _read_between(rows, start_ns, end_ns)
    pairs = np.unique(inside[["partition", "member"]])
    if len(pairs) != partitions or len(np.unique(pairs["partition"])) != partitions:
        return False
    readers, counts = np.unique(pairs["member"], return_counts=True)
    wanted = min(len(members), partitions)
    return set(readers.tolist()) <= members and len(readers) == wanted and int(counts.max() - counts.min()) <= 1


def moves(rows: Rows, event_ns: int, end_ns: int, before: Owners, after: Owners, *, interval_ms: float) -> Moves:
    """What an event did, seen until `end_ns`. `interval_ms`: between two records of one partition."""
    inside = _read_between(rows, event_ns, end_ns)
    moved = [partition for partition, owner in after.items() if before[partition] != owner]
    handovers_s = []
    for partition in moved:
        read = inside[(inside["partition"] == partition) & (inside["member"] == after[partition])]
        handovers_s.append(float(read["read_ns"].min() - event_ns) / 1e9)
    still = inside[~np.isin(inside["partition"], moved)]
    delay_ms = float((still["read_ns"] - still["sent_ns"]).max()) / 1e6
    return Moves(handovers_s, longest_pauses_ms(still, event_ns, end_ns, interval_ms), delay_ms)


def longest_pauses_ms(rows: Rows, start_ns: int, end_ns: int, interval_ms: float) -> list[float]:
    """Of each partition, by how much the longest time without a record is longer than the interval. A record that is
    late makes such a time, and so do the start and the end of what is looked at."""
    pauses_ms = []
    ordered = rows[np.lexsort((rows["read_ns"], rows["partition"]))]
    for read_ns in np.split(ordered["read_ns"], np.flatnonzero(np.diff(ordered["partition"])) + 1):
        longest_ms = float(np.diff(read_ns, prepend=start_ns, append=end_ns).max()) / 1e6
        pauses_ms.append(max(0.0, longest_ms - interval_ms))
    return pauses_ms


def unread_records(rows: Rows) -> int:
    """Offsets between the first and the last one read of a partition that nobody has read."""
    missing = 0
    for partition in np.unique(rows["partition"]):
        offsets = np.unique(rows["offset"][rows["partition"] == partition])
        missing += int(offsets[-1] - offsets[0] + 1 - len(offsets))
    return missing


def twice_read_records(rows: Rows) -> int:
    """Records that were read again."""
    return len(rows) - len(np.unique(rows[["partition", "offset"]]))


def _read_between(rows: Rows, start_ns: int, end_ns: int) -> Rows:
    return rows[(rows["read_ns"] >= start_ns) & (rows["read_ns"] < end_ns)]
