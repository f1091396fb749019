"""The checks of this broker's own copies. If a batch arrives damaged at a reader, the reader asks for a check. Pure.

A check reads from the disk and computes checksums. The disk thread does that, one check at a time for the whole broker.
So appends wait for at most one check, even if many readers ask. Readers that ask for the same place while it waits
share one check. A consumer's position waits for its check, because the consumer must not get the damaged copy again. If
too many checks wait already, the position does not wait, and the consumer asks again with its next broken run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minilog.partition_key import PartitionKey
from minilog.v1 import data_pb2
from minilog_broker.replication.replica_effects import CheckCopy, Effect

MAX_WAITING = 256  # checks of a millisecond or ten each: behind more of them a position would wait too long


class CopyChecks:
    """The checks of one broker. `ask` asks for one. `hold` lets a position wait for one. `looked` takes the disk's
    answer."""

    def __init__(self, emit: Callable[[Effect], None], max_bytes: int) -> None:
        self._emit = emit
        self._max_bytes = max_bytes
        # The checks in order, the first of them on the disk, with the positions that wait for each, by session id.
        self._asked: dict[tuple[PartitionKey, int], dict[int, data_pb2.FetchPosition]] = {}
        self._held_at: dict[tuple[PartitionKey, int], int] = {}  # the offset, by partition and session id

    def ask(self, key: PartitionKey, offset: int) -> bool:
        """Check the copy at `offset`. False if too many checks wait."""
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
        """Check the copy at the position, and let the position wait for it. False if too many checks wait."""
        if not self.ask(key, position.fetch_offset):
            return False
        self.let_go(key, session_id)
        self._asked[key, position.fetch_offset][session_id] = position
        self._held_at[key, session_id] = position.fetch_offset
        return True

    def let_go(self, key: PartitionKey, session_id: int) -> None:
        """Drop the session's waiting position, because the session has another one in the partition, or none."""
        if (offset := self._held_at.pop((key, session_id), None)) is not None:
            del self._asked[key, offset][session_id]

    def looked(self, key: PartitionKey, offset: int) -> Mapping[int, data_pb2.FetchPosition]:
        """Take the end of a check, and begin the next one. Returns the positions that waited for it."""
        waiting = self._asked.pop((key, offset))
        for session_id in waiting:
            del self._held_at[key, session_id]
        if self._asked:
            self._look()
        return waiting

    def _look(self) -> None:
        key, offset = next(iter(self._asked))
        self._emit(CheckCopy(key, offset, self._max_bytes))
