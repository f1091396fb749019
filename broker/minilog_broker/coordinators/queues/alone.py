"""Records that are leased alone (shrinking.py): which worker may have one, and who holds one.

A worker gets such a record when it holds nothing else, and gets nothing else until the record is settled: so if the
worker dies, this record is the only one that can have killed it. Both have a bound, because a program may forget a
message: a worker waits one lock at most until it holds nothing, and holds a record alone for three locks at most. Lives
in the memory of the coordinator.
"""

from __future__ import annotations

from typing import NamedTuple

from minilog_broker.coordinators.queues.holdings import Holdings
from minilog_broker.coordinators.queues.locks import LeaseName, Locks

_LOCKS_ALONE = 3


class Holder(NamedTuple):
    """A worker of a queue."""

    queue: str
    worker_id: str


class Alone:
    """Of one coordinator."""

    def __init__(self, locks: Locks, holdings: Holdings) -> None:
        self._locks, self._holdings = locks, holdings
        self._until_ms: dict[Holder, tuple[LeaseName, float]] = {}  # who holds a record alone
        self._waits_ms: dict[Holder, float] = {}  # since when a worker waits until it holds nothing

    def clear(self) -> None:
        self._until_ms.clear()
        self._waits_ms.clear()

    def began(self, holder: Holder, name: LeaseName, now_ms: float, lock_ms: float) -> None:
        """The worker holds the one record of this lease."""
        if holder.worker_id:
            self._until_ms[holder] = name, now_ms + _LOCKS_ALONE * lock_ms

    def is_held_by(self, holder: Holder, now_ms: float) -> bool:
        """Whether the worker holds a record alone, and gets nothing else."""
        name, until_ms = self._until_ms.get(holder, (None, 0.0))
        if name is not None and now_ms < until_ms and name in self._locks and self._holdings.of_lease(name):
            return True
        self._until_ms.pop(holder, None)
        return False

    def may_begin(self, holder: Holder, now_ms: float, lock_ms: float) -> bool:
        """Whether the worker may get a record alone now. Otherwise it gets nothing, and the wait begins."""
        if not any(map(self._holdings.of_lease, self._locks.of_worker(*holder))):
            self._waits_ms.pop(holder, None)
            return True
        began_ms = self._waits_ms.setdefault(holder, now_ms)
        if now_ms - began_ms < lock_ms:
            return False
        del self._waits_ms[holder]
        return True
