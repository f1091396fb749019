"""Deleting records up to an offset (Kafka's DeleteRecords, KIP-107): the log start moves up to it, on every replica.

    a request               is answered
    above the HW            OFFSET_OUT_OF_RANGE, with both numbers
    above the LSO           INVALID_TXN_STATE: a transaction is open below the offset (Kafka cuts it in two)
    else                    with the lowest log start of the electable replicas, when that has reached the offset
    not in time             REQUEST_TIMED_OUT: the outcome is unknown, and a repeated request is harmless
    under another leader    NOT_LEADER_OR_FOLLOWER: the client asks the new leader

The electable replicas are the maximal ISR and the eligible leaders. Their log starts count when they are durable. A
replica that has not reported in this epoch and life holds the answer back. A joiner has our log start before the leader
proposes it (isr_state.py). So no election brings records back after the answer. Followers learn the leader's log start
from runs and news, and adopt it as soon as their own LSO reaches it. They also adopt a start that retention moved.
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

MAX_PARKED = 1_000  # of one partition: only a program in an endless loop asks more often


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    """The request to delete the records below `offset`."""

    ticket: object
    offset: int
    deadline_ms: float


class PendingDeleteRecords:
    """The DeleteRecords requests of one led partition that wait for the replicas. Each leader epoch has its own."""

    def __init__(self, context: ReplicationContext, name: str, key: PartitionKey, log: ReplicaLog) -> None:
        self._context = context
        self._name = name
        self._key = key
        self._log = log
        self._pending = PendingProduces()

    def ask(self, request: DeleteRecordsRequest, in_sync: IsrState, *, knows_its_end: bool) -> None:
        """Ask the disk to move the log start, and answer later. Raises if the request is refused."""
        self._check(request.offset, knows_its_end=knows_its_end)
        self._pending.add(PendingProduce(request.ticket, -1, request.offset, request.deadline_ms))
        self._context.timers.arm(TimerKind.DELETE_RECORDS, self._key, request.deadline_ms)
        advance_log_start(self._context, self._key, self._log, request.offset)
        self.look(in_sync)

    def _check(self, offset: int, *, knows_its_end: bool) -> None:
        log = self._log
        if offset < 0:
            raise InvalidArgument(f"{self._name}: an offset to delete up to is at least 0, and {offset} is not")
        if offset > log.high_watermark and not knows_its_end:
            raise OffsetNotAvailable(f"{self._name}: the new leader does not know its end yet: retry")
        if offset > log.high_watermark:
            raise OffsetOutOfRange(
                f"{self._name}: offset {offset} is above the high watermark {log.high_watermark}: nothing was deleted"
            )
        if offset > log.last_stable_offset:
            raise InvalidTxnState(
                f"{self._name}: offset {offset} is above the last stable offset {log.last_stable_offset}, where an "
                "open transaction begins: nothing was deleted. `minilog transaction list` shows the transaction"
            )
        if len(self._pending) >= MAX_PARKED:
            raise OffsetNotAvailable(f"{self._name}: {MAX_PARKED} calls that delete records already wait: retry")

    def look(self, in_sync: IsrState) -> None:
        """Answer the requests that are complete now. A replica's log start has moved, or the set of electable replicas
        has changed."""
        if not self._pending:
            return
        low_watermark = self._low_watermark(in_sync)
        for pending in self._pending.take_reached(low_watermark):
            self._answer(pending.ticket, None, low_watermark)

    def _low_watermark(self, in_sync: IsrState) -> int:
        incarnations, views = self._context.incarnations, in_sync.views
        electable = (in_sync.maximal | frozenset(in_sync.state.eligible_leaders)) - {self._context.broker_id}
        starts = [
            known_log_start(views[broker_id], incarnations.get(broker_id)) if broker_id in views else -1
            for broker_id in electable
        ]
        return min([self._log.log_start, *starts])

    def _answer(self, ticket: object, error: MinilogError | None, low_watermark: int = -1) -> None:
        self._context.emit(AnswerDeleteRecords(ticket, error, low_watermark))

    def expire(self, now_ms: float) -> None:
        """A timer's event: answer the requests whose time is over. The deletion itself goes on."""
        for pending in self._pending.take_expired(now_ms):
            text = f"{self._name}: not every replica has deleted the records below offset {pending.end_offset} in time"
            self._answer(pending.ticket, RequestTimedOut(f"{text}, but may still do it: a repeated call is harmless"))
        due_ms = self._pending.next_deadline_ms()
        if due_ms != float("inf"):
            self._context.timers.arm(TimerKind.DELETE_RECORDS, self._key, due_ms)

    def give_up(self, error: MinilogError) -> None:
        """Answer all requests with this error, because this leader cannot complete them."""
        for pending in self._pending.take_above(-1):
            self._answer(pending.ticket, error)

    def resign(self, why: str) -> None:
        """Answer all requests, because the epoch is over here. The client asks the next leader."""
        self.give_up(NotLeaderOrFollower(f"{self._name}: {why}: ask for metadata, and send the call to the new leader"))


def advance_log_start(context: ReplicationContext, key: PartitionKey, log: ReplicaLog, offset: int) -> None:
    """Ask the disk to move the log start, if it was not asked before and the last stable offset allows it."""
    if log.ask_log_start(offset):
        context.emit(AdvanceLogStart(key, offset, log.appended_end, log.producers.snapshot()))
