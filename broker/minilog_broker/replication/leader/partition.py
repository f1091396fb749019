"""A replica that leads, in one leader epoch.

    state      entered when                                      left by
    SETTLING   the metadata names us leader                      the disk has answered all earlier commands -> LEADING
    LEADING    the disk was given the start of the epoch         another leader epoch, or the disk fails -> (dropped)

an event                     what follows
produce                      the batch is checked against state and queue, gets its place, and is appended. The entry
                             waits for its condition
appended                     the sessions of followers wake
flushed, progress, commit    the high watermark may move, and with it the waiting entries, readers and joiners
time-out, resignation        the waiting entries are answered: outcome unknown (V16)
"""

from __future__ import annotations

from collections.abc import Callable

from minilog.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    LeaderNotAvailable,
    MinilogError,
    NoSpace,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2, metadata_pb2, peer_pb2
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.leader.batch_bases import BatchBases
from minilog_broker.replication.leader.delete_records import DeleteRecordsRequest, PendingDeleteRecords
from minilog_broker.replication.leader.expiring_deletions import ExpiringDeletions
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.leader.list_offsets import list_offsets
from minilog_broker.replication.leader.pending import ProduceEntry
from minilog_broker.replication.leader.produce import ProduceHandler
from minilog_broker.replication.leader.transaction_markers import MarkersRequest
from minilog_broker.replication.partition_state import PartitionState, TopicConfig
from minilog_broker.replication.replica_effects import ProposalAnswer, RecordEpochStart
from minilog_broker.replication.replica_log import LogOffsets, QueuedAppend, ReplicaLog
from minilog_broker.replication.rules.check_position import at_log_start, check_position, inside_a_batch
from minilog_broker.replication.rules.divergence import LeaderEpochs
from minilog_broker.replication.rules.fencing import check_epoch, check_session, cut_off, is_cut_off
from minilog_broker.replication.rules.in_sync import Progress
from minilog_broker.replication.sessions.session import ServedSession, SessionPartition
from minilog_broker.replication.sessions.source import (
    Asker,
    Audience,
    PositionAnswer,
    Refuse,
    SendRuns,
    Wait,
    readable_end,
)
from minilog_broker.replication.stable_offsets import KnownPartition, StableOffset, stable_offset
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.find_ends import FoundEnd
from minilog_broker.storage.producer_state import ProducerState


class LeaderPartition:
    """A led partition in one leader epoch, with all that depends on its leader.

    It calls `read_failed(error)` when our own copy cannot be read.
    """

    def __init__(
        self,
        context: ReplicationContext,
        state: PartitionState,
        config: TopicConfig,
        log: ReplicaLog,
        subscribers: dict[int, SessionPartition],
        read_failed: Callable[[Exception], None],
        high_watermark_moved: Callable[[LeaderPartition], None],
    ) -> None:
        self.key = state.key
        self.leader_epoch = state.leader_epoch
        self.config = config
        self.log = log
        self.leading = False
        self.epoch_start = -1
        self.in_sync: IsrState
        self.expiring_deletions: ExpiringDeletions
        self._state = state
        self._context = context
        self._subscribers = subscribers
        self.read_failed = read_failed
        self._name = f"partition {state.topic_name}-{state.key.partition}"
        self._produce_handler = ProduceHandler(context, self._name, state, log)
        self._batch_bases = BatchBases(state.key, state.leader_epoch, log, context.emit)
        self.deletes = PendingDeleteRecords(context, self._name, state.key, log)
        self.require_space = self._produce_handler.require_space
        self._high_watermark_moved = high_watermark_moved

    def __str__(self) -> str:
        return self._name

    @property
    def producers(self) -> ProducerState:
        """The state of the producers, and of their transactions."""
        return self.log.producers

    @property
    def state(self) -> PartitionState:
        return self.in_sync.state if self.leading else self._state

    @property
    def min_in_sync(self) -> int:
        """The effective min.insync.replicas."""
        return min(self.config.min_in_sync_replicas, self.state.replication_factor)

    @property
    def knows_its_end(self) -> bool:
        """Whether the high watermark has reached the start of the epoch. Then all records that an earlier leader
        committed are below it."""
        return self.leading and self.log.high_watermark >= self.epoch_start

    def expired_deletions(self, now_ms: float) -> int:
        """The offset below which deletions may go: they have had delete.retention.ms, and each follower that fetches
        has them. Without the second condition a follower that needs longer than that for its first copy would have to
        begin anew again and again."""
        expired = self.expiring_deletions.deletes_before(now_ms, self.config.delete_retention_ms)
        return min([expired, *self.in_sync.fetched_ends()])

    # -- life

    def lead_when_settled(self, now_ms: float) -> None:
        """Begin the epoch as soon as the disk has answered all earlier commands."""
        if self.leading or not self.log.settled:
            return
        self.epoch_start = self.log.end
        self._context.emit(RecordEpochStart(self.key, self.leader_epoch, self.epoch_start))
        self.in_sync = IsrState(self._context, self._state, self.epoch_start, self.log.end, now_ms)
        self.in_sync.log_start = self.log.log_start
        self.leading = True
        self.expiring_deletions = ExpiringDeletions(self.log.log.compaction.done, now_ms)
        self.in_sync.watch_lag(now_ms)
        self._advance(now_ms)
        self.check_subscribers(now_ms)
        self._stable_offset_moved()

    def check_subscribers(self, now_ms: float) -> None:
        """Check the waiting positions again, because the leader knows more by now."""
        for subscription in list(self._subscribers.values()):
            subscription.session.check_positions_again(subscription, now_ms)

    def commit(self, state: PartitionState, config: TopicConfig, now_ms: float) -> None:
        """Take committed metadata of this leader epoch, as of one offset. The same metadata again changes nothing."""
        reconfigured, self.config = config != self.config, config
        if not self.leading:
            if state.partition_epoch > self._state.partition_epoch:
                self._state = state
            return
        if not self.in_sync.commit(state, now_ms) and not reconfigured:
            return
        for subscription in list(self._subscribers.values()):
            session = subscription.session
            if session.audience is Audience.FOLLOWER and session.broker_id not in state.replicas:
                session.stop(subscription, NotLeaderOrFollower(f"broker {session.broker_id} is not a replica"), now_ms)
        if (too_few := self._too_few()) is not None:
            self._produce_handler.give_up(too_few)
        self._advance(now_ms)
        self.check_subscribers(now_ms)
        self.in_sync.propose_joiners(self.log.high_watermark, self.log.appended_end, now_ms)
        self.in_sync.watch_lag(now_ms)

    def resign(self, why: str) -> None:
        """Answer all waiting calls, because this epoch is over here. Their outcome is unknown."""
        self._produce_handler.resign(why)
        self.deletes.resign(why)

    def session_changed(self, now_ms: float) -> None:
        """React to a change of the broker's session with the controller. If the session has ended, answer all waiting
        calls as unknown."""
        if is_cut_off(self._context, self.config, now_ms):
            self.resign(cut_off(self._context))
        elif self.leading:
            self._advance(now_ms)

    def excuse(self, delay_ms: float, now_ms: float) -> None:
        """Excuse all followers for `delay_ms`, for which this process stood still."""
        if self.leading:
            self.in_sync.excuse(delay_ms, self.log.appended_end, now_ms)

    def follower_left(self, broker_id: int, now_ms: float) -> None:
        """Note that a follower's session is closed, or that it follows no more. The high watermark does not wait for it
        to join any more."""
        if self.leading and self.in_sync.left(broker_id):
            self._advance(now_ms)

    def incarnations_changed(self, now_ms: float) -> None:
        """Note that a replica began another life, or may join now, or may not join any more."""
        if self.leading:
            self._advance(now_ms)
            self.in_sync.propose_joiners(self.log.high_watermark, self.log.appended_end, now_ms)

    # -- produce

    def produce(self, entry: ProduceEntry, epoch: int, now_ms: float) -> None:
        """Take one entry. The leader answers a refusal at once, also under acks=0. Other answers wait for their
        condition."""
        try:
            self._check(epoch, now_ms)
            self._produce_handler.accept(entry, self.config, self._too_few(), now_ms)
        except MinilogError as error:
            self._produce_handler.refuse(entry.ticket, error)

    def is_registering(self, number: int) -> bool:
        """Whether a batch waits for the answer to this RegisterPartition."""
        return self._produce_handler.is_asked(number)

    def registered(self, number: int, error: MinilogError | None, now_ms: float) -> None:
        """Take the answer to a RegisterPartition."""
        if error is None and is_cut_off(self._context, self.config, now_ms):
            error = LeaderNotAvailable(f"{self}: {cut_off(self._context)}")
        self._produce_handler.registered(number, error, self._too_few(), now_ms)

    def write_markers(self, request: MarkersRequest, now_ms: float) -> None:
        """Write the markers of a call. AnswerMarkers is the answer (transaction_markers.py). Raises
        LeaderNotAvailable."""
        self._check(-1, now_ms)
        may_lose = self.config.unclean_leader_election or not self.config.flush_on_append
        self._produce_handler.write_markers(request, self._too_few(), now_ms, may_lose=may_lose)

    def batch_found(self, offset: int, base: int, now_ms: float) -> None:
        """Take the result of FindBatch, for which positions wait."""
        self._batch_bases.take_base(offset, base)
        self.check_subscribers(now_ms)

    def ends_found(self, number: int, ends: dict[int, FoundEnd]) -> None:
        """Take the result of FindEnds."""
        self._produce_handler.ends_found(number, ends)

    def delete_records(self, request: DeleteRecordsRequest, epoch: int, now_ms: float) -> None:
        """Delete records. AnswerDeleteRecords is the answer (delete_records.py). Raises if the request is refused."""
        self._check(epoch, now_ms)
        self.deletes.ask(request, self.in_sync, knows_its_end=self.knows_its_end)

    def _check(self, epoch: int, now_ms: float) -> None:
        check_epoch(self._name, epoch, self.leader_epoch)
        if not self.leading:
            raise LeaderNotAvailable(f"{self}: leader epoch {self.leader_epoch} is about to begin: retry")
        check_session(self._name, self._context, self.config, now_ms)

    def _too_few(self) -> str | None:
        """The text of the error for acks=all if the ISR has too few members, else None."""
        members = self.state.in_sync_replicas
        if len(members) >= self.min_in_sync:
            return None
        return f"{self}: the ISR {list(members)} is below min.insync.replicas={self.min_in_sync}"

    def expire(self, now_ms: float) -> None:
        """A timer's event: answer the entries whose time is over."""
        self._produce_handler.expire(now_ms)

    # -- the disk

    def appended(self, done: list[QueuedAppend], end_before: int, now_ms: float) -> None:
        """Note that appends are readable. The producer state has them already."""
        self._produce_handler.appended(done)
        if not self.leading:
            return
        self.in_sync.marks.note(now_ms, end_before)
        self.in_sync.watch_lag(now_ms)
        self._tell_subscribers(now_ms, news=False)

    def flush_policy_changed(self, now_ms: float) -> None:
        """Follow the log's new flush policy. If followers reported progress before they were under fsync, too, that
        progress is not synced there."""
        if self.leading and self.log.flush_on_append:
            self.in_sync.forget_unsynced()
        elif self.leading:
            self.in_sync.count_unsynced(self.log.appended_end, now_ms)
        self.flushed(now_ms)
        if self.leading:
            self.in_sync.propose_joiners(self.log.high_watermark, self.log.appended_end, now_ms)

    def flushed(self, now_ms: float) -> None:
        """Note that the durable end moved."""
        if is_cut_off(self._context, self.config, now_ms):
            return
        self._produce_handler.became_durable()
        if self.leading:
            self._advance(now_ms)

    def no_space(self, now_ms: float) -> None:
        """Answer the queued entries and requests: the disk is full, and wrote none of them."""
        self._produce_handler.no_space(now_ms)
        self.deletes.give_up(NoSpace(f"{self}: the disk of broker {self._context.broker_id} is full"))

    def _advance(self, now_ms: float) -> None:
        """Raise the high watermark by the rule, and answer the calls that wait for it or for deletions."""
        if is_cut_off(self._context, self.config, now_ms):
            return
        log = self.log
        self.deletes.look(self.in_sync)
        knew_its_end = self.knows_its_end
        offset = self.in_sync.high_watermark(
            log.high_watermark,
            own_durable_end=log.durable_end,
            log_end=log.appended_end,
            min_in_sync=self.min_in_sync,
            now_ms=now_ms,
        )
        if not log.raise_high_watermark(offset):
            return
        self._produce_handler.became_committed()
        self.begin_compaction()
        self._high_watermark_moved(self)
        self._stable_offset_moved()
        if not knew_its_end and self.knows_its_end:
            self.check_subscribers(now_ms)
        for subscription in self._subscribers.values():
            subscription.session.high_watermark_moved(subscription, now_ms)

    def _tell_subscribers(self, now_ms: float, *, news: bool) -> None:
        for subscription in self._subscribers.values():
            subscription.session.available(subscription, now_ms, news=news)

    def log_start_moved(self, now_ms: float) -> None:
        """Tell all readers that the log start moved, because records were deleted."""
        if self.leading:
            self.in_sync.log_start = self.log.log_start
            self.deletes.look(self.in_sync)
        self._stable_offset_moved()
        self._tell_subscribers(now_ms, news=True)

    # -- stable offsets

    def stable_offset(self, known: KnownPartition, now_ms: float) -> StableOffset | None:
        """The stable offset, if it is news for the asker (replication/stable_offsets.py). Raises LeaderNotAvailable, or
        NotLeaderOrFollower if the asker knows a later leader."""
        if known.leader_epoch > self.leader_epoch:
            raise NotLeaderOrFollower(
                f"{self}: leader epoch {self.leader_epoch} is over, because leader epoch {known.leader_epoch} has begun"
            )
        self._check(-1, now_ms)
        if not self.knows_its_end:
            return None
        return stable_offset(self.log, self._epochs(), self.leader_epoch, known)

    def _stable_offset_moved(self) -> None:
        if self._context.watched and self.knows_its_end:
            self._context.stable_offset_moved(self.key)

    # -- followers

    def progress(self, session: ServedSession, progress: peer_pb2.ReplicaProgress, now_ms: float) -> None:
        """Take a follower's durable progress behind an accepted position. Progress never counts if it does not fit this
        log. Nor does it count if it is from before the follower was last outside the ISR."""
        if (subscription := self._subscribers.get(session.session_id)) is not None:
            session.readers_told(subscription, now_ms, has_readers=not progress.no_readers)
        if not self.leading or (view := self.in_sync.views.get(session.broker_id)) is None:
            return
        if not view.accepted or view.broker_epoch != session.broker_epoch:
            return
        if progress.partition_epoch < view.counts_from:
            return
        if progress.HasField("corrupt_offset"):
            self._context.copy_checks.ask(self.key, progress.corrupt_offset)  # three damaged sendings: check our copy
        end = progress.durable_end_offset
        last_epoch = progress.last_epoch if progress.HasField("last_epoch") else None
        if end > self.log.appended_end or not self._is_epoch_below(end, last_epoch):
            view.restart(session.broker_epoch)
            if subscription is not None:
                session.stop(
                    subscription, CorruptMessage(f"{self}: progress to {end} is not on the leader's log"), now_ms
                )
            return
        refuses = progress.takes_no_records
        reported = Progress(end, progress.log_start_offset, progress.partition_epoch, refuses, progress.unsynced)
        if reported.unsynced and self.log.flush_on_append:
            view.waiting = reported  # either the follower or the leader does not know the new policy yet
            return
        view.progressed(reported, log_end=self.log.appended_end, marks=self.in_sync.marks, now_ms=now_ms)
        self._advance(now_ms)
        self.in_sync.propose_joiner(session.broker_id, self.log.high_watermark, self.log.appended_end, now_ms)

    def _is_epoch_below(self, end_offset: int, last_epoch: int | None) -> bool:
        """Whether our record below `end_offset` has this epoch. True if there is no record to compare."""
        if last_epoch is None:
            return True
        if end_offset > self.epoch_start:
            return last_epoch == self.leader_epoch
        return self.log.log.epoch_before(end_offset) in (None, last_epoch)

    def check_lag(self, now_ms: float) -> None:
        """React to a timer: propose the ISR without late members, and propose joiners."""
        if not self.leading:
            return
        self.in_sync.check_lag(self.log.appended_end, now_ms)
        self._advance(now_ms)
        self.in_sync.propose_joiners(self.log.high_watermark, self.log.appended_end, now_ms)

    def proposal_answered(self, answer: ProposalAnswer, now_ms: float) -> None:
        """Take the controller's answer. Committed changes come as metadata."""
        if self.leading:
            self.in_sync.answered(answer, now_ms)

    # -- questions of sessions (session.Source)

    def check_position(self, position: data_pb2.FetchPosition, session: Asker, now_ms: float) -> PositionAnswer:
        """Check a position, in this order: leader epoch, log start, divergence, end."""
        try:
            if session.audience is Audience.FOLLOWER or position.leader_epoch >= 0:
                check_epoch(self._name, position.leader_epoch, self.leader_epoch)
        except UnknownLeaderEpoch as error:
            return Wait(error)
        except FencedLeaderEpoch as error:
            return Refuse(error)
        if not self.leading:
            return Wait()
        if session.audience is Audience.FOLLOWER:
            return self._check_follower(position, session)
        return self._check_consumer(position, session.asked_ms(self.key))

    def _check_follower(self, position: data_pb2.FetchPosition, session: Asker) -> PositionAnswer:
        view = self.in_sync.views.get(session.broker_id)
        if view is None:
            return Wait(
                NotLeaderOrFollower(f"{self}: broker {session.broker_id} is not a replica that this leader knows of")
            )
        if view.broker_epoch != session.broker_epoch:
            view.restart(session.broker_epoch)
        checked = inside_a_batch(self.log, position, self._batch_bases.base) or self._check_log(position)
        view.accepted = isinstance(checked, SendRuns)
        if not view.accepted:
            view.restart(session.broker_epoch)
        elif below := self._hidden_producers(position):
            return SendRuns(below.snapshot())
        return checked

    def _hidden_producers(self, position: data_pb2.FetchPosition) -> ProducerState | None:
        """The producers that the batches from this position on do not show: those below an empty log, and those below
        the point of compaction."""
        offset = position.fetch_offset
        if offset < self.log.compaction.clean_to:
            return self.producers.below(self.log.compaction.clean_to)
        return None if position.HasField("last_fetched_epoch") else self.producers.below(offset)

    # -- compaction

    def compact(self, point: CompactionPoint, now_ms: float) -> None:
        """Decide a compaction point. Followers learn it with the next runs. A point above the last stable offset is
        dropped, because the log was cut since the cleaner looked at it."""
        log = self.log
        if not self.knows_its_end or point.clean_to > log.last_stable_offset:
            return
        log.learn_compaction(point)
        hidden = self.producers.below(log.compaction.clean_to).snapshot()
        for subscription in self._subscribers.values():
            subscription.session.compacted(subscription, log.compaction.clean_to, hidden)
        self.begin_compaction()
        self._tell_subscribers(now_ms, news=True)

    def begin_compaction(self) -> None:
        """Let the disk begin the known point, if our log allows it by now."""
        if self.leading and (begin := self.log.due_compaction(self.key)) is not None:
            self._context.emit(begin)

    def _check_consumer(self, position: data_pb2.FetchPosition, asked_ms: float) -> PositionAnswer:
        """Check a consumer's position. A consumer may have an offset above this log's end from a later leader that this
        broker does not know yet. So the leader refuses such an offset only when the controller has answered a heartbeat
        that was sent since."""
        offset, end = position.fetch_offset, self.log.appended_end
        checked = at_log_start(self.log, position) or self._check_log(position)
        if not position.HasField("last_fetched_epoch") and offset > end:
            if not self.knows_its_end:
                return Wait()
            if self._context.led_until_ms < asked_ms:
                self._context.doubted.add(self.key)
                return Wait()
            return Refuse(OffsetOutOfRange(f"{self}: offset {offset} is above the log end {end}"))
        return checked

    def _check_log(self, position: data_pb2.FetchPosition) -> PositionAnswer:
        return check_position(self._name, self.log, self._epochs(), position)

    def _epochs(self) -> LeaderEpochs:
        return LeaderEpochs(self.log.log.epochs, self.leader_epoch, self.epoch_start)

    def readable_end(self, audience: Audience) -> int:
        return readable_end(self.log, audience)

    def ends(self) -> LogOffsets:
        return self.log.ends()

    @property
    def schemas(self) -> TopicSchemas | None:
        """The topic's schemas."""
        return self.config.schemas

    def aborted_within(self, from_offset: int, to_offset: int) -> list[int]:
        return self.producers.transactions.aborted_within(from_offset, to_offset)

    @property
    def cuts(self) -> int:
        return self.log.cuts

    def epoch_before(self, offset: int) -> int | None:
        return self.log.log.epoch_before(offset)

    def list_offsets(self, entry: metadata_pb2.ListOffsetsEntry, now_ms: float) -> metadata_pb2.ListOffsetsResult:
        """The four ends as one snapshot. Raises OffsetNotAvailable while the leader does not know its end (KIP-207)."""
        check_epoch(self._name, entry.leader_epoch, self.leader_epoch)
        if not self.knows_its_end:
            raise OffsetNotAvailable(f"{self}: the leader of epoch {self.leader_epoch} does not know its end: retry")
        check_session(self._name, self._context, self.config, now_ms)
        result = list_offsets(self.log, entry, self.leader_epoch, is_compacted=self.config.is_compacted)
        if entry.with_replicas:
            result.replicas.extend(self.replica_ends())
        return result

    def replica_ends(self) -> list[metadata_pb2.ReplicaEnd]:
        """The durable end of each replica's log, the leader's own first. Followers reported theirs in this epoch."""
        own = metadata_pb2.ReplicaEnd(broker_id=self._context.broker_id, log_end_offset=self.log.durable_end)
        views = self.in_sync.views.values() if self.leading else ()
        return [own, *(metadata_pb2.ReplicaEnd(broker_id=v.broker_id, log_end_offset=v.durable_end) for v in views)]
