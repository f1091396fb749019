"""One replica of this broker: its log, and the role that the committed metadata gives it.

    role       when
    none       there is no log yet, or no leader, or another life is to lead, or the replica is offline
    leader     the metadata names this broker and this life as leader (a leader epoch belongs to one life)
    follower   the metadata names another broker as leader

Every change of leader epoch makes a new role. The new role takes over the log, and nothing else.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.partition_key import PartitionKey
from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.follower.fetcher import ReplicaFetcher
from minilog_broker.replication.follower.partition import FollowerPartition
from minilog_broker.replication.follower.reads import FollowerReads, consumers_among
from minilog_broker.replication.leader.delete_records import advance_log_start
from minilog_broker.replication.leader.own_log import tell_high_watermark, tell_leadership, tell_leadership_ended
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState, TopicConfig
from minilog_broker.replication.replica_effects import (
    ConfigureLog,
    DeleteLog,
    ForgetTornTail,
    LaterVersionMet,
    OpenLog,
    PartitionOffline,
    RecoverLog,
    WriteProducerSnapshot,
)
from minilog_broker.replication.replica_log import QueuedAppend, ReplicaLog
from minilog_broker.replication.sessions.session import SessionPartition
from minilog_broker.replication.sessions.source import Audience, SessionSource
from minilog_broker.storage.errors import NO_SPACE, DamagedCopy, DifferingCopy
from minilog_broker.storage.producer_state import ProducerState

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log


class ReplicaFetchers:
    """The sessions of this broker to leaders, by leader id: one data stream per (follower, leader) pair."""

    def __init__(self, context: ReplicationContext, rng: random.Random) -> None:
        self.by_leader: dict[int, ReplicaFetcher] = {}
        self._context = context
        self._rng = rng

    def to(self, leader_id: int) -> ReplicaFetcher:
        """The session to a leader. The first call makes it."""
        session = self.by_leader.get(leader_id)
        if session is None:
            session = self.by_leader[leader_id] = ReplicaFetcher(leader_id, self._context, self._rng)
        return session

    def give_back(self, done: list[QueuedAppend]) -> None:
        """Give the credit of received bytes back, because they were written or failed."""
        for append in done:
            if append.credit is not None and (session := self.by_leader.get(append.credit[0])) is not None:
                session.give_back(append.credit[1], append.size_bytes)


class Replica:
    """One replica per partition that this broker has. It outlives its roles."""

    def __init__(
        self,
        key: PartitionKey,
        context: ReplicationContext,
        sessions: ReplicaFetchers,
        subscribers: dict[int, SessionPartition],
    ) -> None:
        self.key = key
        self.state: PartitionState | None = None
        self.config: TopicConfig | None = None
        self.log: ReplicaLog | None = None
        self.leader: LeaderPartition | None = None
        self.follower: FollowerPartition | None = None
        self.reads: FollowerReads | None = None  # the reads of consumers from the follower
        self.offline: str | None = None
        self.damaged = False  # the disk has damaged this copy, as this life has noticed
        self.subscribers = subscribers
        self._context = context
        self._sessions = sessions
        self._opening = False
        self._log_config: TopicConfig | None = None  # the configuration that the disk was given for this log ...
        self._configured: TopicConfig | None = None  # ... and the one that it has carried out
        self._to_recover = False
        self._differs_from: int | None = None  # from this offset on most copies have other records than ours
        self._offline_since = -1  # the newest partition epoch when this replica went offline
        self._torn_tail = False  # the log has the mark of a torn tail, and ForgetTornTail was not asked for yet
        self._snapshot_due_bytes = 0

    # -- metadata

    def apply(self, state: PartitionState, config: TopicConfig, now_ms: float) -> None:
        """Take the committed state of the partition, and the topic's configuration as of the same offset of the
        metadata. So a leader never judges by a state and a configuration that do not belong together."""
        former = self.state
        if former is not None and (state.leader_epoch, state.partition_epoch) < (
            former.leader_epoch,
            former.partition_epoch,
        ):
            return
        self.state, self.config = state, config
        self._configure_log()
        if self.log is None:
            self._open_log()
            self._recover_log()
        if former is None or former.leader_epoch != state.leader_epoch or former.leader_id != state.leader_id:
            self.take_role(now_ms, why="another leader epoch began")
        elif self.leader is not None:
            self.leader.commit(state, config, now_ms)
        elif self.follower is not None and self.reads is not None:
            self._limit(self._sessions.to(state.leader_id), now_ms)
            self.follower.learn(state.partition_epoch, in_sync=self._is_in_sync())
            self.reads.in_sync = self._is_in_sync()
            self.reads.look(now_ms)
        self._forget_torn_tail(state)

    def _forget_torn_tail(self, state: PartitionState) -> None:
        if self._torn_tail and self._is_in_sync() and state.leader_id != NO_LEADER and self.log is not None:
            self._torn_tail = False
            self._context.emit(ForgetTornTail(self.key))

    def configure(self, config: TopicConfig, now_ms: float) -> None:
        """Take the topic's new configuration. The partition's present state is as of the same metadata offset."""
        self.config = config
        self._configure_log()
        if self.leader is not None and self.state is not None:
            self.leader.commit(self.state, config, now_ms)

    def _configure_log(self) -> None:
        """Give the configuration to the disk. The disk adopts it in turn: it syncs appends before they count."""
        if self.log is not None and self.config is not None and self.config != self._log_config:
            self._log_config = self.config
            self._context.emit(ConfigureLog(self.key, self.config))

    def configured(self, config: TopicConfig, now_ms: float) -> None:
        """Note that the log has this configuration. If its flush policy is another, all appended records are durable
        under it."""
        log, self._configured = self.log, config
        if log is None or log.flush_on_append == config.flush_on_append:
            return
        log.flush_on_append = config.flush_on_append
        log.flushed(log.appended_end)
        if self.leader is not None:
            self.leader.flush_policy_changed(now_ms)
        if self.follower is not None:
            self.follower.flushed()
            self.follower.on_change(now_ms)

    def _open_log(self) -> None:
        if not self._opening and self.offline is None and self.state is not None and self.config is not None:
            self._opening, self._log_config = True, self.config
            self._context.emit(OpenLog(self.key, self.state.topic_name, self.config))

    def _recover_log(self) -> None:
        """Cut a damaged copy, and fetch the rest again, as soon as the controller does not count on the copy any more.

        The controller shows that by a later committed state. So our leader knows that our earlier progress is older
        than the cut (rules/in_sync.py). This happens once in a life: if the disk damages the copy again, the replica
        stays offline.

        A copy that differs from the others is whole. So its disk is not suspect, and the replica fetches the records
        again each time. A scrub sets a copy aside only if a majority is left, and compares it once in a round. If this
        copy is the last one in the ISR, it may be the only one with later acknowledged records. Then the replica cuts
        nothing of it."""
        state, config = self.state, self.config
        if (
            self._to_recover
            and state is not None
            and config is not None
            and state.partition_epoch > self._offline_since
            and self._context.broker_id in state.damaged_replicas
            and not (self._differs_from is not None and self._is_in_sync())
        ):
            self._to_recover, self.offline, self._opening, self._log_config = False, None, True, config
            self._context.emit(RecoverLog(self.key, config, self._differs_from))

    def remove(self, now_ms: float) -> None:
        """Remove the replica, because the topic is gone or this broker has no replica of it any more."""
        self.state = None
        self.drop_role(now_ms, why="the replica was removed")
        if self.log is not None:
            self._sessions.give_back(self.log.append_failed())  # this log gets no more answers from the disk
        if self.log is not None or self._opening or self.offline is not None:
            self._context.emit(DeleteLog(self.key))
        self.log, self._opening = None, False

    # -- role

    def take_role(self, now_ms: float, *, why: str) -> None:
        """Begin the role that the metadata gives to this replica, as a new role."""
        self.drop_role(now_ms, why=why, quiet=True)
        state, context = self.state, self._context
        if state is not None and self.config is not None and self.log is not None and self.offline is None:
            if state.leader_id == context.broker_id and state.leader_broker_epoch == context.broker_epoch:
                self.leader = LeaderPartition(
                    context,
                    state,
                    self.config,
                    self.log,
                    self.subscribers,
                    read_failed=lambda error: self.go_offline(error, now_ms),
                    high_watermark_moved=lambda leader: tell_high_watermark(context, leader),
                )
            elif state.leader_id not in (context.broker_id, NO_LEADER) and context.broker_epoch is not None:
                self._follow(state, self.log, now_ms)
        for subscription in list(self.subscribers.values()):
            source = self.source_for(subscription.session.audience)
            subscription.session.source_changed(subscription, source, now_ms)
        if self.leader is not None:
            self._lead_when_settled(self.leader, now_ms)

    def _lead_when_settled(self, leader: LeaderPartition, now_ms: float, *, again: bool = False) -> None:
        """Let the leader begin its epoch as soon as the disk has answered all earlier commands.

        `again`: the epoch begins a second time, because the disk dropped appends of the leader."""
        led_already = leader.leading and not again
        leader.lead_when_settled(now_ms)
        if leader.leading and not led_already:
            tell_leadership(self._context, leader)

    def _follow(self, state: PartitionState, log: ReplicaLog, now_ms: float) -> None:
        context, session = self._context, self._sessions.to(state.leader_id)
        epochs = (state.leader_epoch, state.partition_epoch)
        self.follower = follower = FollowerPartition(
            self.key,
            state.leader_id,
            *epochs,
            log,
            session,
            context.emit,
            context.settings,
            on_change=self._follower_changed,
            follow_log_start=lambda offset: advance_log_start(context, self.key, log, offset),
            disk_answers=lambda: context.disk_answers,
            has_readers=lambda: bool(consumers_among(self.subscribers)),
        )
        self.reads = FollowerReads(
            follower,
            self.subscribers,
            lambda error: self.go_offline(error, now_ms),
            lambda: None if self.config is None else self.config.schemas,
            in_sync=self._is_in_sync(),
        )
        self._limit(session, now_ms)
        session.follow(follower, now_ms)

    def _follower_changed(self, now_ms: float) -> None:
        if self.reads is not None:
            self.reads.look(now_ms)

    def _limit(self, session: ReplicaFetcher, now_ms: float) -> None:
        """Throttle this replica if it is being added, is not in the ISR yet, and has a rate."""
        state, context = self.state, self._context
        rates: list[int] = []
        if state is not None and context.broker_id in state.adding_replicas and not self._is_in_sync():
            limits = (state.throttle_bytes_per_second, context.settings.follower_replication_throttled_rate_bytes)
            rates = [rate for rate in limits if rate]
        session.limit(self.key, context.throttle(min(rates)) if rates else None, now_ms)

    def reconfigured(self, now_ms: float) -> None:
        """Follow the context's new settings."""
        if self.leader is not None and self.leader.leading:
            self.leader.in_sync.reconfigured(now_ms)
        if self.state is not None and self.follower is not None:
            self._limit(self._sessions.to(self.state.leader_id), now_ms)

    def _is_in_sync(self) -> bool:
        return self.state is not None and self._context.broker_id in self.state.in_sync_replicas

    def source_for(self, audience: Audience) -> SessionSource | None:
        """The source that a session reads from here. A follower reads only from a leader, a consumer from any role."""
        return self.leader if self.leader is not None or audience is Audience.FOLLOWER else self.reads

    def drop_role(self, now_ms: float, *, why: str, quiet: bool = False) -> None:
        """Stop leading and following. With `quiet` the subscribers are informed only by the next role."""
        leader, self.leader = self.leader, None
        if leader is not None:
            leader.resign(why)
            tell_leadership_ended(self._context, leader)
            self._context.stable_offset_moved(self.key)
        if self.follower is not None:
            self._sessions.to(self.follower.leader_id).unfollow(self.key)
            self.follower = self.reads = None
        if not quiet:
            for subscription in list(self.subscribers.values()):
                subscription.session.source_changed(subscription, None, now_ms)

    # -- the disk

    def opened(self, log: Log, producers: ProducerState, now_ms: float) -> None:
        """Take the open log."""
        self._opening = False
        self.log, self._configured = ReplicaLog(log, producers), self._log_config
        self._torn_tail = log.has_torn_tail
        self._configure_log()
        self.take_role(now_ms, why="the log was opened")

    def appended(self, end_offset: int, now_ms: float) -> None:
        """Note that the log has all appends up to `end_offset`."""
        log = self.log
        if log is None:
            return
        end_before = log.appended_end
        done = log.appended(end_offset)
        self._snapshot_due_bytes += sum([append.size_bytes for append in done])
        self._sessions.give_back(done)
        if self.leader is not None and done:
            self.leader.appended(done, end_before, now_ms)
        if self.config is not None and self._snapshot_due_bytes >= self.config.segment_bytes:
            self.write_snapshot()
        if not log.flush_on_append:
            self.flushed(log.log.durable_end_offset, now_ms)  # the end that the log has recorded as durable
        self._settled(now_ms)

    def flushed(self, durable_end: int, now_ms: float) -> None:
        """Note that all records up to `durable_end` are synced."""
        if self.log is None or not self.log.flushed(durable_end):
            return
        if self.leader is not None:
            self.leader.flushed(now_ms)
        if self.follower is not None:
            self.follower.flushed()
            self.follower.on_change(now_ms)

    def truncated(self, producers: ProducerState, now_ms: float) -> None:
        """Note that the disk has cut the log. Take the producer state of the rest."""
        if self.log is None:
            return
        self.log.producers = producers
        self.log.truncated()
        if self.follower is not None:
            self.follower.truncated()
        self._settled(now_ms)

    def _settled(self, now_ms: float) -> None:
        if self.log is None or not self.log.settled:
            return
        if self.follower is not None:
            self.follower.settled(now_ms)
        if self.leader is not None:
            self._lead_when_settled(self.leader, now_ms)

    def log_start_moved(self, now_ms: float) -> None:
        """Tell readers here, and our leader, that the log start moved."""
        if self.log is not None:
            self.log.log_start_moved()
        if self.leader is not None:
            self.leader.log_start_moved(now_ms)
        if self.follower is not None:
            self.follower.log_start_moved()
            self.follower.on_change(now_ms)

    def transactions_aborted(self, below: int, now_ms: float) -> None:
        """Note that AbortUnmarked is done."""
        if self.log is not None and self.log.transactions_aborted(below) and self.follower is not None:
            self.follower.proven_end_moved()
            self.follower.on_change(now_ms)

    def write_snapshot(self) -> None:
        """Ask the disk to store the producer state as of the readable end."""
        self._snapshot_due_bytes = 0
        log = self.log
        if log is not None and not log.truncating and log.producers:
            self._context.emit(WriteProducerSnapshot(self.key, log.appended_end, log.producers.snapshot()))

    def failed(self, error: OSError, now_ms: float) -> None:
        """React to a failed command. After a full disk the replica writes nothing for a while. After any other error it
        goes offline. It also goes offline if an error has left the log half changed."""
        log = self.log
        if log is None or error.errno not in NO_SPACE or log.log.failed is not None:
            self.go_offline(error, now_ms)
            return
        self._sessions.give_back(log.append_failed())
        self._log_config = self._configured  # the disk dropped later commands
        self._configure_log()
        if self.leader is not None:
            self.leader.no_space(now_ms)
            self._lead_when_settled(self.leader, now_ms, again=True)
        if self.follower is not None:
            self.follower.found_no_space(now_ms)

    def due(self, kind: TimerKind, now_ms: float) -> None:
        """React to a timer of this partition."""
        leader, follower = self.leader, self.follower
        match kind:
            case TimerKind.FOLLOWER_RESUME if follower is not None:
                follower.resume()
            case TimerKind.THROTTLE if follower is not None:
                self._sessions.to(follower.leader_id).take_turn(self.key, now_ms)
            case TimerKind.PRODUCE if leader is not None:
                leader.expire(now_ms)
            case TimerKind.DELETE_RECORDS if leader is not None:
                leader.deletes.expire(now_ms)
            case TimerKind.LAG if leader is not None:
                leader.check_lag(now_ms)
            case TimerKind.PROPOSAL if leader is not None and leader.leading:
                leader.in_sync.send_proposal()

    def has(self, offset: int) -> bool:
        """Whether this copy has the offset."""
        return self.log is not None and self.log.log_start <= offset < self.log.appended_end

    def go_offline(self, error: Exception, now_ms: float) -> None:
        """Stop using the copy, because of an I/O error or damage. The broker reports this to the controller, which
        elects another leader."""
        if self.offline is not None:
            return
        if isinstance(error, UnsupportedVersion):
            self._context.emit(LaterVersionMet(self.key, error))
        damaged = self.log is not None and isinstance(error, CorruptMessage | DamagedCopy)
        self.offline = str(error)
        self._opening = False
        self.drop_role(now_ms, why=f"the replica failed: {error}")
        if self.log is not None:
            self._sessions.give_back(self.log.append_failed())
        self.log = None
        self._context.emit(PartitionOffline(self.key, self.offline, damaged))
        differs = isinstance(error, DifferingCopy)
        self._to_recover = differs or (damaged and not self.damaged)
        self.damaged |= damaged and not differs
        self._differs_from = error.offset if isinstance(error, DifferingCopy) else None
        self._offline_since = -1 if self.state is None else self.state.partition_epoch
