"""Deleting records up to an offset (Kafka's DeleteRecords, KIP-107): the log start moves up to it, on every replica.

    a request               is answered
    above the HW            OFFSET_OUT_OF_RANGE, with both numbers
    above the LSO           INVALID_TXN_STATE: a transaction is open below it (Kafka cuts it in two)
    else                    when the start is durable here and on all that could be elected: the lowest of their starts
    not in time             REQUEST_TIMED_OUT: unknown; asking again is harmless
    another leader          NOT_LEADER_OR_FOLLOWER: to be asked of that one

All that could be elected are the maximal ISR and the eligible leaders; one that was not heard in this epoch and life
holds the answer. Who joins the ISR has our start before it is proposed (isr_state.py). So no election brings back
what was answered. Followers adopt the leader's start as soon as their own LSO reaches it: from runs and news, and
whatever moved it, retention too.
"""

from __future__ import annotations

from dataclasses import dataclass

from minilog.errors import (
    InvalidArgument,
    InvalidTxnState,
    MinilogError,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
)
from minilog.partition_key import PartitionKey
from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.leader.pending import PendingProduce, PendingProduces
from minilog_broker.replication.replica_effects import AdvanceLogStart, AnswerDeleteRecords
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.rules.in_sync import known_log_start

MAX_PARKED = 1_000  # of one partition: nobody deletes that often; more is a program in a spin


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    """Records below `offset` are to go."""

    ticket: object
    offset: int
    deadline_ms: float


class PendingDeleteRecords:
    """The DeleteRecords requests of one led partition that wait for the replicas. One per leader epoch."""

    def __init__(self, context: ReplicationContext, name: str, key: PartitionKey, log: ReplicaLog) -> None:
        self._context = context
        self._name = name
        self._key = key
        self._log = log
        self._pending = PendingProduces()

    def ask(self, request: DeleteRecordsRequest, in_sync: IsrState, *, knows_its_end: bool) -> None:
        """Raises why not, or answers later."""
        self._check(request.offset, knows_its_end=knows_its_end)
        self._pending.add(PendingProduce(request.ticket, -1, request.offset, request.deadline_ms))
        self._context.timers.arm(TimerKind.DELETE_RECORDS, self._key, request.deadline_ms)
        advance_log_start(self._context, self._key, self._log, request.offset)
        self.look(in_sync)

    def _check(self, offset: int, *, knows_its_end: bool) -> None:
        log = self._log
        if offset < 0:
            raise InvalidArgument(f"{self._name}: {offset} is no offset to delete up to")
        if offset > log.high_watermark and not knows_its_end:
            raise OffsetNotAvailable(f"{self._name}: the new leader does not know its end yet: retry")
        if offset > log.high_watermark:
            raise OffsetOutOfRange(
                f"{self._name}: offset {offset} is above the high watermark {log.high_watermark}: nothing was deleted"
            )
        if offset > log.last_stable_offset:
            raise InvalidTxnState(
                f"{self._name}: offset {offset} is above the last stable offset {log.last_stable_offset}, where a "
                "transaction that has not ended begins: nothing was deleted; see `minilog transaction list`"
            )
        if len(self._pending) >= MAX_PARKED:
            raise OffsetNotAvailable(f"{self._name}: {MAX_PARKED} calls that delete records wait already: retry")

    def look(self, in_sync: IsrState) -> None:
        """The start of a replica moved, or who could be elected changed."""
        if not self._pending:
            return
        low_watermark = self._low_watermark(in_sync)
        for pending in self._pending.take_reached(low_watermark):
            self._answer(pending.ticket, None, low_watermark)

    def _low_watermark(self, in_sync: IsrState) -> int:
        incarnations, views = self._context.incarnations, in_sync.views
        electable = (in_sync.maximal | frozenset(in_sync.state.eligible_leaders)) - {self._context.broker_id}
        starts = [known_log_start(views[each], incarnations.get(each)) if each in views else -1 for each in electable]
        return min([self._log.log_start, *starts])

    def _answer(self, ticket: object, error: MinilogError | None, low_watermark: int = -1) -> None:
        self._context.emit(AnswerDeleteRecords(ticket, error, low_watermark))

    def expire(self, now_ms: float) -> None:
        """Timer: what went on its way stays there."""
        for pending in self._pending.take_expired(now_ms):
            text = f"{self._name}: not every replica has deleted what is below offset {pending.end_offset} in time"
            self._answer(pending.ticket, RequestTimedOut(f"{text}; they may still do it: asking again is harmless"))
        due_ms = self._pending.next_deadline_ms()
        if due_ms != float("inf"):
            self._context.timers.arm(TimerKind.DELETE_RECORDS, self._key, due_ms)

    def give_up(self, error: MinilogError) -> None:
        """Here it will not come to an end."""
        for pending in self._pending.take_above(-1):
            self._answer(pending.ticket, error)

    def resign(self, why: str) -> None:
        """The epoch is over here: the next leader is to be asked."""
        self.give_up(NotLeaderOrFollower(f"{self._name}: {why}: ask for metadata, and again"))


def advance_log_start(context: ReplicationContext, key: PartitionKey, log: ReplicaLog, offset: int) -> None:
    """Have the disk move the log start, where it was not asked before and the last stable offset allows it."""
    if log.ask_log_start(offset):
        context.emit(AdvanceLogStart(key, offset, log.appended_end, log.producers.snapshot()))
