"""The locks of leases: how long each worker has its records for itself. Times are this process's monotonic clock.

Nothing of it is written. A new coordinator begins all locks anew when it is loaded: longer, never shorter. A renewal is
answered behind a record that is committed, so a deposed coordinator confirms none. The worker counts from before its
request, so its lock ends first.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple


class LeaseName(NamedTuple):
    """A lease of a queue."""

    queue: str
    lease_id: int


class Locks:
    """By lease: when its lock ends, and the worker that has it, as far as this coordinator knows it."""

    def __init__(self) -> None:
        self._ends: dict[LeaseName, float] = {}
        self._workers: dict[LeaseName, str] = {}
        self._heap: list[tuple[float, LeaseName]] = []

    def clear(self) -> None:
        self._ends.clear()
        self._workers.clear()
        self._heap.clear()

    def begin(self, name: LeaseName, ends_ms: float, worker_id: str | None = None) -> None:
        """The lock ends at `ends_ms`, and no earlier than before."""
        if worker_id is not None:
            self._workers[name] = worker_id
        if self._ends.get(name, -math.inf) < ends_ms:
            self._ends[name] = ends_ms
            heapq.heappush(self._heap, (ends_ms, name))

    def forget(self, name: LeaseName) -> None:
        """The lease holds nothing any more."""
        self._ends.pop(name, None)
        self._workers.pop(name, None)

    def __contains__(self, name: LeaseName) -> bool:
        return name in self._ends

    def end_ms(self, name: LeaseName) -> float:
        return self._ends.get(name, -math.inf)

    def worker(self, name: LeaseName) -> str:
        """Empty where an earlier coordinator gave the lease."""
        return self._workers.get(name, "")

    def ended(self, now_ms: float) -> list[LeaseName]:
        """The leases whose locks have ended, and are not forgotten."""
        ended = []
        while self.next_ms() <= now_ms:
            _, name = heapq.heappop(self._heap)
            ended.append(name)
        return ended

    def next_ms(self) -> float:
        """The end of the first lock."""
        while self._heap and self._ends.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf
