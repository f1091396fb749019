"""Group commit: decisions that come while a batch of the log is on its way share the next batch.

    a decision while                     what happens
    nothing is on its way                the log gets it at once, as a batch of its own
    a batch is not committed yet         it waits. When that batch is committed, one batch has all that wait
    more waits than fits into a batch    the log gets what waits at once

So one client alone waits for nothing, and many clients share the cost of replication: a batch costs a broker and its
followers milliseconds, and one more decision in it microseconds. Each decision has its place in the log at once,
because only the coordinator appends to this log while its epoch lasts. A batch is there as a whole, or not at all, and
so is each decision in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minilog_broker.coordinators.table import LogRecord

BATCH_BYTES = 64 * 1024  # of keys and values: far below the largest batch that a log takes


class OwnLog(Protocol):
    """The log of a coordinator's partition. Only the coordinator appends to it while its leader epoch lasts."""

    def require_room(self) -> None:
        """Raises NotLeaderOrFollower if the leader epoch is over, another MinilogError if the log takes no decision
        now."""

    def append(self, records: Sequence[LogRecord]) -> int:
        """Append one batch. Returns the end behind it. Raises NotLeaderOrFollower if the leader epoch is over,
        MessageTooLarge if it is larger than a batch may be. Then nothing was written."""


class GroupCommit:
    """The end of one coordinator's log in one term."""

    def __init__(self, log: OwnLog) -> None:
        self._log = log
        self._waiting: list[LogRecord] = []
        self._waiting_bytes = 0
        self._committed_end = 0
        self.written_end = 0
        """The end of the log, without what waits."""
        self.taken_bytes = 0
        """Of the keys and values of all decisions that got a place."""

    def begin(self, end_offset: int) -> None:
        """The term begins at this end of the log. What waits of an earlier one is dropped."""
        self._waiting, self._waiting_bytes = [], 0
        self.written_end = self._committed_end = end_offset

    @property
    def is_busy(self) -> bool:
        """Whether a batch is on its way. A decision would wait for it."""
        return self._committed_end < self.written_end

    def write(self, records: Sequence[LogRecord]) -> int:
        """Give a decision its place. Returns the end behind it. Raises what the log raises, and then it has none."""
        self._log.require_room()
        size_bytes = sum(len(record.key) + len(record.value or b"") for record in records)
        if self._waiting_bytes + size_bytes > BATCH_BYTES:
            self._append_waiting()
        if self.is_busy and size_bytes <= BATCH_BYTES:
            self._waiting += records
            self._waiting_bytes += size_bytes
            self.taken_bytes += size_bytes
            return self.written_end + len(self._waiting)
        self.written_end = self._log.append(records)  # nothing waits now: `committed` leaves nothing behind
        self.taken_bytes += size_bytes
        return self.written_end

    def committed(self, high_watermark: int) -> None:
        """All below is committed. Append what waits, if nothing else is on its way. Raises what the log raises: then
        the term is over."""
        self._committed_end = high_watermark
        if high_watermark >= self.written_end:
            self._append_waiting()

    def _append_waiting(self) -> None:
        if self._waiting:
            self.written_end = self._log.append(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
