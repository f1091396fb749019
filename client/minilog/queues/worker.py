"""The decisions of one worker of a queue, without I/O. Events and the time go in, and `poll` returns effects.

    lease        asked for while the program polls, and fewer than half of the last lease's records are left to hand out
    read         one range of each partition at a time. Offsets without a record are accepted by the worker itself
    ready        messages that wait for the program. It gets them while their lock lasts
    settled      the verdicts of the program, on their way (settling.py)
    renewed      all leases, when a third of a lock is over, as long as the program polls within max.poll.interval.ms.
                 Not one of which the program has all, and gives no verdict on the rest for max.lock.renewals
    lost         the lock ended, or the coordinator says that the lease holds nothing: its messages go to others
    dead         records for the dead-letter topic, which the worker carries there itself (dead_letters.py)

`take`, `next_message` and `note` are for the threads of the program. They only write what is theirs: the time of the
last poll, the left end of `ready`, a message's verdict. All else is for the loop of the worker.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from minilog.consumer.requests import name_of
from minilog.errors import (
    InvalidConfig,
    InvalidRecordState,
    LevelNotReached,
    MinilogError,
    UnknownOutcome,
    UnknownTopicId,
)
from minilog.limits import MAX_REASON_CHARACTERS, MAX_SETTLEMENTS
from minilog.queues.dead_letters import CarryDeadLetters, DeadLetters
from minilog.queues.leases import DeadLetterTopic, HeldRange, Lease
from minilog.queues.message import Message, Verdict
from minilog.queues.settling import Enlisted, Settling, Span, TransactionEnded, too_late
from minilog.types import TopicPartition
from minilog.v1 import queue_pb2

LEASE_WAIT_MS = 500  # for records, at the coordinator. Twice as long after each answer without any
LONGEST_LEASE_WAIT_MS = 32_000  # a coordinator that hangs, and does not break the connection, is noticed after it
_LEASE_PAUSE_MS = 20.0  # between empty answers: a coordinator that does not wait is not asked in a busy loop
_AGAIN_MS = 200.0  # after a call that failed. The call itself has tried for seconds
_UNREADABLE_DELAY_MS = 10_000  # what this worker cannot read is no use to it at once again
_NOT_CARRIED_DELAY_MS = 10_000  # the same of a dead letter that could not be written
_STALLED_MS = 5_000.0  # a partition without a leader does not keep the worker from records of others
_FORGOTTEN_RENEWALS = 9  # at a third of a lock each: three locks
_MAX_ERRORS = 100  # that wait for the program's next poll; more say nothing new
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The queue, the most records of a lease, the time within which the program polls, and how often a lock is renewed
    for messages that the program has (0: without an end)."""

    queue: str
    max_records: int
    max_poll_interval_ms: int
    max_lock_renewals: int = 0


@dataclass(frozen=True, slots=True)
class AskLease:
    """Ask for a lease. Answer with leased or lease_failed."""

    topic_ids: tuple[bytes, ...]
    max_records: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class RenewLeases:
    """Ask for new locks. Answer with renewed or renewal_failed."""

    lease_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SendSettlements:
    """Send these, in this order. Answer with settled or settling_failed."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class BeginReading:
    """Read the rest of this range. Report with have_read."""

    held: HeldRange


@dataclass(frozen=True, slots=True)
class EndReading:
    """Read this partition no more."""

    partition: TopicPartition


WorkerEffect: TypeAlias = AskLease | RenewLeases | SendSettlements | BeginReading | EndReading | CarryDeadLetters


class Worker:
    """The state of one worker."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.topics: dict[str, bytes] = {}
        """The subscribed topics, with their ids."""
        self.ready: deque[Message] = deque()
        self.errors: deque[MinilogError] = deque(maxlen=_MAX_ERRORS)
        """For the program's next call, the first one first."""
        self.reading: dict[TopicPartition, HeldRange] = {}
        self.is_closing = False
        self._settling = Settling(settings.queue)
        self._dead = DeadLetters()
        self._names: dict[bytes, str] = {}  # of topics, also those of earlier subscriptions
        self._leases: dict[int, Lease] = {}
        self._unread: deque[HeldRange] = deque()
        self._stopped: list[TopicPartition] = []  # whose reading is to end
        self._progress_ms: dict[TopicPartition, float] = {}  # the last time at which a partition gave anything
        self._is_asking = self._is_renewing = False
        self._lease_wait_ms = LEASE_WAIT_MS
        self._ask_at_ms = self._renew_at_ms = 0.0  # not before
        self._lease_count = 0  # the offsets of the last lease
        self._polled_ms = -math.inf

    # -- the program's threads

    def polled(self, now_ms: float) -> None:
        """The program polls, or waits in a poll."""
        self._polled_ms = now_ms

    def take(self, most: int, now_ms: float) -> list[Message]:
        """The next messages for the program. An exception, such as that of a signal, puts them back."""
        taken: list[Message] = []
        try:
            while len(taken) < most and (message := self.next_message(now_ms)) is not None:
                taken.append(message)
        except BaseException:
            self.ready.extendleft(reversed(taken))
            raise
        return taken

    def next_message(self, now_ms: float) -> Message | None:
        """The next message whose lock lasts long enough. Messages of lost leases are left out."""
        self._polled_ms = now_ms
        while self.has_message(now_ms):
            message = self.ready.popleft()
            if message.held.lease.may_hand_out(now_ms):
                return message
        return None

    def has_message(self, now_ms: float) -> bool:
        """Whether there is a message to hand out now. Without one the first that is ready waits for a renewal."""
        while self.ready:
            lease = self.ready[0].held.lease
            if lease.is_locked(now_ms):
                return lease.may_hand_out(now_ms)
            self.ready.popleft()
        return False

    def runs_low(self) -> bool:
        """Whether the loop should look for another lease, since the program took messages."""
        return not self._is_asking and 2 * len(self.ready) < self._lease_count

    def note(self, message: Message, verdict: Verdict, delay_ms: int, reason: str, now_ms: float) -> bool:
        """Note a verdict. True if the loop must learn of it. Raises InvalidRecordState."""
        self._decide(message, verdict, now_ms)
        span = Span(
            message.held, message.offset, message.offset, verdict, delay_ms, reason=reason[:MAX_REASON_CHARACTERS]
        )
        return self._settling.note(span)

    def enlist(self, message: Message, now_ms: float) -> bool:
        """Note that a transaction accepts the message. The rest is as in `note`."""
        self._decide(message, Verdict.ACCEPT, now_ms)
        return self._settling.note(Enlisted(message.held, message.offset))

    def transaction_ended(self, message: Message, *, committed: bool) -> bool:
        """Note the end of the transaction. True if the loop must learn of it."""
        return self._settling.note(TransactionEnded(message.held, message.offset, committed))

    def _decide(self, message: Message, verdict: Verdict, now_ms: float) -> None:
        """Give a message its one verdict."""
        held, offset = message.held, message.offset
        where = f"offset {offset} of {name_of(held.partition)} in queue {self._settings.queue!r}"
        if message.verdict is not None:
            raise InvalidRecordState(
                f"{where} was settled already, by {message.verdict.name.lower()}: settle a message once"
            )
        if self.is_closing:
            raise InvalidRecordState(f"{where} was released when its consumer was closed: settle before close")
        if not held.lease.is_locked(now_ms):
            raise InvalidRecordState(
                f"the lock of {where} has ended, and another worker may have it. Locks are renewed while the program "
                f"polls within max.poll.interval.ms{self._renewals()}: poll more often, lease fewer records "
                "(max.poll.records), or lengthen the lock (group.share.record.lock.duration.ms)"
            )
        message.verdict = verdict

    def _renewals(self) -> str:
        most = self._settings.max_lock_renewals
        return f", {most} times at most for what it has (max.lock.renewals)" if most else ""

    # -- the program's wishes

    def subscribe(self, topics: Mapping[str, bytes]) -> None:
        """Lease records of these topics from now on. What is leased stays."""
        self.topics = dict(topics)
        self._lease_wait_ms = LEASE_WAIT_MS
        self._names |= {topic_id: name for name, topic_id in topics.items()}
        self._ask_at_ms = 0.0
        for error in [error for error in self.errors if isinstance(error, UnknownTopicId)]:
            self.errors.remove(error)  # it is about the topics of before

    def hurry(self) -> None:
        """Send the verdicts at once."""
        self._settling.hurry()

    def is_flushed(self) -> bool:
        """Whether each verdict so far has its outcome."""
        return self._settling.is_idle()

    def close(self, now_ms: float) -> None:
        """Take no more leases, and give back what has no verdict."""
        self.is_closing = True
        self._take_noted(now_ms)
        while self.ready:  # a thread of the program may take some meanwhile
            message = self.ready.popleft()
            if message.offset in message.held.open and not message.held.lease.is_lost:
                message.held.open.discard(message.offset)
                self._return(message.held, message.offset, message.offset, 0, now_ms)
        self._dead.clear()
        for lease in self._leases.values():
            self._release(lease, now_ms)
        self.hurry()

    def is_closed(self) -> bool:
        """Whether nothing is under way any more."""
        return self.is_closing and not self._is_asking and not self._dead.is_carrying and self._settling.is_idle()

    # -- events

    def leased(self, response: queue_pb2.LeaseResponse, sent_ms: float, now_ms: float) -> None:
        """The answer to a request that was sent at `sent_ms`, or later."""
        self._is_asking = False
        self._ask_at_ms = now_ms
        if not response.ranges:
            self._ask_at_ms = max(now_ms, sent_ms + _LEASE_PAUSE_MS)
            self._lease_wait_ms = min(2 * self._lease_wait_ms, LONGEST_LEASE_WAIT_MS)
            return
        self._lease_wait_ms = LEASE_WAIT_MS
        lease = Lease(response.lease_id)
        if response.dead_letter_topic:
            lease.dead_letter_topic = DeadLetterTopic(response.dead_letter_topic, response.copies_dead_records)
        lease.locked(sent_ms, response.lock_duration_ms)
        if response.must_be_renewed_first:
            lease.must_be_renewed, lease.renew_at_ms = True, now_ms
        if not lease.is_locked(now_ms):
            _log.debug("queue %r: lease %d came after its lock", self._settings.queue, lease.lease_id)
            return
        for leased in response.ranges:
            name = self._names.get(leased.partition_id.topic_id)
            if name is not None:  # the request named each topic
                lease.ranges.append(HeldRange.of(lease, leased, name))
        self._leases[lease.lease_id] = lease
        self._lease_count = lease.unsettled()
        if self.is_closing:
            self._release(lease, now_ms)
        else:
            self._unread.extend(lease.ranges)

    def lease_stopped(self, now_ms: float) -> None:
        """The request for a lease was given up. If the coordinator has just granted it, its records come again after
        their lock."""
        self._is_asking = False
        self._ask_at_ms = now_ms

    def lease_failed(self, ask: AskLease, error: MinilogError, now_ms: float) -> None:
        """There is no answer, and may be a lease: its records come again after the lock. Or there is a refusal."""
        self._is_asking = False
        self._ask_at_ms = now_ms + _AGAIN_MS
        if not set(ask.topic_ids) <= set(self.topics.values()):
            return  # the program has other topics by now
        if isinstance(error, UnknownTopicId):
            self.fail(
                UnknownTopicId(
                    f"a topic of queue {self._settings.queue!r} ({', '.join(sorted(self.topics))}) was deleted, or "
                    f"made anew: subscribe anew to go on with a topic of this name. The coordinator's answer: {error}"
                )
            )
            return
        if (error.retriable and not isinstance(error, LevelNotReached)) or isinstance(error, UnknownOutcome):
            _log.debug("queue %r gave no lease, and is asked again: %s", self._settings.queue, error)
        else:
            self.fail(error)

    def fail(self, error: MinilogError) -> None:
        """An error for the program's next call, unless one like it waits already."""
        if all(str(other) != str(error) for other in self.errors):
            self.errors.append(error)

    def have_read(self, partition: TopicPartition, read_to: int, messages: Sequence[Message], now_ms: float) -> None:
        """All records below `read_to` of the range under way are here."""
        held = self.reading[partition]
        read_to = min(read_to, held.last_offset + 1)
        expected = held.read_to
        for message in messages:
            self._skip(held, expected, message.offset, now_ms)
            expected = message.offset + 1
            held.open.add(message.offset)
        self._skip(held, expected, read_to, now_ms)
        held.read_to = read_to
        self._progress_ms[partition] = now_ms
        if held.death_reason is None:
            self.ready.extend(messages)
        else:
            self._dead.add(messages)
        if not held.unread:
            self._stop_reading(partition)

    def _skip(self, held: HeldRange, begin: int, end: int, now_ms: float) -> None:
        """Accept offsets that hold no record: compaction or retention took it, it was aborted, or is a marker."""
        if begin < end:
            self._settling.add(Span(held, begin, end - 1, Verdict.ACCEPT, tells=False), now_ms)

    def reading_failed(self, partition: TopicPartition, error: MinilogError | None, now_ms: float) -> None:
        """The rest of the range under way cannot be read here. Give it back. The program learns of `error`."""
        held = self.reading[partition]
        self._stop_reading(partition)
        self._return(held, held.read_to, held.last_offset, _UNREADABLE_DELAY_MS, now_ms)
        held.read_to = held.last_offset + 1
        if error is not None:
            self.fail(error)

    def carried(self, messages: Sequence[Message], now_ms: float) -> None:
        """The transaction that carries these has ended, or never began. Give back what it did not accept."""
        self._dead.is_carrying = False
        for message in messages:
            held = message.held
            if message.offset in held.open and message.verdict is None and not held.lease.is_lost:
                held.open.discard(message.offset)
                self._give_back(held, message.offset, message.offset, _NOT_CARRIED_DELAY_MS, now_ms)

    def renewed(self, asked: Iterable[int], response: queue_pb2.RenewLeasesResponse, sent_ms: float) -> None:
        """The locks of these leases begin anew, but for those that hold nothing."""
        self._is_renewing = False
        ended = set(response.ended_lease_ids)
        for lease_id in asked:
            lease = self._leases.get(lease_id)
            if lease is not None and lease_id in ended:
                self._lose(lease, "the coordinator says that its lock has ended")
            elif lease is not None:
                lease.locked(sent_ms, response.lock_duration_ms)
                lease.lock_count += not lease.must_be_renewed
                lease.must_be_renewed = False
                self._look_for_forgotten(lease)

    def _look_for_forgotten(self, lease: Lease) -> None:
        """The program has had messages for three locks: it works long, or has forgotten them. If it has all of a lease
        for max.lock.renewals, the lock is not renewed any more."""
        waiting = {(message.held.key, message.offset) for message in list(self.ready)}
        all_open = [(held, offset) for held in lease.ranges for offset in sorted(held.open)]
        without_verdict = [
            (held, offset)
            for held, offset in all_open
            if held.death_reason is None and (held.key, offset) not in waiting
        ]
        has_all = bool(all_open) and len(without_verdict) == len(all_open)
        has_all = has_all and not any(held.unread for held in lease.ranges)
        lease.forgotten_count = lease.forgotten_count + 1 if has_all else 0
        if lease.lock_count == _FORGOTTEN_RENEWALS:
            for held, offset in without_verdict:
                _log.warning(
                    "queue %r: offset %d of %s has no verdict after three locks. Its lock is renewed while the "
                    "program polls, and nobody else gets it: accept, release or reject it",
                    self._settings.queue,
                    offset,
                    name_of(held.partition),
                )
        if 0 < lease.forgotten_count == self._settings.max_lock_renewals:
            lease.renew_at_ms = math.inf
            for held, offset in without_verdict:
                _log.warning(
                    "queue %r: offset %d of %s has no verdict after %d renewals (max.lock.renewals). Its lock ends "
                    "now, and it is delivered again: this delivery counts",
                    self._settings.queue,
                    offset,
                    name_of(held.partition),
                    lease.forgotten_count,
                )

    def renewal_failed(self, error: MinilogError, now_ms: float) -> None:
        """The locks are as they were, for all that the worker knows."""
        self._is_renewing = False
        self._renew_at_ms = now_ms + _AGAIN_MS
        if error.retriable or isinstance(error, UnknownOutcome):
            _log.debug("queue %r did not renew the locks yet: %s", self._settings.queue, error)
        else:
            self.fail(error)

    def settled(self, refused: Mapping[int, MinilogError], now_ms: float, *, is_repeat: bool) -> None:
        """The answer to the settlements under way, with errors by their place."""
        self.errors.extend(self._settling.answered(refused, now_ms, is_repeat=is_repeat))

    def settling_failed(self, error: MinilogError, now_ms: float) -> None:
        """The settlements under way got no certain answer, or a refusal as a whole."""
        self.errors.extend(self._settling.failed(error, now_ms))

    # -- decisions

    def poll(self, now_ms: float) -> list[WorkerEffect]:
        """The effects to carry out now."""
        self._take_noted(now_ms)
        for lease in list(self._leases.values()):
            if not lease.is_locked(now_ms):
                self._lose(lease, "its lock has ended")
            elif not lease.unsettled():
                del self._leases[lease.lease_id]
        effects: list[WorkerEffect] = [*self._readings(now_ms)]
        if spans := self._settling.next_spans(now_ms):
            effects.append(SendSettlements(tuple(spans)))
        if (carrying := self._dead.next_carrying(now_ms)) is not None:
            effects += self._checked(carrying, now_ms)
        if now_ms >= self._next_renewal_ms(now_ms):
            self._is_renewing = True
            renewable = [lease for lease in self._leases.values() if lease.renew_at_ms < math.inf]
            held = sorted(renewable, key=lambda lease: lease.renew_at_ms)
            effects.append(RenewLeases(tuple(lease.lease_id for lease in held[:MAX_SETTLEMENTS])))
        if now_ms >= self._next_lease_ms(now_ms):
            self._is_asking = True
            topic_ids = tuple(sorted(self.topics.values()))
            effects.append(AskLease(topic_ids, self._settings.max_records, self._lease_wait_ms))
        return effects

    def _checked(self, carrying: CarryDeadLetters, now_ms: float) -> list[WorkerEffect]:
        """A letter in a topic of the queue would be a message again, and die again, without an end."""
        if carrying.topic.name not in self.topics:
            return [carrying]
        self.fail(
            InvalidConfig(
                f"queue {self._settings.queue!r} has its own topic {carrying.topic.name!r} as its dead-letter topic, "
                "and each letter would be a message again: set errors.deadletterqueue.topic.name to another topic "
                "(`minilog queue alter`). Dead records wait in the queue"
            )
        )
        self.carried(carrying.messages, now_ms)
        return []

    def next_wake_ms(self, now_ms: float) -> float:
        """The time of the next call of `poll`, if no event comes before."""
        ends = min((lease.lock_end_ms for lease in self._leases.values()), default=math.inf)
        return min(ends, self._settling.next_ms(), self._next_renewal_ms(now_ms), self._next_lease_ms(now_ms))

    def _is_alive(self, now_ms: float) -> bool:
        """Whether the program polls."""
        return now_ms < self._polled_ms + self._settings.max_poll_interval_ms

    def _next_renewal_ms(self, now_ms: float) -> float:
        if self._is_renewing or self.is_closing or not self._leases or not self._is_alive(now_ms):
            return math.inf
        return max(self._renew_at_ms, min(lease.renew_at_ms for lease in self._leases.values()))

    def _next_lease_ms(self, now_ms: float) -> float:
        if self._is_asking or self.is_closing or not self.topics or not self._is_alive(now_ms):
            return math.inf
        every = (*self._unread, *self.reading.values())
        stalled = {partition for partition, at_ms in self._progress_ms.items() if now_ms >= at_ms + _STALLED_MS}
        left = len(self.ready) + sum(held.unread for held in every if held.partition not in stalled)
        return self._ask_at_ms if left == 0 or 2 * left < self._lease_count else math.inf

    def _readings(self, now_ms: float) -> list[WorkerEffect]:
        """End the reading of ranges, and begin with the next range of each free partition."""
        effects: list[WorkerEffect] = [EndReading(partition) for partition in self._stopped]
        self._stopped = []
        waiting, self._unread = self._unread, deque()
        for held in waiting:
            if held.lease.is_lost:
                continue
            if held.partition in self.reading:
                self._unread.append(held)
            else:
                self.reading[held.partition] = held
                self._progress_ms[held.partition] = now_ms
                effects.append(BeginReading(held))
        return effects

    def _stop_reading(self, partition: TopicPartition) -> None:
        del self.reading[partition]
        del self._progress_ms[partition]
        self._stopped.append(partition)

    def _take_noted(self, now_ms: float) -> None:
        for noted in self._settling.take_noted():
            match noted:
                case Enlisted(held, offset):
                    held.open.discard(offset)
                case TransactionEnded(held, _, committed=True):
                    held.unsettled -= 1
                case TransactionEnded(held, offset):
                    if not held.lease.is_lost:
                        delay_ms = 0 if held.death_reason is None else _NOT_CARRIED_DELAY_MS
                        self._give_back(held, offset, offset, delay_ms, now_ms)
                case Span() as span:
                    self._take_verdict(span, now_ms)

    def _take_verdict(self, span: Span, now_ms: float) -> None:
        if span.held.lease.is_lost or span.first_offset not in span.held.open:
            self.errors.append(too_late(self._settings.queue, span))
            return
        span.held.open.discard(span.first_offset)
        self._settling.add(span, now_ms)

    def _release(self, lease: Lease, now_ms: float) -> None:
        """Give back all of a lease that has no verdict, so that others need not wait for its lock. What the program got
        counts as a delivery."""
        for held in lease.ranges:
            for offset in sorted(held.open):
                self._give_back(held, offset, offset, 0, now_ms)
            held.open.clear()
            if self.reading.get(held.partition) is held:
                self._stop_reading(held.partition)
            self._return(held, held.read_to, held.last_offset, 0, now_ms)
            held.read_to = held.last_offset + 1
        self._unread = deque(held for held in self._unread if held.lease is not lease)

    def _give_back(self, held: HeldRange, first: int, last: int, delay_ms: int, now_ms: float) -> None:
        if first <= last:
            self._settling.add(Span(held, first, last, Verdict.RELEASE, delay_ms, tells=False), now_ms)

    def _return(self, held: HeldRange, first: int, last: int, delay_ms: int, now_ms: float) -> None:
        """Give back what the program was not handed."""
        if first <= last:
            self._settling.add(Span(held, first, last, Verdict.RETURN, delay_ms, tells=False), now_ms)

    def _lose(self, lease: Lease, why: str) -> None:
        """Others may have the records of this lease."""
        lease.is_lost = True
        del self._leases[lease.lease_id]
        for held in lease.ranges:
            if self.reading.get(held.partition) is held:
                self._stop_reading(held.partition)
        if lease.unsettled():
            _log.info("queue %r: a lease of %d offsets is lost: %s", self._settings.queue, lease.unsettled(), why)
        self.errors.extend(self._settling.forget(lease))
