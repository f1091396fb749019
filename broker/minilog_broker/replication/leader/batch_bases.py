"""The offsets where batches begin. Only the files have them, so a caller waits for the disk's answer and asks again.

The leader needs them for followers that have no records yet (rules/check_position.py). An answer stays true, because a
leader never truncates its log.
"""

from __future__ import annotations

from collections.abc import Callable

from minilog.partition_key import PartitionKey
from minilog_broker.replication.replica_effects import Effect, FindBatch
from minilog_broker.replication.replica_log import ReplicaLog

MOST_KNOWN = 64  # more than the followers that need one at a time; above that the oldest answer is dropped


class BatchBases:
    """The base offsets that one leader epoch has asked the disk for."""

    def __init__(self, key: PartitionKey, leader_epoch: int, log: ReplicaLog, emit: Callable[[Effect], None]) -> None:
        self._key = key
        self._leader_epoch = leader_epoch
        self._log = log
        self._emit = emit
        self._asked: set[int] = set()
        self._known: dict[int, int] = {}

    def base(self, offset: int) -> int | None:
        """The base offset of the batch around `offset`. GONE if the log does not hold the batch any more. None while
        the disk looks it up."""
        if self._log.log.begins_segment(offset):
            return offset
        if offset not in self._known and offset not in self._asked:
            self._asked.add(offset)
            self._emit(FindBatch(self._key, self._leader_epoch, offset))
        return self._known.get(offset)

    def take_base(self, offset: int, base: int) -> None:
        """Take the disk's answer."""
        self._asked.discard(offset)
        self._known[offset] = base
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
