"""Wrong rules of deleting records (delete_records.py in the product, KIP-107)."""

from __future__ import annotations

from typing import Any

from minilog_broker.coordinators.places import Places
from minilog_broker.replication.leader import partition as leader_module
from minilog_broker.replication.leader.delete_records import PendingDeleteRecords
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.rules import check_position, in_sync
from minilog_broker.replication.sessions.source import PositionAnswer
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState
from tests.rules import Patches


def answered_before_the_others_have_it() -> Patches:
    """Durable on the leader is taken for durable on all."""
    return [(PendingDeleteRecords, "_low_watermark", lambda self, in_sync: self._log.log_start)]


def above_the_high_watermark() -> Patches:
    """What is above the high watermark is not refused: all that may go goes."""

    def ask_log_start(self: ReplicaLog, offset: int) -> bool:
        self.asked_log_start = offset
        return offset > self.log_start

    return [
        (PendingDeleteRecords, "_check", lambda self, offset, *, knows_its_end: None),
        (ReplicaLog, "ask_log_start", ask_log_start),
    ]


def joiner_without_log_start() -> Patches:
    """Who joins the ISR may have what was deleted."""
    may_join = in_sync.may_join

    def mutant(*args: Any, **given: Any) -> bool:
        return may_join(*args, **(given | {"log_start": -1}))

    return [(in_sync, "may_join", mutant)]


def inside_the_first_batch_only() -> Patches:
    """A follower that has nothing is told where a batch begins if it is the leader's first one: of a later one it is
    sent the whole, and drops it."""
    inside = check_position.inside_a_batch

    def mutant(log: ReplicaLog, position: Any, base_of: Any) -> PositionAnswer | None:
        return inside(log, position, base_of) if position.fetch_offset <= log.log_start else None

    return [(leader_module, "inside_a_batch", mutant)]


def emptied_copy_begins_anew() -> Patches:
    """A copy that was deleted to its end names the epoch of what is gone: no later leader knows it, so the copy begins
    anew. And who begins at a log start knows nothing of the producers below it."""

    def log_start_moved(self: ReplicaLog) -> None:
        self.producers.log_starts_at(self.log_start)

    below: Patches = [(ProducerState, "below", lambda self, offset: ProducerState())]
    return [(ReplicaLog, "log_start_moved", log_start_moved), *below]


def log_start_not_recorded() -> Patches:
    """Followers are told, and the answer is given, before the log start is on the disk."""
    advance, write = Log.advance_log_start, Log.write_checkpoint

    def mutant(self: Log, offset: int) -> int:
        self.__dict__["_mutant_advances"] = True
        try:
            return advance(self, offset)
        finally:
            del self.__dict__["_mutant_advances"]

    def write_checkpoint(self: Any, log_start: int | None = None, **given: Any) -> None:
        if "_mutant_advances" not in self.__dict__:
            write(self, log_start, **given)

    return [(Log, "advance_log_start", mutant), (Log, "write_checkpoint", write_checkpoint)]


def coordinator_carries_nothing() -> Patches:
    """A coordinator has deleted what stands furthest back, and does not write it again."""

    def needed_from(self: Any, high_watermark: int) -> int:
        return max(self._committed.values(), default=high_watermark)

    return [(Places, "needed_from", needed_from)]
