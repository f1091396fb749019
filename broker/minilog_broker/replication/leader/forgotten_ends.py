"""Producers whose end this leader may have forgotten: memory is bounded, the log has their markers.

A commit marker came for a producer of which nothing is known here, though it has written here:

    markers that were forgotten                          the answer
    there are none                                       no: its records are lost, and are never called committed
    have not been looked for                             ask again, and the log is searched (FindEnds)
    are in the log, and its own is among them            done
    are all still in the log, and its own is not there   no: its records are lost
    are below the log start now, some of them            done: so are its records. Where records that were acknowledged
                                                         can be lost (unclean election, flush.policy=os) it is no
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

MAX_REMEMBERED = 40_000  # twice what one call names: the one that asks again has its answers, and the next one its own


class ForgottenEnds:
    """The search in the log for the ends of producers that the leader has forgotten.

    One per leader epoch, with one search at a time.
    """

    def __init__(self, context: ReplicationContext, name: str, key: PartitionKey, log: ReplicaLog) -> None:
        self._context = context
        self._name = name
        self._key = key
        self._log = log
        self._looked_for: dict[int, FoundEnd | None] = {}  # the longest known first
        self._search: FindEnds | None = None

    def look_for(self, producer_ids: Iterable[int]) -> None:
        """Raises LeaderNotAvailable as long as the log has to be searched for some of these; then `end_of` knows."""
        forgotten = self._log.producers.transactions.forgotten
        missing = frozenset(producer_ids).difference(self._looked_for)
        if forgotten is None or not missing:
            return
        if self._search is None:
            within = OffsetRange(forgotten.start, min(forgotten.end, self._log.appended_end))
            self._search = FindEnds(self._context.next_number(), self._key, missing, within)
            self._context.emit(self._search)
        raise LeaderNotAvailable(
            f"{self._name}: {len(missing)} producers may have ended here long ago; the log is searched for their "
            f"markers: ask again"
        )

    def found(self, number: int, ends: dict[int, FoundEnd]) -> None:
        """FindEnds is done."""
        if self._search is None or self._search.number != number:
            return
        for producer_id in self._search.producer_ids:
            self._looked_for[producer_id] = ends.get(producer_id)
        self._search = None
        while len(self._looked_for) > MAX_REMEMBERED:
            del self._looked_for[next(iter(self._looked_for))]

    def end_of(self, producer_id: int, *, committed: bool, may_lose: bool) -> FoundEnd | None:
        """How a producer that was looked for has ended; None where it has not, or its records are lost."""
        if producer_id not in self._looked_for:
            return None
        found, forgotten = self._looked_for[producer_id], self._log.producers.transactions.forgotten
        if found is not None or may_lose or forgotten is None or forgotten.start >= self._log.log_start:
            return found
        return FoundEnd(self._log.log_start, committed)
