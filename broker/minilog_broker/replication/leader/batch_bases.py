"""Where the batch around an offset begins: the files say, so who asks waits for the answer and asks again then.

Asked for followers that have nothing yet (rules/check_position.py). What is answered holds: a leader cuts nothing of
its log.
"""

from __future__ import annotations

from collections.abc import Callable

from minilog.partition_key import PartitionKey
from minilog_broker.replication.replica_effects import Effect, FindBatch
from minilog_broker.replication.replica_log import ReplicaLog

MOST_KNOWN = 64  # as many followers as ask for one of these at a time, and more; then the oldest is asked for again


class BatchBases:
    """Of one leader epoch."""

    def __init__(self, key: PartitionKey, leader_epoch: int, log: ReplicaLog, emit: Callable[[Effect], None]) -> None:
        self._key = key
        self._leader_epoch = leader_epoch
        self._log = log
        self._emit = emit
        self._asked: set[int] = set()
        self._known: dict[int, int] = {}

    def base(self, offset: int) -> int | None:
        """The base offset of the batch around `offset`, GONE where the log holds it no more; None: it is asked for."""
        if self._log.log.begins_segment(offset):
            return offset
        if offset not in self._known and offset not in self._asked:
            self._asked.add(offset)
            self._emit(FindBatch(self._key, self._leader_epoch, offset))
        return self._known.get(offset)

    def found(self, offset: int, base: int) -> None:
        """It is answered."""
        self._asked.discard(offset)
        self._known[offset] = base
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
