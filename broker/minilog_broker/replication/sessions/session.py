"""A session on a leader: positions and credit come up, runs and news go down. For followers and for consumers.

    subscription  meaning
    WAITING       its position is not checked yet: this broker does not lead, or does not know the leader epoch or the
                  log's end yet
    SENDING       its position passed the checks in the source's epoch
    STOPPED       the session has sent an error or a divergence, and waits for a new position

Credit is an absolute count of bytes since the session was opened. While any is left, one batch of any size may go.
Ready partitions take turns, and a message carries all that is ready, up to about 4 MiB and 500 partitions. News (high
watermark, log start, divergence, errors) needs no credit, and goes at most every 5 ms. A moved high watermark does not
wake the session of a follower without readers: it goes along with the next message. Nothing polls. Appends and a moved
high watermark make a subscription ready. The first news for a waiting session wakes it, once.

The shell's readers of files read the runs of a partition (ReadRun). While a message is made up:

    READY ── next_read ──► asked ── run_read ──► in the message; READY again where there is more
                             └── run_not_in_memory ──► COLD ── its turn: `read` ──► run_read ──► in the next message

When a position is given up, stopped or checked again, the session drops the runs that are read for it. It also drops a
run if the log was cut since the question, or if the log start has passed the run's offset. So a run that is sent
belongs to the log as it is then, however long the reading took.
"""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from minilog.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    MinilogError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnsupportedVersion,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.record_batch.gaps import from_offset
from minilog.record_batch.header import Buffer, decode_header
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2, peer_pb2
from minilog_broker.replication.replica_effects import ReadRun
from minilog_broker.replication.rules.divergence import Diverged
from minilog_broker.replication.rules.own_delay import excused
from minilog_broker.replication.sessions.selected import Scanners, Selected
from minilog_broker.replication.sessions.source import Audience, PositionAnswer, Refuse, SendRuns, SessionSource, Wait
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.storage.compaction_point import NOT_COMPACTED

_LENGTH = struct.Struct("<I")
_LENGTH_AT = 4
_NO_LIMIT = 1 << 62
_Response = TypeVar("_Response", data_pb2.FetchResponse, peer_pb2.ReplicateResponse)
RunWithBatches: TypeAlias = tuple[data_pb2.PartitionRun, Buffer]
"""A run and its payload."""
MAX_RUNS = 500  # of one message: making it and taking it each hold a loop for some ten milliseconds


class SubscriptionState(enum.Enum):
    """The states of a partition in a session. WAYS has the transitions."""

    WAITING = enum.auto()
    SENDING = enum.auto()
    STOPPED = enum.auto()


WAYS = {
    (SubscriptionState.WAITING, SubscriptionState.SENDING): "the position passed the checks",
    (SubscriptionState.WAITING, SubscriptionState.STOPPED): "the position was refused, or diverges",
    (SubscriptionState.SENDING, SubscriptionState.WAITING): "another position or source: it is checked again",
    (SubscriptionState.SENDING, SubscriptionState.STOPPED): "an error, a lost source",
    (SubscriptionState.STOPPED, SubscriptionState.WAITING): "another position or source: it is checked again",
}
"""All transitions, each with its cause."""


@dataclass(slots=True, eq=False)
class SessionPartition:
    """One partition of a session."""

    session: ServedSession
    key: PartitionKey
    source: SessionSource | None
    position: data_pb2.FetchPosition
    asked_ms: float  # when the position came
    state: SubscriptionState = SubscriptionState.WAITING
    next_offset: int = 0
    sent_bytes: int = 0  # since the position was accepted
    previous_epoch: int | None = None
    error: MinilogError | None = None
    diverged: Diverged | None = None
    producers_below: bytes = b""  # goes with the first run behind the position
    selected: Selected | None = None  # the part of batches that the position asks for
    has_readers: bool = True  # True for a consumer, and for a follower until it reports that no consumer reads there
    reading: ReadRun | None = None  # the read under way that is still of use. Never set while ready or cold

    @property
    def end_offset(self) -> int | None:
        return self.position.end_offset if self.position.HasField("end_offset") else None

    def left(self) -> int:
        """The number of bytes that may still go."""
        limited = self.position.HasField("limit_bytes")
        return self.position.limit_bytes - self.sent_bytes if limited else _NO_LIMIT

    def bound(self) -> int:
        """The end of the records that may be sent now, exclusive."""
        assert self.source is not None
        if self.left() <= 0:
            return self.next_offset
        readable = self.source.readable_end(self.session.audience)
        return readable if self.end_offset is None else min(readable, self.end_offset)


@dataclass(slots=True, eq=False)
class ServedSession:
    """A leader's session with one follower or consumer.

    It calls `wake(session_id)` when a waiting session has something to send, `hold(session_id, due_ms)` when it must
    look again at that time, and `read(question)` for a run that has to be waited for.
    """

    session_id: int
    audience: Audience
    settings: ReplicationSettings
    wake: Callable[[int], None]
    hold: Callable[[int, float], None]
    read: Callable[[ReadRun], None]
    opened_ms: float
    keepalive_ms: float
    scanners: Scanners = field(default_factory=Scanners)
    broker_id: int = -1
    broker_epoch: int = -1
    subscriptions: dict[PartitionKey, SessionPartition] = field(default_factory=dict)
    credit_bytes: int = 0
    sent_bytes: int = 0
    last_heard_ms: float = 0.0
    last_sent_ms: float = 0.0
    is_costly: bool = False  # by the last message; if True, the next message is made when it has its turn
    _runs: list[RunWithBatches] = field(default_factory=list)  # of the next message
    _left: int = 0  # the bytes that may still go with the next message
    _work_left: int = 0  # of this message, for cutting batches of typed topics
    _last_news_ms: float = float("-inf")
    _awake: bool = False
    _ready: dict[PartitionKey, SessionPartition] = field(default_factory=dict)
    _news: dict[PartitionKey, SessionPartition] = field(default_factory=dict)
    _riders: dict[PartitionKey, SessionPartition] = field(default_factory=dict)  # news that does not wake the session
    _cold: dict[PartitionKey, SessionPartition] = field(default_factory=dict)  # their runs are not in memory
    _waited_for: ReadRun | None = None  # a reader that may wait reads it ...
    _came: tuple[ReadRun, Buffer] | None = None  # ... or has read it, and it is in no message yet
    _reserved_bytes: int = 0  # of the credit, for the run that is waited for

    def __post_init__(self) -> None:
        self._work_left = self.settings.scanning_work
        self._begin_message()
        self.last_heard_ms = self.last_sent_ms = self.opened_ms
        self.hold(self.session_id, self.opened_ms + self.keepalive_ms)

    # -- from the reader

    def grant(self, credit_bytes: int, now_ms: float) -> None:
        """Take the other side's count of credit, which never goes back."""
        self.last_heard_ms = now_ms
        if credit_bytes > self.credit_bytes:
            self.credit_bytes = credit_bytes
            if self._came is not None or (self._ready and self._has_credit()):
                self._wake()
            self._ask_readers()

    def take_position(
        self, key: PartitionKey, source: SessionSource | None, position: data_pb2.FetchPosition, now_ms: float
    ) -> SessionPartition:
        """Take a position, which replaces the partition's earlier one."""
        subscription = self.subscriptions.get(key)
        if subscription is None:
            subscription = self.subscriptions[key] = SessionPartition(self, key, source, position, now_ms)
        subscription.source, subscription.position, subscription.asked_ms = source, position, now_ms
        self._judge(subscription, now_ms)
        return subscription

    def forget(self, key: PartitionKey) -> None:
        """Send no more of the partition."""
        self._withdraw(key)
        self.subscriptions.pop(key, None)

    def _withdraw(self, key: PartitionKey) -> None:
        """Drop the news and the turns of a partition, and ignore the read that is under way for it."""
        if (subscription := self.subscriptions.get(key)) is not None:
            subscription.reading = None
        self._cold.pop(key, None)
        self._ready.pop(key, None)
        self._news.pop(key, None)
        self._riders.pop(key, None)

    def is_at(self, key: PartitionKey, leader_epoch: int, position_number: int) -> bool:
        """Whether progress with this epoch and number belongs to the accepted position."""
        subscription = self.subscriptions.get(key)
        if subscription is None or subscription.state is not SubscriptionState.SENDING or subscription.source is None:
            return False
        return (
            subscription.source.leader_epoch == leader_epoch
            and subscription.position.position_number == position_number
        )

    # -- from the source

    def source_changed(self, subscription: SessionPartition, source: SessionSource | None, now_ms: float) -> None:
        """Take another source, of another leader epoch, or none. The verdict on the position is forgotten."""
        subscription.source = source
        position_epoch = subscription.position.leader_epoch
        never_checked = subscription.state is SubscriptionState.WAITING
        was_sending = subscription.state is SubscriptionState.SENDING
        if never_checked or (source is not None and position_epoch == source.leader_epoch):
            self._judge(subscription, now_ms)
            if was_sending and subscription.state is SubscriptionState.WAITING and subscription.error is None:
                error = NotLeaderOrFollower("this replica begins a new role: ask for metadata, and read again")
                self.stop(subscription, error, now_ms)  # else the reader would not know that the sending has ended
        elif source is None:
            error = NotLeaderOrFollower("this broker does not lead the partition any more: ask for metadata")
            self.stop(subscription, error, now_ms)
        elif position_epoch < source.leader_epoch:
            text = (
                f"leader epoch {position_epoch} is over, and the current one is {source.leader_epoch}: ask for metadata"
            )
            self.stop(subscription, FencedLeaderEpoch(text), now_ms)

    def check_positions_again(self, subscription: SessionPartition, now_ms: float) -> None:
        """Check a waiting position again, because the source knows more now."""
        if subscription.state is SubscriptionState.WAITING:
            self._judge(subscription, now_ms)

    def available(self, subscription: SessionPartition, now_ms: float, *, news: bool) -> None:
        """Note that the source has more records, or (`news`) another high watermark or log start."""
        if subscription.state is not SubscriptionState.SENDING:
            return
        is_asked = subscription.reading is not None or subscription.key in self._cold
        if not is_asked and subscription.next_offset < subscription.bound():
            self._ready[subscription.key] = subscription
            if not self._awake and self._has_credit():
                self._wake()
        if news:
            self._add_news(subscription, now_ms)

    def compacted(self, subscription: SessionPartition, clean_to: int, producers_below: bytes) -> None:
        """Note that records below `clean_to` go. A follower that has not reached it misses some of their producers."""
        is_sending = subscription.state is SubscriptionState.SENDING
        if self.audience is Audience.FOLLOWER and is_sending and subscription.next_offset < clean_to:
            subscription.producers_below = producers_below

    def readers_told(self, subscription: SessionPartition, now_ms: float, *, has_readers: bool) -> None:
        """Note whether consumers read from a follower. For the first reader the waiting high watermark goes at once."""
        came, subscription.has_readers = has_readers and not subscription.has_readers, has_readers
        if came:
            self.available(subscription, now_ms, news=True)

    def high_watermark_moved(self, subscription: SessionPartition, now_ms: float) -> None:
        """Note that the source's high watermark moved: consumers may get more, and followers learn of it."""
        self.available(subscription, now_ms, news=subscription.has_readers)
        if not subscription.has_readers and subscription.state is SubscriptionState.SENDING:
            self._riders[subscription.key] = subscription

    def stop(self, subscription: SessionPartition, error: MinilogError, now_ms: float) -> None:
        """Send an error, and nothing more before a new position."""
        subscription.state, subscription.error, subscription.diverged = SubscriptionState.STOPPED, error, None
        self._withdraw(subscription.key)
        self._add_news(subscription, now_ms)

    def asked_ms(self, key: PartitionKey) -> float:
        """When the position of a partition came."""
        return self.subscriptions[key].asked_ms

    def _judge(self, subscription: SessionPartition, now_ms: float) -> None:
        # Old news must not answer this position: without an error the reader would take it as accepted.
        self._withdraw(subscription.key)
        position, source = subscription.position, subscription.source
        subscription.state, subscription.error, subscription.diverged = SubscriptionState.WAITING, None, None
        subscription.producers_below = b""
        checked: PositionAnswer = Wait(NotLeaderOrFollower("this broker does not lead the partition: ask for metadata"))
        if source is not None:
            checked = source.check_position(position, self, now_ms)
        if source is not None and isinstance(checked, SendRuns):
            checked = self._select(subscription, source) or checked
        match checked:
            case SendRuns(producers_below=producers_below) if source is not None:
                subscription.state, subscription.producers_below = SubscriptionState.SENDING, producers_below
                subscription.next_offset, subscription.sent_bytes = position.fetch_offset, 0
                has_epoch = position.HasField("last_fetched_epoch")
                follower = self.audience is Audience.FOLLOWER
                # A consumer's first batch may begin below its position, so `_send` looks up the epoch before it.
                epoch = position.last_fetched_epoch if has_epoch else source.epoch_before(position.fetch_offset)
                subscription.previous_epoch = epoch if follower else None
                self.available(subscription, now_ms, news=True)
            case Diverged():
                subscription.state, subscription.diverged = SubscriptionState.STOPPED, checked
                self._add_news(subscription, now_ms)
            case Refuse(error=error):
                self.stop(subscription, error, now_ms)
            case Wait(error=error) if error is not None:
                subscription.error = error
                self._add_news(subscription, now_ms)

    def _select(self, subscription: SessionPartition, source: SessionSource) -> Refuse | None:
        """Set the position's selection. Returns the refusal if the topic does not allow it."""
        subscription.selected, position = None, subscription.position
        try:
            if position.HasField("selection") or (position.headers_only and source.schemas is None):
                subscription.selected = Selected(position, source.schemas, self.scanners)
        except MinilogError as error:
            return Refuse(error)
        return None

    # -- to the reader

    def _has_credit(self) -> bool:
        return self._free_bytes() > 0

    def _free_bytes(self) -> int:
        """The credit that is not reserved for the run that is waited for."""
        reserved_bytes = self._reserved_bytes if self._waited_for is not None else 0
        return self.credit_bytes - self.sent_bytes - reserved_bytes

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self.wake(self.session_id)

    def _add_news(self, subscription: SessionPartition, now_ms: float) -> None:
        self._news[subscription.key] = subscription
        if self._awake:
            return
        due_ms = self._last_news_ms + self.settings.news_interval_ms
        if due_ms <= now_ms:
            self._wake()
        else:
            self.hold(self.session_id, due_ms)

    def excuse(self, delay_ms: float, now_ms: float) -> None:
        """Excuse the other side's silence for `delay_ms`, for which this process stood still."""
        self.last_heard_ms = excused(self.last_heard_ms, delay_ms, now_ms)

    def look(self, now_ms: float) -> None:
        """A timer's event: wake the session if news or a sign of life is due."""
        sign_ms = self.last_sent_ms + self.keepalive_ms
        news_ms = self._last_news_ms + self.settings.news_interval_ms if self._news else sign_ms
        due_ms = min(sign_ms, news_ms)
        if due_ms <= now_ms:
            self._wake()
            due_ms = now_ms + self.keepalive_ms
        self.hold(self.session_id, due_ms)

    def next_runs(self, now_ms: float) -> list[RunWithBatches] | None:
        """The runs of the next message. Call next_read first, until it gives None. An empty list is a sign of life.
        None: there is no message now, and the session wakes when there is one."""
        runs = self._begin_message()
        if self._news and now_ms >= self._last_news_ms + self.settings.news_interval_ms:
            self._take_news(self._news, runs)
            if not self._news:  # else the rest goes with the next message, at once
                self._last_news_ms = now_ms
        sign_is_due = now_ms >= self.last_sent_ms + self.keepalive_ms
        if self._riders and (runs or sign_is_due):
            self._take_news(self._riders, runs)
        if not runs and not sign_is_due:
            self._awake = False
            if self._news:
                self.hold(self.session_id, self._last_news_ms + self.settings.news_interval_ms)
            return None
        self.last_sent_ms = now_ms
        return runs

    def _begin_message(self) -> list[RunWithBatches]:
        """The runs that were read for this message. While it is sent, a reader may read the next cold partition."""
        runs, self._runs = self._runs, []
        self.is_costly = self.settings.scanning_work - self._work_left > self.settings.short_scanning_work
        self._left, self._work_left = self.settings.message_bytes, self.settings.scanning_work
        self._ask_readers()
        return runs

    def _take_news(self, news: dict[PartitionKey, SessionPartition], runs: list[RunWithBatches]) -> None:
        for key in list(itertools.islice(news, MAX_RUNS - len(runs))):
            runs.append((self._run(news.pop(key)), b""))
            self._riders.pop(key, None)

    # -- reads

    def next_read(self, now_ms: float) -> ReadRun | None:
        """The next read for the coming message, which the caller makes at once. run_read, run_not_in_memory or
        read_failed is its answer. None: the message is complete."""
        if (came := self._came) is not None and self.sent_bytes < self.credit_bytes:
            self._came = self._waited_for = None
            self._take(*came, now_ms)
        has_room = self._left > 0 and self._work_left > 0 and len(self._runs) < MAX_RUNS
        if not self._ready or not has_room or not self._has_credit():
            return None
        subscription = self._ready.pop(next(iter(self._ready)))
        return self._ask(subscription, min(self._left, self._free_bytes()), self._work_left)

    def run_read(self, question: ReadRun, batches: Buffer, now_ms: float) -> None:
        """Take a run that was read. It is empty if the log does not hold the records any more."""
        if question is not self._waited_for:
            self._take(question, batches, now_ms)
        elif self.waits_for(question):
            self._came = (question, batches)
            self._wake()
        else:
            self._waited_for = None
            self._ask_readers()

    def run_not_in_memory(self, question: ReadRun) -> None:
        """Note that the run is not in memory. A reader that may wait reads it when the partition has its turn."""
        if self.waits_for(question):
            subscription = self.subscriptions[question.key]
            subscription.reading = None
            self._cold[question.key] = subscription
            self._ask_readers()

    def read_failed(self, question: ReadRun, error: Exception, now_ms: float) -> None:
        """Take a failed read. If the log was cut or the records deleted meanwhile, that is no fault: ask again."""
        is_wanted = self.waits_for(question)
        if question is self._waited_for:
            self._waited_for = None
            self._ask_readers()
        if not is_wanted:
            return
        subscription = self.subscriptions[question.key]
        subscription.reading, source = None, subscription.source
        assert source is not None
        if _is_of_now(question, source):
            source.read_failed(error)
        else:
            self.available(subscription, now_ms, news=False)

    def waits_for(self, question: ReadRun) -> bool:
        """Whether the session still needs this read: it has neither dropped the position nor answered it since."""
        subscription = self.subscriptions.get(question.key)
        return subscription is not None and subscription.reading is question

    def _ask(self, subscription: SessionPartition, max_bytes: int, work: int) -> ReadRun:
        source = subscription.source
        assert source is not None
        offset, max_bytes = subscription.next_offset, min(max_bytes, subscription.left())
        if self.audience is Audience.FOLLOWER:  # a follower begins with the whole batch that the log start has cut
            offset = max(offset, source.ends().log_start_offset)
        if (selected := subscription.selected) is not None:
            max_bytes = selected.stored_bytes(max_bytes, self.settings.message_bytes, work)
        question = subscription.reading = ReadRun(
            self.session_id,
            subscription.key,
            subscription.position.position_number,
            source.cuts,
            offset,
            max_bytes,
            subscription.bound(),
            source.readable_end(self.audience),
        )
        return question

    def _ask_readers(self) -> None:
        """Ask for the next cold run, one at a time. So sessions take turns, and so do the partitions of a session. The
        run gets half of the free credit, so that runs from memory go on meanwhile."""
        while self._cold and self._waited_for is None and self.sent_bytes < self.credit_bytes:
            subscription = self._cold.pop(next(iter(self._cold)))
            if subscription.next_offset < subscription.bound():
                free_bytes = max(1, (self.credit_bytes - self.sent_bytes) // 2)
                self._reserved_bytes = min(self.settings.message_bytes, free_bytes)
                self._waited_for = self._ask(subscription, self._reserved_bytes, self.settings.scanning_work)
                self.read(self._waited_for)

    def _offer(self, subscription: SessionPartition) -> None:
        """Give the partition another turn, after the others, if it has more to send."""
        if subscription.next_offset < subscription.bound():
            self._ready[subscription.key] = subscription

    def _take(self, question: ReadRun, batches: Buffer, now_ms: float) -> None:
        """Put a run into the next message, unless the session does not need it any more."""
        if not self.waits_for(question):
            return
        subscription = self.subscriptions[question.key]
        subscription.reading, source = None, subscription.source
        assert source is not None
        if batches and not _is_of_now(question, source):
            self._offer(subscription)
        elif batches:
            self._send(subscription, source, batches, now_ms)
        elif subscription.next_offset < (log_start := source.ends().log_start_offset):
            self.stop(subscription, below_log_start(subscription.next_offset, log_start), now_ms)

    def _send(self, subscription: SessionPartition, source: SessionSource, batches: Buffer, now_ms: float) -> None:
        """Put the part of a run that the position asks for into the next message."""
        try:
            sent, stored = batches, memoryview(batches)
            if (selected := subscription.selected) is not None:
                cut = selected.cut(subscription.key, batches, source.schemas, self._work_left)
                sent, stored = cut.batches, stored[: cut.end]
                self._work_left -= cut.work
            first, end_offset, last_epoch = _bounds(stored)
            if self.audience is Audience.FOLLOWER and first < subscription.next_offset:
                sent = from_offset(*subscription.key, batches, subscription.next_offset)
                first = decode_header(sent).base_offset
        except (CorruptMessage, UnsupportedVersion) as error:
            source.read_failed(error)
            return
        if self.audience is Audience.FOLLOWER and first > subscription.next_offset:
            self.stop(subscription, below_log_start(subscription.next_offset, first), now_ms)
            return
        if subscription.previous_epoch is None:
            subscription.previous_epoch = source.epoch_before(first)
        run = self._run(subscription)
        run.first_offset = first
        if subscription.previous_epoch is not None:
            run.previous_epoch = subscription.previous_epoch
        if self.audience is Audience.COMMITTED_CONSUMER:
            run.aborted_producer_ids.extend(source.aborted_within(first, end_offset))
        subscription.next_offset, subscription.previous_epoch = end_offset, last_epoch
        self._runs.append((run, sent))
        self._count(subscription, len(sent))
        self._offer(subscription)

    def _count(self, subscription: SessionPartition, size_bytes: int) -> None:
        """Count the bytes that go with the next message. The partition's news goes along."""
        self._left -= size_bytes
        self.sent_bytes += size_bytes
        subscription.sent_bytes += size_bytes
        self._news.pop(subscription.key, None)
        self._riders.pop(subscription.key, None)

    def _run(self, subscription: SessionPartition) -> data_pb2.PartitionRun:
        key, source = subscription.key, subscription.source
        run = data_pb2.PartitionRun(
            partition_id=key.to_wire(),
            leader_epoch=-1 if source is None else source.leader_epoch,
            position_number=subscription.position.position_number,
        )
        if source is not None:
            ends = source.ends()
            run.high_watermark, run.last_stable_offset = ends.high_watermark, ends.last_stable_offset
            run.log_start_offset, run.log_end_offset = ends.log_start_offset, ends.log_end_offset
            if self.audience is Audience.FOLLOWER and ends.compaction != NOT_COMPACTED:
                run.compaction.clean_to = ends.compaction.clean_to
                run.compaction.deletes_before = ends.compaction.deletes_before
                run.compaction.done_clean_to = ends.done_clean_to
        if subscription.producers_below:
            run.producers_below, subscription.producers_below = subscription.producers_below, b""
        if subscription.error is not None:
            run.error.CopyFrom(wire_error(subscription.error))
        if (diverged := subscription.diverged) is not None:
            run.diverging_epoch.epoch, run.diverging_epoch.end_offset = diverged.epoch, diverged.end_offset
        return run


def message_of(kind: type[_Response], runs: Sequence[RunWithBatches]) -> StreamMessage[_Response]:
    """The message that carries these runs."""
    return StreamMessage(kind(runs=[run for run, _ in runs]), [batches for _, batches in runs])


def below_log_start(offset: int, log_start_offset: int) -> OffsetOutOfRange:
    """The error for a position that retention has passed."""
    return OffsetOutOfRange(f"offset {offset} is below the log start {log_start_offset}: start there or at the end")


def _is_of_now(question: ReadRun, source: SessionSource) -> bool:
    """Whether the log still holds all records that it held at the time of the question."""
    return question.cuts == source.cuts and question.offset >= source.ends().log_start_offset


def _bounds(batches: memoryview) -> tuple[int, int, int]:
    """(base offset of the first batch, offset behind the last, leader epoch of the last), from two headers alone."""
    first = decode_header(batches)
    position, length = 0, first.length
    while position + length < len(batches):
        position += length
        (length,) = _LENGTH.unpack_from(batches, position + _LENGTH_AT)
        if length <= 0:
            break
    last = first if position == 0 else decode_header(batches, position)
    return first.base_offset, last.next_offset, last.partition_leader_epoch
