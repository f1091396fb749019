"""Producers whose end this leader may have forgotten. The leader's memory is bounded, but the log has their markers.

A coordinator asks for a commit marker of a producer. The producer has written here, and the leader's state does not
have it. The answer depends on the markers that the leader has forgotten:

    the forgotten markers                                the answer
    there are none                                       refused: the producer's records are lost, so no answer may call
                                                         them committed
    the log was not searched for them yet                the log is searched (FindEnds), and the coordinator asks again
    they are in the log, the producer's is among them    done
    all are in the log, the producer's is not there      refused: its records are lost
    some of them are below the log start                 done: its records are deleted too. But refused where a topic
                                                         can lose acknowledged records (unclean election,
                                                         flush.policy=os)
    some of them are below `deletes_before`              the same: compaction may have let the marker go
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.errors import LeaderNotAvailable
from minilog.partition_key import PartitionKey
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.replica_effects import FindEnds
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.storage.find_ends import FoundEnd
from minilog_broker.storage.transactions import OffsetRange

MAX_REMEMBERED = 40_000  # twice what one call names: answers for a call that is repeated, and for the next call


class ForgottenEnds:
    """The search in the log for the ends of producers that the leader has forgotten.

    One per leader epoch, with one search at a time.
    """

    def __init__(self, context: ReplicationContext, name: str, key: PartitionKey, log: ReplicaLog) -> None:
        self._context = context
        self._name = name
        self._key = key
        self._log = log
        self._looked_for: dict[int, FoundEnd | None] = {}  # the oldest first
        self._search: FindEnds | None = None

    def look_for(self, producer_ids: Iterable[int]) -> None:
        """Search the log for these producers. Raises LeaderNotAvailable until the search has ended for all of them.
        Afterwards `end_of` has their ends."""
        forgotten = self._log.producers.transactions.forgotten
        missing = frozenset(producer_ids).difference(self._looked_for)
        if forgotten is None or not missing:
            return
        if self._search is None:
            within = OffsetRange(forgotten.start, min(forgotten.end, self._log.appended_end))
            self._search = FindEnds(self._context.next_number(), self._key, missing, within)
            self._context.emit(self._search)
        raise LeaderNotAvailable(
            f"{self._name}: {len(missing)} producers may have ended here long ago, and the leader searches its log for "
            f"their markers: ask again"
        )

    def take_ends(self, number: int, ends: dict[int, FoundEnd]) -> None:
        """Take the result of FindEnds."""
        if self._search is None or self._search.number != number:
            return
        for producer_id in self._search.producer_ids:
            self._looked_for[producer_id] = ends.get(producer_id)
        self._search = None
        while len(self._looked_for) > MAX_REMEMBERED:
            del self._looked_for[next(iter(self._looked_for))]

    def end_of(self, producer_id: int, *, committed: bool, may_lose: bool) -> FoundEnd | None:
        """The end of a producer that the search looked for. None if it has not ended, or if its records are lost."""
        if producer_id not in self._looked_for:
            return None
        end, forgotten = self._looked_for[producer_id], self._log.producers.transactions.forgotten
        gone_below = max(self._log.log_start, self._log.compaction.deletes_before)  # no marker below it need be there
        if end is not None or may_lose or forgotten is None or forgotten.start >= gone_below:
            return end
        return FoundEnd(gone_below, committed)
