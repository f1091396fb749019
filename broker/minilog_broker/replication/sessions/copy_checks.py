"""Looks at our own copy that others asked for: a batch came damaged, is it ours that is? Pure.

A look reads from the disk and sums up what it reads, so the disk thread does it, one look at a time for the whole
broker: whoever asks, and however often, appends wait for one look at most. The same place is looked at once for all
who ask while it waits. A consumer's position waits for its look, for what it is sent next must not be the damaged copy
again; where too many looks wait already the position does not, and the consumer asks again with its next broken run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minilog.partition_key import PartitionKey
from minilog.v1 import data_pb2
from minilog_broker.replication.replica_effects import CheckCopy, Effect

MAX_WAITING = 256  # of a millisecond or ten each: a position that waited longer would rather be sent at once


class CopyChecks:
    """One per broker: `ask` for a look, `hold` a position until it is done, `looked` when the disk has answered."""

    def __init__(self, emit: Callable[[Effect], None], max_bytes: int) -> None:
        self._emit = emit
        self._max_bytes = max_bytes
        # What is asked, in order, the first of it on the disk; with the positions that wait for it, by session id.
        self._asked: dict[tuple[PartitionKey, int], dict[int, data_pb2.FetchPosition]] = {}
        self._held_at: dict[tuple[PartitionKey, int], int] = {}  # the offset, by partition and session id

    def ask(self, key: PartitionKey, offset: int) -> bool:
        """Look at what is at `offset`; False where too many looks wait."""
        place = (key, offset)
        if place in self._asked:
            return True
        if len(self._asked) >= MAX_WAITING:
            return False
        self._asked[place] = {}
        if len(self._asked) == 1:
            self._look()
        return True

    def hold(self, key: PartitionKey, session_id: int, position: data_pb2.FetchPosition) -> bool:
        """Look at what is at the position, which waits for it; False where too many looks wait."""
        if not self.ask(key, position.fetch_offset):
            return False
        self.let_go(key, session_id)
        self._asked[key, position.fetch_offset][session_id] = position
        self._held_at[key, session_id] = position.fetch_offset
        return True

    def let_go(self, key: PartitionKey, session_id: int) -> None:
        """The session has another position in the partition, or none any more."""
        if (offset := self._held_at.pop((key, session_id), None)) is not None:
            del self._asked[key, offset][session_id]

    def looked(self, key: PartitionKey, offset: int) -> Mapping[int, data_pb2.FetchPosition]:
        """The look is done: the positions that waited for it. The next one begins."""
        waiting = self._asked.pop((key, offset))
        for session_id in waiting:
            del self._held_at[key, session_id]
        if self._asked:
            self._look()
        return waiting

    def _look(self) -> None:
        key, offset = next(iter(self._asked))
        self._emit(CheckCopy(key, offset, self._max_bytes))
