"""In which partitions a lease, or a transaction, holds ranges, and what a partition has: so nobody searches all ranges.

It follows the states of partitions, change by change. It is in memory, and loaded with the states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from minilog_broker.coordinators.queues.locks import LeaseName
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.ranges import Range, RangeState

_HELD = (RangeState.LEASED, RangeState.SETTLING)
_Holder = TypeVar("_Holder")
_NONE: Final[dict[QueueKey, int]] = {}


@dataclass(slots=True)
class Tally:
    """Of a partition: the ranges that wait for a lease, ready or dead, their offsets, and those of all ranges."""

    waiting_ranges: int = 0
    waiting: int = 0
    locks: int = 0

    @property
    def held(self) -> int:
        """The offsets that leases and transactions hold."""
        return self.locks - self.waiting


class Holdings:
    """By lease and by producer: the partitions, each with the number of ranges there."""

    def __init__(self) -> None:
        self._of_lease: dict[LeaseName, dict[QueueKey, int]] = {}
        self._of_producer: dict[tuple[str, int], dict[QueueKey, int]] = {}
        self._tallies: dict[QueueKey, Tally] = {}

    def clear(self) -> None:
        self._of_lease.clear()
        self._of_producer.clear()
        self._tallies.clear()

    def changed(self, key: QueueKey, gone: Iterable[Range], come: Iterable[Range]) -> None:
        """A partition has lost some ranges, and got others."""
        for current in come:
            self._count(key, current, 1)
        for current in gone:
            self._count(key, current, -1)
        if (tally := self._tallies.get(key)) is not None and not tally.locks:
            del self._tallies[key]

    def tally(self, key: QueueKey) -> Tally:
        """Not to be changed."""
        return self._tallies.get(key) or Tally()

    def of_lease(self, name: LeaseName) -> list[QueueKey]:
        """The partitions in which a lease holds ranges. A transaction may settle them."""
        return list(self._of_lease.get(name, _NONE))

    def of_producer(self, queue: str, producer_id: int) -> list[QueueKey]:
        """The partitions of a queue in which a transaction of the producer settles ranges."""
        return list(self._of_producer.get((queue, producer_id), _NONE))

    def _count(self, key: QueueKey, current: Range, by: int) -> None:
        tally = self._tallies.setdefault(key, Tally())
        tally.locks += by * current.count
        if current.state not in _HELD:
            tally.waiting_ranges += by
            tally.waiting += by * current.count
        else:
            _count(self._of_lease, LeaseName(key.owner, current.lease_id), key, by)
        if current.state is RangeState.SETTLING:
            _count(self._of_producer, (key.owner, current.producer_id), key, by)


def _count(table: dict[_Holder, dict[QueueKey, int]], holder: _Holder, key: QueueKey, by: int) -> None:
    counts = table.setdefault(holder, {})
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]
    if not counts:
        del table[holder]
