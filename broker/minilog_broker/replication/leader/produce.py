"""Produce entries of one leader epoch, from validation to their one answer.

    acks   the leader answers when
    0      it refuses the entry, else never. From the refusal the producer learns that its metadata is old
    1      its durable end covers the batch
    all    the high watermark covers the batch. It refuses the entry and writes nothing while the ISR is below min

The leader checks a batch against the producer state and the tentative queue: the accepted batches that are not in the
log yet. A duplicate gets the offsets of the first batch, under the same condition. A batch that was appended and is not
confirmed gets the answer "outcome unknown" at its time-out, when the ISR falls below min, or at the end of the epoch
(V16).

A transactional batch counts as acks=all, whatever the client asks for. If the leader does not know its producer, the
batch waits until the coordinator has registered the producer (pending_registrations.py). A marker ends its producer,
even if batches of the producer are on their way (transaction_markers.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from minilog.errors import (
    InvalidArgument,
    InvalidTxnState,
    MinilogError,
    NoSpace,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownOutcome,
)
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import (
    NO_PRODUCER_ID,
    PLACEMENT_BYTES,
    BatchHeader,
    Buffer,
    check_attributes_of_level,
    decode_header,
    placement,
)
from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.leader.pending import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    PendingProduce,
    PendingProduces,
    ProduceEntry,
)
from minilog_broker.replication.leader.pending_registrations import PendingRegistrations
from minilog_broker.replication.leader.transaction_markers import MarkersRequest, TransactionMarkers
from minilog_broker.replication.leader.typed_validation import validate_topic_batch
from minilog_broker.replication.partition_state import PartitionState, TopicConfig
from minilog_broker.replication.replica_effects import AnswerProduce, AppendToLog, PlacedBatches
from minilog_broker.replication.replica_log import QueuedAppend, ReplicaLog
from minilog_broker.storage.find_ends import FoundEnd
from minilog_broker.storage.markers import Marker
from minilog_broker.storage.producer_state import Accept, Duplicate, ProducerState, fenced, last_sequence

MAX_UNANSWERED = 5  # batches of one producer on their way into the log: the producer state remembers as many


class ProduceHandler:
    """The produce entries of one led partition, from validation to answer. `name` is for error sentences."""

    def __init__(self, context: ReplicationContext, name: str, state: PartitionState, log: ReplicaLog) -> None:
        self._context = context
        self._name = name
        self._key = state.key
        self._leader_epoch = state.leader_epoch
        self._log = log
        self._tentative: dict[int, deque[BatchHeader]] = {}
        self._pending_all = PendingProduces()
        self._pending_leader = PendingProduces()
        self._registrations = PendingRegistrations(context, name, state.key)
        self._markers = TransactionMarkers(context, name, state.key, log, self._append_control)
        self._no_space_until_ms = float("-inf")
        # For each producer with an open transaction that has written here.
        self._transactional_ids: dict[int, str] = {}

    @property
    def producers(self) -> ProducerState:
        """The producer state of the log."""
        return self._log.producers

    # -- new entries

    def accept(self, entry: ProduceEntry, config: TopicConfig, too_few: str | None, now_ms: float) -> None:
        """Append the batch and hold the answer, or let the batch wait for its coordinator. Raises if it is refused.

        `config` is that of the topic. `too_few` is the text of the error if the ISR has too few members, else None."""
        self.require_space(now_ms)
        header = entry.validated or validated(self._key, entry.batch, config, entry.now_us)
        if isinstance(header, MinilogError):
            raise header
        check_attributes_of_level(header, self._context.level.current)
        if header.is_transactional or entry.transaction is not None:
            entry = self._transactional(header, entry)
            if self._is_to_be_registered(header):
                # A copy, so that the other batches of its message do not stay in memory while this one waits.
                self._registrations.wait(header.producer_id, replace(entry, batch=bytes(entry.batch)))
                return
            self._require_own(header.producer_id, entry)
        self._accept(header, entry, too_few)

    def _transactional(self, header: BatchHeader, entry: ProduceEntry) -> ProduceEntry:
        if entry.transaction is None or not entry.transaction.transactional_id or not header.is_transactional:
            raise InvalidArgument(
                f"{self._name}: a batch and its entry must both belong to a transaction, or neither: the batch has "
                f"attributes {header.attributes:#x}, and the entry has "
                f"{'no' if entry.transaction is None else 'a'} transaction"
            )
        return replace(entry, acks=ACKS_ALL)

    def _require_own(self, producer_id: int, entry: ProduceEntry) -> None:
        """Raises InvalidTxnState if the producer belongs to another transaction.

        From level 4 on an earlier check of the id's proof has shown that. Below level 4 an id is a small number without
        a proof. There, after a change of leader, the leader takes the transactional id of the first batch for the true
        one until the transaction ends."""
        assert entry.transaction is not None
        name = entry.transaction.transactional_id
        if self._transactional_ids.setdefault(producer_id, name) != name:
            raise InvalidTxnState(
                f"{self._name}: producer {producer_id} writes in the transaction of another id, not of '{name}'"
            )

    def _is_to_be_registered(self, header: BatchHeader) -> bool:
        """Whether the batch waits for its coordinator. Raises if the leader refuses the producer in any case."""
        producer_id = header.producer_id
        if self._markers.is_ending(producer_id):
            raise fenced(producer_id)
        if producer_id in self._registrations:
            return True
        if producer_id in self._tentative or self.producers.transactions.is_open(producer_id):
            return False
        verdict = self.producers.check(header)
        if isinstance(verdict, MinilogError):
            raise verdict
        return True

    def _accept(self, header: BatchHeader, entry: ProduceEntry, too_few: str | None) -> None:
        if self._markers.is_ending(header.producer_id):
            raise fenced(header.producer_id)
        tentative = self._tentative.get(header.producer_id, ())
        if entry.acks != ACKS_ALL:
            too_few = None
        match self.producers.check(header, tentative):
            case Duplicate(base_offset=base_offset, last_offset=last_offset):
                if too_few is not None and self._log.high_watermark <= last_offset:
                    raise NotEnoughReplicasAfterAppend(f"{too_few}: the batch is in the log, but may still be lost")
                self._hold(entry, base_offset, last_offset + 1)
            case Accept():
                if too_few is not None:
                    raise NotEnoughReplicas(f"{too_few}: nothing was written")
                if len(tentative) >= MAX_UNANSWERED:
                    raise OutOfOrderSequenceNumber(
                        f"{self._name}: more than {MAX_UNANSWERED} batches of producer {header.producer_id} are on "
                        f"their way into the log"
                    )
                placed = self._append(header, entry.batch)
                self._hold(entry, placed.base_offset, placed.next_offset)
            case error:
                raise error

    def require_space(self, now_ms: float) -> None:
        """Raises NoSpace for a while after the disk was full."""
        if now_ms < self._no_space_until_ms:
            raise self._no_space()

    def _place(self, header: BatchHeader, batch: Buffer, markers: tuple[Marker, ...] = ()) -> BatchHeader:
        return append_at_end(self._context, self._key, self._log, self._leader_epoch, header, batch, markers)

    def _append_control(self, batch: bytes, markers: tuple[Marker, ...]) -> int:
        return self._place(decode_header(batch), batch, markers).next_offset

    def _append(self, header: BatchHeader, batch: Buffer) -> BatchHeader:
        placed = self._place(header, batch)
        if placed.producer_id != NO_PRODUCER_ID:
            self._tentative.setdefault(placed.producer_id, deque()).append(placed)
        return placed

    def _hold(self, entry: ProduceEntry, base_offset: int, end_offset: int) -> None:
        if entry.acks == ACKS_NONE:
            return
        at_leader = entry.acks == ACKS_LEADER
        pending = PendingProduce(entry.ticket, base_offset, end_offset, entry.deadline_ms)
        if end_offset <= (self._log.durable_end if at_leader else self._log.high_watermark):
            self._acknowledge([pending])
            return
        (self._pending_leader if at_leader else self._pending_all).add(pending)
        self._context.timers.arm(TimerKind.PRODUCE, self._key, pending.deadline_ms)

    # -- transactions

    def is_asked(self, number: int) -> bool:
        """Whether a batch waits for this answer of a coordinator."""
        return self._registrations.is_asked(number)

    def registered(self, number: int, error: MinilogError | None, too_few: str | None, now_ms: float) -> None:
        """Take a coordinator's answer: append or refuse the batches that waited for it, in their order."""
        for entry in self._registrations.take_answered(number):
            try:
                if error is not None:
                    raise error
                if now_ms < self._no_space_until_ms:
                    raise self._no_space()
                header = decode_header(entry.batch)
                self._require_own(header.producer_id, entry)
                self._accept(header, entry, too_few)
            except MinilogError as refusal:
                self.refuse(entry.ticket, refusal)

    def write_markers(self, request: MarkersRequest, too_few: str | None, now_ms: float, *, may_lose: bool) -> None:
        """Append the missing markers. AnswerMarkers is the answer. A producer with a marker writes no more."""
        try:
            if now_ms < self._no_space_until_ms:
                raise self._no_space()
            ended = self._markers.write(request, self._last_sequence, too_few, now_ms, may_lose=may_lose)
        except MinilogError as error:
            self._markers.answer(request.ticket, error)
            return
        for producer_id in ended:
            self._transactional_ids.pop(producer_id, None)
            for entry in self._registrations.take(producer_id):
                self.refuse(entry.ticket, fenced(producer_id))

    def ends_found(self, number: int, ends: dict[int, FoundEnd]) -> None:
        """Take the result of FindEnds."""
        self._markers.forgotten.take_ends(number, ends)

    def _last_sequence(self, producer_id: int) -> int:
        """The last sequence of a transaction's producer, in the log or on its way there. -1 if there is none."""
        if tentative := self._tentative.get(producer_id):
            return last_sequence(tentative[-1])
        entry = self.producers.entry(producer_id)
        return -1 if entry is None else entry.batches[-1].last_sequence

    # -- answers

    def refuse(self, ticket: object, error: MinilogError) -> None:
        """Answer with an error at once. Nothing was written, unless the error names an unknown outcome."""
        self._answer(ticket, error, -1)

    def _answer(self, ticket: object, error: MinilogError | None, base_offset: int) -> None:
        context = self._context
        context.emit(
            AnswerProduce(ticket, error, base_offset, self._log.log_start, context.broker_id, self._leader_epoch)
        )

    def _acknowledge(self, reached: list[PendingProduce]) -> None:
        for pending in reached:
            self._answer(pending.ticket, None, pending.base_offset)

    def became_durable(self) -> None:
        """Answer the entries that wait for the durable end, because it moved."""
        self._acknowledge(self._pending_leader.take_reached(self._log.durable_end))

    def became_committed(self) -> None:
        """Answer the entries that wait for the high watermark, because it moved."""
        self._acknowledge(self._pending_all.take_reached(self._log.high_watermark))
        self._markers.became_committed()

    def expire(self, now_ms: float) -> None:
        """Answer the entries whose time is over."""
        for pending in (*self._pending_all.take_expired(now_ms), *self._pending_leader.take_expired(now_ms)):
            text = (
                f"{self._name}: the replicas did not confirm offset {pending.base_offset} in time: nobody knows yet "
                f"whether the batch stays in the log"
            )
            self._answer(pending.ticket, RequestTimedOut(text), -1)
        for entry in self._registrations.take_expired(now_ms):
            text = f"{self._name}: the transaction's coordinator did not answer in time: the batch was not written"
            self._answer(entry.ticket, RequestTimedOut(text), -1)
        self._markers.expire(now_ms)
        waiting = (self._pending_all, self._pending_leader, self._registrations, self._markers)
        due_ms = min(entries.next_deadline_ms() for entries in waiting)
        if due_ms != float("inf"):
            self._context.timers.arm(TimerKind.PRODUCE, self._key, due_ms)

    def give_up(self, too_few: str) -> None:
        """Answer the waiting entries as unknown, because the ISR fell below min."""
        for pending in self._pending_all.take_above(self._log.high_watermark):
            error = NotEnoughReplicasAfterAppend(
                f"{too_few} since the append: nobody knows yet whether the batch stays in the log"
            )
            self._answer(pending.ticket, error, -1)
        self._markers.give_up(too_few)

    def resign(self, why: str) -> None:
        """Answer the waiting entries as unknown, because the epoch is over here."""
        for pending in (*self._pending_all.take_above(-1), *self._pending_leader.take_above(-1)):
            error = UnknownOutcome(f"{self._name}: {why}: nobody knows yet whether the batch stays in the log")
            self._answer(pending.ticket, error, -1)
        for entry in self._registrations.take_all():
            self._answer(entry.ticket, UnknownOutcome(f"{self._name}: {why}: the batch was not written"), -1)
        self._markers.resign(why)

    # -- the disk

    def appended(self, done: list[QueuedAppend]) -> None:
        """Note that these appends are in the log, and in the producer state."""
        for append in done:
            for header in append.headers:
                if tentative := self._tentative.get(header.producer_id):
                    tentative.popleft()
                    if not tentative:
                        del self._tentative[header.producer_id]
        self._markers.appended()

    def no_space(self, now_ms: float) -> None:
        """Answer the queued entries, of which the full disk wrote none, and take no more for a while."""
        self._tentative.clear()
        self._no_space_until_ms = now_ms + self._context.settings.no_space_pause_ms
        end = self._log.end
        for pending in (*self._pending_all.take_above(end), *self._pending_leader.take_above(end)):
            self._answer(pending.ticket, self._no_space(), -1)
        self._markers.no_space(self._no_space())

    def _no_space(self) -> NoSpace:
        return NoSpace(f"{self._name}: the disk of broker {self._context.broker_id} is full: nothing was written")


def validated(key: PartitionKey, batch: Buffer, config: TopicConfig, now_us: int | None) -> BatchHeader:
    """Validate a batch that a client sent for a topic of this configuration, at this time. Returns its header. Raises
    the errors of `validate_topic_batch`."""
    bounds = config.timestamp_bounds(now_us)
    return validate_topic_batch(
        *key,
        batch,
        max_message_bytes=config.max_message_bytes,
        schemas=config.schemas,
        bounds=bounds,
        is_compacted=config.is_compacted,
    )


def append_at_end(
    context: ReplicationContext,
    key: PartitionKey,
    log: ReplicaLog,
    leader_epoch: int,
    header: BatchHeader,
    batch: Buffer,
    markers: tuple[Marker, ...] = (),
) -> BatchHeader:
    """Give the batch its place, which is the log's next offset and the leader epoch, and queue it for the disk.

    Returns the header of the batch in the log. `markers` are those of the batch."""
    offset = log.end
    placed = replace(header, base_offset=offset, partition_leader_epoch=leader_epoch)
    buffers = (placement(batch, offset, leader_epoch), memoryview(batch)[PLACEMENT_BYTES:])
    log.queue_append(QueuedAppend((placed,), header.length, None, {offset: markers} if markers else {}))
    context.emit(AppendToLog(key, PlacedBatches((placed,), buffers)))
    return placed
