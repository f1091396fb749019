"""What a leader takes in: produce entries of one leader epoch, from validation to their one answer.

    acks   is answered when
    0      never
    1      the leader's durable end covers the batch
    all    the high watermark covers it; refused before anything is written while the ISR is below min

A batch is judged by the producer state plus the tentative queue, the batches accepted and not yet in the log. A
duplicate is answered with the first one's offsets under the same condition. What was appended and is not confirmed is
answered as unknown: by time-out, by an ISR that fell below min, by the end of the epoch (V16).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from minilog.errors import (
    MinilogError,
    NoSpace,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownOutcome,
)
from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader, Buffer
from minilog.record_batch.validation import validate_batch
from minilog_broker.replication.effects import AnswerProduce
from minilog_broker.replication.host import Host, TimerKind
from minilog_broker.replication.parked import ParkedProduce, ParkedProduces
from minilog_broker.replication.placing import append_at_end
from minilog_broker.replication.replica_log import QueuedAppend, ReplicaLog
from minilog_broker.replication.state import PartitionState
from minilog_broker.storage.producer_state import Accept, Duplicate, ProducerState

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
MAX_UNANSWERED = 5  # batches of one producer on their way into the log; the state remembers as many


@dataclass(frozen=True, slots=True)
class ProduceEntry:
    """One batch that a client sent, and what it waits for."""

    ticket: object
    acks: int
    deadline_ms: float
    batch: Buffer


class Accepting:
    """See the module's text. `name` is for messages."""

    def __init__(self, host: Host, name: str, state: PartitionState, log: ReplicaLog, producers: ProducerState) -> None:
        self.producers = producers
        self._host = host
        self._name = name
        self._key = state.key
        self._leader_epoch = state.leader_epoch
        self._log = log
        self._tentative: dict[int, deque[BatchHeader]] = {}
        self._parked_all = ParkedProduces()
        self._parked_leader = ParkedProduces()
        self._no_space_until_ms = float("-inf")

    # -- taking in

    def accept(self, entry: ProduceEntry, max_message_bytes: int, too_few: str | None, now_ms: float) -> None:
        """Append and park, or raise why not. `too_few`: what is wrong with the ISR, if anything."""
        self.require_space(now_ms)
        topic_id, partition = self._key
        header = validate_batch(topic_id, partition, entry.batch, max_message_bytes=max_message_bytes)
        tentative = self._tentative.get(header.producer_id, ())
        if entry.acks != ACKS_ALL:
            too_few = None
        match self.producers.check(header, tentative):
            case Duplicate(base_offset=base_offset, last_offset=last_offset):
                if too_few is not None and self._log.high_watermark <= last_offset:
                    raise NotEnoughReplicasAfterAppend(f"{too_few}: the batch is in the log, its fate is open")
                self._park(entry, base_offset, last_offset + 1)
            case Accept():
                if too_few is not None:
                    raise NotEnoughReplicas(f"{too_few}: nothing was written")
                if len(tentative) >= MAX_UNANSWERED:
                    raise OutOfOrderSequenceNumber(f"{self._name}: more than {MAX_UNANSWERED} batches on their way")
                placed = self._append(header, entry.batch)
                self._park(entry, placed.base_offset, placed.next_offset)
            case error:
                raise error

    def require_space(self, now_ms: float) -> None:
        """Raises NoSpace for a while after the disk was full."""
        if now_ms < self._no_space_until_ms:
            raise self._no_space()

    def _append(self, header: BatchHeader, batch: Buffer) -> BatchHeader:
        placed = append_at_end(self._host, self._key, self._log, self._leader_epoch, header, batch)
        if placed.producer_id != NO_PRODUCER_ID:
            self._tentative.setdefault(placed.producer_id, deque()).append(placed)
        return placed

    def _park(self, entry: ProduceEntry, base_offset: int, end_offset: int) -> None:
        if entry.acks == ACKS_NONE:
            return
        at_leader = entry.acks == ACKS_LEADER
        parked = ParkedProduce(entry.ticket, base_offset, end_offset, entry.deadline_ms)
        if end_offset <= (self._log.durable_end if at_leader else self._log.high_watermark):
            self._acknowledge([parked])
            return
        (self._parked_leader if at_leader else self._parked_all).add(parked)
        self._host.timers.arm(TimerKind.PRODUCE, self._key, parked.deadline_ms)

    # -- answers

    def refuse(self, ticket: object, error: MinilogError) -> None:
        """Answer at once: nothing was written, or the error says what is not known."""
        self._answer(ticket, error, -1)

    def _answer(self, ticket: object, error: MinilogError | None, base_offset: int) -> None:
        host = self._host
        host.emit(AnswerProduce(ticket, error, base_offset, self._log.log_start, host.broker_id, self._leader_epoch))

    def _acknowledge(self, reached: list[ParkedProduce]) -> None:
        for parked in reached:
            self._answer(parked.ticket, None, parked.base_offset)

    def became_durable(self) -> None:
        """The durable end moved."""
        self._acknowledge(self._parked_leader.take_reached(self._log.durable_end))

    def became_committed(self) -> None:
        """The high watermark moved."""
        self._acknowledge(self._parked_all.take_reached(self._log.high_watermark))

    def expire(self, now_ms: float) -> None:
        """Answer the entries whose time is over."""
        for parked in (*self._parked_all.take_expired(now_ms), *self._parked_leader.take_expired(now_ms)):
            text = f"{self._name}: offset {parked.base_offset} was not confirmed in time; whether it stays is not known"
            self._answer(parked.ticket, RequestTimedOut(text), -1)
        due_ms = min(self._parked_all.next_deadline_ms(), self._parked_leader.next_deadline_ms())
        if due_ms != float("inf"):
            self._host.timers.arm(TimerKind.PRODUCE, self._key, due_ms)

    def give_up(self, too_few: str) -> None:
        """The ISR fell below min: what waits for it is unknown."""
        for parked in self._parked_all.take_above(self._log.high_watermark):
            error = NotEnoughReplicasAfterAppend(f"{too_few} since the append: whether it stays is not known")
            self._answer(parked.ticket, error, -1)

    def resign(self, why: str) -> None:
        """The epoch is over here: whatever waits is unknown."""
        for parked in (*self._parked_all.take_above(-1), *self._parked_leader.take_above(-1)):
            error = UnknownOutcome(f"{self._name}: {why}; whether the batch stays is not known")
            self._answer(parked.ticket, error, -1)

    # -- the disk

    def appended(self, done: list[QueuedAppend]) -> None:
        """These are in the log, and in the producer state."""
        for append in done:
            for header in append.headers:
                if tentative := self._tentative.get(header.producer_id):
                    tentative.popleft()
                    if not tentative:
                        del self._tentative[header.producer_id]

    def no_space(self, now_ms: float) -> None:
        """The disk is full: of what was queued nothing was written, and for a while nothing more is taken."""
        self._tentative.clear()
        self._no_space_until_ms = now_ms + self._host.settings.no_space_pause_ms
        end = self._log.end
        for parked in (*self._parked_all.take_above(end), *self._parked_leader.take_above(end)):
            self._answer(parked.ticket, self._no_space(), -1)

    def _no_space(self) -> NoSpace:
        return NoSpace(f"{self._name}: the disk of broker {self._host.broker_id} is full: nothing was written")
