"""The locks of leases: how long each worker has its records for itself. Times are this process's monotonic clock.

Nothing of it is written. A new coordinator begins all locks anew when it is loaded: longer, never shorter. A renewal is
answered behind a record that is committed, so a deposed coordinator confirms none. The worker counts from before its
request, so its lock ends first.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple


class LeaseName(NamedTuple):
    """A lease of a queue."""

    queue: str
    lease_id: int


class Owner(NamedTuple):
    """The worker that has a lease, and the principal that it belongs to."""

    worker_id: str
    principal: str


class Locks:
    """By lease: when its lock ends, and the worker and the principal that have it, as far as this coordinator knows
    them."""

    def __init__(self) -> None:
        self._ends: dict[LeaseName, float] = {}
        self._workers: dict[LeaseName, str] = {}
        self._of_worker: dict[tuple[str, str], set[LeaseName]] = {}
        self._named: set[LeaseName] = set()
        self._principals: dict[LeaseName, str] = {}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)  # leases by queue and principal
        self._heap: list[tuple[float, LeaseName]] = []

    def clear(self) -> None:
        self._ends.clear()
        self._workers.clear()
        self._of_worker.clear()
        self._named.clear()
        self._principals.clear()
        self._counts.clear()
        self._heap.clear()

    def given(self, name: LeaseName, ends_ms: float, owner: Owner) -> None:
        """A worker got a lease."""
        self._workers[name], self._principals[name] = owner
        self._of_worker.setdefault((name.queue, owner.worker_id), set()).add(name)
        self._counts[name.queue][owner.principal] += 1
        self.begin(name, ends_ms)

    def begin(self, name: LeaseName, ends_ms: float) -> None:
        """The lock ends at `ends_ms`, and no earlier than before."""
        if self._ends.get(name, -math.inf) < ends_ms:
            self._ends[name] = ends_ms
            heapq.heappush(self._heap, (ends_ms, name))

    def named(self, name: LeaseName) -> None:
        """Its worker has named the lease to this coordinator: so it has it, and may have handed out its records."""
        if name in self._ends:
            self._named.add(name)

    def is_named(self, name: LeaseName) -> bool:
        """Whether its end counts as a delivery."""
        return name in self._named

    def forget(self, name: LeaseName) -> None:
        """The lease holds nothing any more."""
        self._ends.pop(name, None)
        self._named.discard(name)
        worker = name.queue, self._workers.pop(name, "")
        held = self._of_worker.get(worker, set())
        held.discard(name)
        if not held:
            self._of_worker.pop(worker, None)
        if (principal := self._principals.pop(name, None)) is not None:
            counts = self._counts[name.queue]
            counts[principal] -= 1
            if not counts[principal]:
                del counts[principal]
            if not counts:
                del self._counts[name.queue]

    def __contains__(self, name: LeaseName) -> bool:
        return name in self._ends

    def end_ms(self, name: LeaseName) -> float:
        return self._ends.get(name, -math.inf)

    def of_worker(self, queue: str, worker_id: str) -> Collection[LeaseName]:
        """The leases of a worker that gave its id, as far as this coordinator knows. A transaction may have settled all
        that one of them had: its lock goes on until its end."""
        return self._of_worker.get((queue, worker_id), ()) if worker_id else ()

    def worker(self, name: LeaseName) -> str:
        """Empty where an earlier coordinator gave the lease."""
        return self._workers.get(name, "")

    def principals(self, queue: str) -> set[str]:
        """Those that hold leases of the queue."""
        return set(self._counts.get(queue, ()))

    def held_by(self, principal: str, queue: str, leases: Iterable[tuple[int, int]]) -> int:
        """How many records of these leases, each with its count, the principal holds."""
        of = self._principals
        return sum(count for lease_id, count in leases if of.get(LeaseName(queue, lease_id)) == principal)

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
