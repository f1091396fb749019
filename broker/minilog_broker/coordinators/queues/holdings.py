"""In which partitions a lease, or a transaction, holds ranges: so nobody searches all ranges for those of one lease.

It follows the states of partitions, change by change. It is in memory, and loaded with the states.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from minilog_broker.coordinators.queues.locks import LeaseName
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.ranges import Range, RangeState

_HELD = (RangeState.LEASED, RangeState.SETTLING)
_Holder = TypeVar("_Holder")
_NONE: Final[dict[QueueKey, int]] = {}


class Holdings:
    """By lease and by producer: the partitions, each with the number of ranges there."""

    def __init__(self) -> None:
        self._of_lease: dict[LeaseName, dict[QueueKey, int]] = {}
        self._of_producer: dict[tuple[str, int], dict[QueueKey, int]] = {}

    def clear(self) -> None:
        self._of_lease.clear()
        self._of_producer.clear()

    def changed(self, key: QueueKey, gone: Iterable[Range], come: Iterable[Range]) -> None:
        """A partition has lost some ranges, and got others."""
        for current in come:
            self._count(key, current, 1)
        for current in gone:
            self._count(key, current, -1)

    def of_lease(self, name: LeaseName) -> list[QueueKey]:
        """The partitions in which a lease holds ranges. A transaction may settle them."""
        return list(self._of_lease.get(name, _NONE))

    def of_producer(self, queue: str, producer_id: int) -> list[QueueKey]:
        """The partitions of a queue in which a transaction of the producer settles ranges."""
        return list(self._of_producer.get((queue, producer_id), _NONE))

    def _count(self, key: QueueKey, current: Range, by: int) -> None:
        if current.state in _HELD:
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
