"""All replicas and sessions of one broker: events and the time go in, effects come out.

replica_effects.py has the event that answers each effect.

    ReplicaManager ── Replica (one per partition) ── ReplicaLog, with LeaderPartition | FollowerPartition
                   ├─ Session (one per follower or consumer reading here)
                   └─ ReplicaFetcher (one per leader that is followed)

All times are milliseconds of one monotonic clock. After any call the shell carries out `take_effects()` in order. The
cost of an event grows with the partitions that it concerns, not with the number of all partitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from minilog.errors import (
    CorruptMessage,
    InvalidRequiredAcks,
    MinilogError,
    NotLeaderOrFollower,
    StorageError,
    UnknownTopicId,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2, metadata_pb2, peer_pb2
from minilog_broker.levels import ClusterLevel
from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.leader.delete_records import DeleteRecordsRequest
from minilog_broker.replication.leader.own_log import append_own, delete_own_records, refuse_client, require_own_room
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.leader.pending import ProduceEntry, TransactionalWrite
from minilog_broker.replication.leader.transaction_markers import MarkersRequest
from minilog_broker.replication.partition_state import NO_LEADER, BrokerIncarnation, PartitionState, TopicConfig
from minilog_broker.replication.replica import Replica, ReplicaFetchers
from minilog_broker.replication.replica_effects import (
    AnswerDeleteRecords,
    AnswerMarkers,
    AnswerProduce,
    Effect,
    ProposalAnswer,
    ReadRun,
)
from minilog_broker.replication.rules.own_delay import own_delay_ms
from minilog_broker.replication.sessions.served import ServedSessions
from minilog_broker.replication.sessions.source import Audience
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.replication.stable_offsets import Question, StableOffset
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.errors import NO_SPACE
from minilog_broker.storage.find_ends import FoundEnd
from minilog_broker.storage.producer_state import ProducerState

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log

_ALL_ACKS = (-1, 0, 1)


class ReplicaManager:
    """The whole core of replication of one broker. The shell calls its methods, and carries out `take_effects`."""

    def __init__(self, broker_id: int, settings: ReplicationSettings, rng: random.Random, level: ClusterLevel) -> None:
        self._context = ReplicationContext(broker_id, settings, level)
        self._leaders = ReplicaFetchers(self._context, rng)
        self._replicas: dict[PartitionKey, Replica] = {}
        self._configs: dict[bytes, TopicConfig] = {}
        self._served = ServedSessions(self._context, self._replicas)
        self._found_no_space = False  # the disk was full, and no later check has found space

    def take_effects(self) -> list[Effect]:
        """Take the effects, which the shell carries out in order."""
        effects, self._context.effects = self._context.effects, []
        return effects

    # -- this broker, and the metadata

    def set_broker_epoch(self, broker_epoch: int, now_ms: float) -> None:
        """Note that this life is registered. From now on it leads and follows."""
        self._context.broker_epoch = broker_epoch
        for replica in self._replicas.values():
            replica.take_role(now_ms, why="this broker registered anew")

    def session_lasts_until(self, sent_ms: float, ends_ms: float, now_ms: float) -> None:
        """Note that the controller has answered a heartbeat, and that this broker has replayed all metadata that was
        committed by then.

        `ends_ms` is one session time-out after the sending of the heartbeat. A leader under unclean election serves
        until then (rules/fencing.py)."""
        context = self._context
        context.led_until_ms = max(context.led_until_ms, sent_ms)
        was_over, context.session_ends_ms = now_ms >= context.session_ends_ms, max(context.session_ends_ms, ends_ms)
        context.timers.arm(TimerKind.CONTROLLER_SESSION, context.broker_id, context.session_ends_ms)
        if was_over:
            self._session_changed(now_ms)
        doubted, context.doubted = context.doubted, set()
        for key in sorted(doubted):
            if (replica := self._replicas.get(key)) is not None and replica.leader is not None:
                replica.leader.check_subscribers(now_ms)

    def reconfigured(self, settings: ReplicationSettings, now_ms: float) -> None:
        """Follow these settings from now on. A session keeps the credit of its opening."""
        self._context.settings = settings
        for replica in self._replicas.values():
            replica.reconfigured(now_ms)

    def disk_looked_at(self, *, answers: bool, has_space: bool) -> None:
        """Note whether the disks answer and have space. The heartbeats report the same."""
        space_is_back = has_space and self._found_no_space
        if answers == self._context.disk_answers and not space_is_back:
            return
        self._context.disk_answers = answers
        self._found_no_space &= not space_is_back
        for replica in self._replicas.values():
            if replica.follower is not None:
                replica.follower.disk_changed(space_is_back=space_is_back)

    def _session_changed(self, now_ms: float) -> None:
        for leader in self.led_partitions():
            if leader.config.unclean_leader_election:
                leader.session_changed(now_ms)

    def adopt_log(self, key: PartitionKey, log: Log, producer_state: ProducerState, now_ms: float) -> None:
        """Take a log that was there at the start. It has no role before the image names it."""
        self._replica(key).opened(log, producer_state, now_ms)

    def adopt_unreadable(self, key: PartitionKey, reason: str, now_ms: float) -> None:
        """Note a log that was there at the start but cannot be opened. Its replica is offline in this life."""
        self._replica(key).go_offline(OSError(reason), now_ms)

    def log_opened(self, key: PartitionKey, log: Log, producers: ProducerState, now_ms: float) -> None:
        """Take the result of OpenLog or RecoverLog."""
        replica = self._replicas.get(key)
        if replica is not None and replica.state is not None:
            replica.opened(log, producers, now_ms)

    def log_configured(self, key: PartitionKey, config: TopicConfig, now_ms: float) -> None:
        """Note that ConfigureLog is done."""
        if (replica := self._replicas.get(key)) is not None:
            replica.configured(config, now_ms)

    def apply_image(
        self,
        states: Iterable[PartitionState],
        removed: Iterable[PartitionKey],
        configs: Mapping[bytes, TopicConfig],
        names: Mapping[bytes, str],
        incarnations: Mapping[int, BrokerIncarnation],
        now_ms: float,
    ) -> None:
        """Take one committed batch of metadata: the changed partitions, and all `incarnations`. `configs` and `names`
        have at least the topics concerned. The replicas adopt a configuration that has changed."""
        changed_incarnations = {
            b
            for b in {*incarnations, *self._context.incarnations}
            if incarnations.get(b) != self._context.incarnations.get(b)
        }
        self._context.incarnations = dict(incarnations)
        reconfigured = {topic_id for topic_id, config in configs.items() if self._configs.get(topic_id) != config}
        self._configs.update(configs)
        for state in states:
            self._apply(state, now_ms)
        for key in removed:
            self._remove(key, now_ms)
        self._configure(reconfigured, now_ms)
        if changed_incarnations:
            self._incarnations_changed(changed_incarnations, now_ms)
        self._close_idle()

    def _apply(self, state: PartitionState, now_ms: float) -> None:
        if self._context.broker_id in state.replicas:
            self._replica(state.key).apply(state, self._configs[state.key.topic_id], now_ms)
        else:
            self._remove(state.key, now_ms)

    def _remove(self, key: PartitionKey, now_ms: float) -> None:
        if (replica := self._replicas.pop(key, None)) is not None:
            replica.remove(now_ms)

    def _configure(self, topic_ids: set[bytes], now_ms: float) -> None:
        """Configure the replicas whose configuration changed without their state. The others have both already."""
        for key, replica in self._replicas.items() if topic_ids else ():  # configurations change rarely
            if key.topic_id in topic_ids and replica.config != self._configs[key.topic_id]:
                replica.configure(self._configs[key.topic_id], now_ms)

    def _incarnations_changed(self, broker_ids: set[int], now_ms: float) -> None:
        """Note that brokers began another life, or were fenced or unfenced. This visits all led partitions, because
        such a change is rare."""
        for broker_id in broker_ids:
            self._served.broker_incarnation_changed(broker_id, now_ms)
            if (to_leader := self._leaders.by_leader.get(broker_id)) is not None:
                to_leader.leader_incarnation_changed(now_ms)
        for leader in self.led_partitions():
            if not broker_ids.isdisjoint(leader.state.replicas):
                leader.incarnations_changed(now_ms)

    def _close_idle(self) -> None:
        for session in self._leaders.by_leader.values():
            session.close_if_idle()

    def _replica(self, key: PartitionKey) -> Replica:
        replica = self._replicas.get(key)
        if replica is None:
            subscribers = self._served.subscribers(key)
            replica = self._replicas[key] = Replica(key, self._context, self._leaders, subscribers)
        return replica

    def remove_stray(self, key: PartitionKey, now_ms: float) -> None:
        """Delete a log that was there at the start, and that the image does not have, as for a deleted topic."""
        self._remove(key, now_ms)

    def copy_of(self, key: PartitionKey) -> Replica | None:
        """The replica here, for the scrub. None if its log cannot be read. The caller must not change it."""
        replica = self._replicas.get(key)
        return None if replica is None or replica.log is None or replica.offline is not None else replica

    def copies(self) -> list[Replica]:
        """The replicas here whose logs can be read, for the cleaner. The caller must not change them."""
        return [replica for replica in self._replicas.values() if self.copy_of(replica.key) is not None]

    def compact(self, key: PartitionKey, point: CompactionPoint, now_ms: float) -> None:
        """Announce a compaction point of a partition that this broker leads. Else nothing happens."""
        if (replica := self._replicas.get(key)) is not None and replica.leader is not None:
            replica.leader.compact(point, now_ms)

    def led_partitions(self) -> list[LeaderPartition]:
        """The partitions that this broker leads now."""
        return [replica.leader for replica in self._replicas.values() if replica.leader is not None]

    def stop_leading(self, now_ms: float) -> None:
        """Stop leading and following, at the end of a controlled shutdown. The broker answers the waiting calls as
        unknown, and stores the producer states for a quick start."""
        for replica in self._replicas.values():
            replica.drop_role(now_ms, why="the broker stops")
            replica.write_snapshot()
        self._close_idle()

    # -- produce and list offsets

    def produce(
        self,
        ticket: object,
        key: PartitionKey,
        leader_epoch: int,
        acks: int,
        timeout_ms: float,
        batch: Buffer,
        now_ms: float,
        transaction: TransactionalWrite | None = None,
        validated: BatchHeader | MinilogError | None = None,
        now_us: int | None = None,
    ) -> None:
        """Take one produce entry. AnswerProduce answers it, once. Under acks=0 only a refusal gets an answer, so that
        the producer looks for the present leader.

        `leader_epoch` is -1 if the client does not know it. `validated` is the result of the batch's validation under
        `led_config`, if the caller has validated it. `now_us` is the wall clock, None if it is not trusted."""
        entry = ProduceEntry(ticket, acks, now_ms + timeout_ms, batch, transaction, validated, now_us)
        try:
            if acks not in _ALL_ACKS:
                raise InvalidRequiredAcks(f"acks is 0, 1 or all (-1 on the wire), and not {acks}")
            leader = self._leader(key)
            refuse_client(leader)
        except MinilogError as error:
            self._context.emit(AnswerProduce(ticket, error, -1, -1, *self._known_leader(key)))
            return
        leader.produce(entry, leader_epoch, now_ms)

    def led_config(self, key: PartitionKey) -> TopicConfig | None:
        """The configuration by which this leader judges the partition's batches. None if this broker does not lead."""
        replica = self._replicas.get(key)
        return None if replica is None or replica.leader is None else replica.leader.config

    # -- transactions

    def is_registering(self, key: PartitionKey, number: int) -> bool:
        """Whether a batch still waits for the answer to a RegisterPartition."""
        replica = self._replicas.get(key)
        return replica is not None and replica.leader is not None and replica.leader.is_registering(number)

    def registered(self, key: PartitionKey, number: int, error: MinilogError | None, now_ms: float) -> None:
        """Take the answer to a RegisterPartition: None if the producer may write. A late answer changes nothing."""
        replica = self._replicas.get(key)
        if replica is not None and replica.leader is not None:
            replica.leader.registered(number, error, now_ms)

    def write_markers(self, key: PartitionKey, request: MarkersRequest, now_ms: float) -> None:
        """Take markers of a transaction for a partition that is led here. AnswerMarkers answers the call, once."""
        try:
            leader = self._leader(key)
            refuse_client(leader)  # in `__groups` the coordinator of the group ends transactions
            leader.write_markers(request, now_ms)
        except MinilogError as error:
            self._context.emit(AnswerMarkers(request.ticket, error))

    def ends_found(self, key: PartitionKey, number: int, ends: dict[int, FoundEnd]) -> None:
        """Take the result of FindEnds: the ends of the producers in the log. A late result changes nothing."""
        replica = self._replicas.get(key)
        if replica is not None and replica.leader is not None:
            replica.leader.ends_found(number, ends)

    def batch_found(self, key: PartitionKey, leader_epoch: int, offset: int, base: int, now_ms: float) -> None:
        """Take the result of FindBatch. One of another leader epoch changes nothing."""
        replica = self._replicas.get(key)
        if replica is not None and replica.leader is not None and replica.leader.leader_epoch == leader_epoch:
            replica.leader.batch_found(offset, base, now_ms)

    def delete_records(
        self, key: PartitionKey, leader_epoch: int, request: DeleteRecordsRequest, now_ms: float
    ) -> None:
        """Delete records of a partition that is led here. AnswerDeleteRecords answers the call, once."""
        try:
            leader = self._leader(key)
            refuse_client(leader)
            leader.delete_records(request, leader_epoch, now_ms)
        except MinilogError as error:
            self._context.emit(AnswerDeleteRecords(request.ticket, error, -1))

    def require_own_room(self, key: PartitionKey, leader_epoch: int, now_ms: float) -> None:
        """Check that a coordinator of this broker may decide now (leader/own_log.py)."""
        require_own_room(self._leader(key), leader_epoch, now_ms)

    def append_own(self, key: PartitionKey, leader_epoch: int, base_offset: int, batch: Buffer) -> int:
        """Append this broker's own batch to the log of an internal topic, at once (leader/own_log.py). Returns the end
        behind it."""
        return append_own(self._context, self._leader(key), leader_epoch, base_offset, batch)

    def delete_own_records(self, key: PartitionKey, leader_epoch: int, offset: int) -> None:
        """Delete an internal topic's records below `offset`. No coordinator needs them (leader/own_log.py)."""
        if (replica := self._replicas.get(key)) is not None:
            delete_own_records(self._context, replica.leader, leader_epoch, offset)

    def _leader(self, key: PartitionKey) -> LeaderPartition:
        replica = self._replicas.get(key)
        if replica is None:
            if key.topic_id in self._configs:
                raise NotLeaderOrFollower(
                    f"broker {self._context.broker_id} has no replica of partition {key.partition} "
                    f"of topic id {key.topic_id.hex()}"
                )
            raise UnknownTopicId(f"broker {self._context.broker_id} does not know the topic id {key.topic_id.hex()}")
        if replica.offline is not None:
            raise StorageError(f"the replica of partition {key.partition} is offline: {replica.offline}")
        if replica.leader is None:
            raise NotLeaderOrFollower(f"broker {self._context.broker_id} does not lead partition {key.partition}")
        return replica.leader

    def _known_leader(self, key: PartitionKey) -> tuple[int, int]:
        replica = self._replicas.get(key)
        state = None if replica is None else replica.state
        return (NO_LEADER, -1) if state is None else (state.leader_id, state.leader_epoch)

    def list_offsets(self, entry: metadata_pb2.ListOffsetsEntry, now_ms: float) -> metadata_pb2.ListOffsetsResult:
        """Answer one entry at once. The shell adds the offsets that it looks up in files."""
        key = PartitionKey.of(entry.partition_id)
        try:
            return self._leader(key).list_offsets(entry, now_ms)
        except MinilogError as error:
            return metadata_pb2.ListOffsetsResult(
                partition_id=entry.partition_id, error=wire_error(error), leader_epoch=self._known_leader(key)[1]
            )

    # -- stable offsets

    def watch(self, key: PartitionKey) -> None:
        """Note that a call waits for news of the stable offset. StableOffsetMoved names the times to ask again, until
        `unwatch`: once for each `watch`."""
        self._context.watched[key] += 1

    def unwatch(self, key: PartitionKey) -> None:
        """Note that the call waits no more."""
        self._context.watched[key] -= 1
        if not self._context.watched[key]:
            del self._context.watched[key]

    def stable_offset(self, question: Question, now_ms: float) -> StableOffset | None:
        """The stable offset of a partition that is led here, None if it is no news. Raises MinilogError
        (replication/stable_offsets.py)."""
        return self._leader(question.key).stable_offset(question.known, now_ms)

    # -- sessions on this leader

    def open_consumer_session(self, session_id: int, first: data_pb2.FetchRequest, now_ms: float) -> None:
        """Open a consumer's session by its first message. Without another isolation level it is read_committed."""
        uncommitted = first.isolation_level == data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
        audience = Audience.CONSUMER if uncommitted else Audience.COMMITTED_CONSUMER
        self._served.open(session_id, audience, now_ms, self._context.settings.client_keepalive_ms(first.keepalive_ms))

    def open_follower_session(
        self, session_id: int, broker_id: int, broker_epoch: int, now_ms: float, *, keepalive_ms: int = 0
    ) -> None:
        """Open a follower's session. A broker has one session here, the newest. The leader refuses a session of an
        earlier life. `keepalive_ms` is the interval of signs of life that the follower asks for, 0 if it names none."""
        self._served.open_follower(session_id, broker_id, broker_epoch, keepalive_ms, now_ms)

    def close_session(self, session_id: int, now_ms: float) -> None:
        """Close a session whose stream is gone. Its follower's progress still counts while the follower is in the ISR,
        but does not let it join."""
        self._served.close(session_id, now_ms)

    def fetch_request(self, session_id: int, request: data_pb2.FetchRequest, now_ms: float) -> None:
        """Take a consumer's message."""
        self._served.receive(session_id, request, now_ms)

    def replicate_request(self, session_id: int, request: peer_pb2.ReplicateRequest, now_ms: float) -> None:
        """Take a follower's message. Positions come first, because the leader judges progress by its position."""
        self._served.receive(session_id, request, now_ms)

    def next_read(self, session_id: int, now_ms: float) -> ReadRun | None:
        """The next read for a session's coming message. The shell reads at once, and answers with run_read,
        run_not_in_memory or read_failed. It asks again until None."""
        return self._served.next_read(session_id, now_ms)

    def run_read(self, question: ReadRun, batches: Buffer, now_ms: float) -> None:
        """Take a run of whole batches. It is empty if the log lacks them by now, or if no session needs them."""
        if (session := self._served.asking(question)) is not None:
            session.run_read(question, batches, now_ms)

    def run_not_in_memory(self, question: ReadRun) -> None:
        """Note that a run of next_read is not in memory. The effect ReadRun asks for it when it has its turn."""
        if (session := self._served.asking(question)) is not None:
            session.run_not_in_memory(question)

    def read_failed(self, question: ReadRun, error: Exception, now_ms: float) -> None:
        """Take the error of a read: OSError, CorruptMessage or UnsupportedVersion."""
        if (session := self._served.asking(question)) is not None:
            session.read_failed(question, error, now_ms)

    def waits_for(self, question: ReadRun) -> bool:
        """Whether a session still waits for the effect ReadRun."""
        session = self._served.asking(question)
        return session is not None and session.waits_for(question)

    def next_message(
        self, session_id: int, now_ms: float
    ) -> StreamMessage[data_pb2.FetchResponse] | StreamMessage[peer_pb2.ReplicateResponse] | None:
        """The next message of a session, after next_read. None if there is no message now: SessionReady follows as soon
        as there is one. The shell asks again until None."""
        return self._served.next_message(session_id, now_ms)

    def is_costly(self, session_id: int) -> bool:
        """Whether a session's next message is likely to cost some milliseconds. Then the shell makes it in its turn."""
        return self._served.is_costly(session_id)

    # -- sessions to leaders

    def fetcher_stream_opened(self, leader_id: int, now_ms: float) -> None:
        """Note that OpenFetcherStream is done, and the stream is open."""
        self._leaders.to(leader_id).opened(now_ms)

    def fetcher_stream_closed(self, leader_id: int, now_ms: float) -> None:
        """Note that the stream broke, or could not be opened. The shell does not call it after CloseFetcherStream."""
        self._leaders.to(leader_id).closed(now_ms)

    def leader_message(self, leader_id: int, message: StreamMessage[peer_pb2.ReplicateResponse], now_ms: float) -> None:
        """Take a message of a leader, on the stream that is open now."""
        self._leaders.to(leader_id).receive(message, now_ms)

    def leader_sends(self, leader_id: int, now_ms: float) -> None:
        """Note that a part of a message came on the stream that is open now. So the leader is not silent."""
        self._leaders.to(leader_id).heard(now_ms)

    def next_request(self, leader_id: int, now_ms: float) -> peer_pb2.ReplicateRequest | None:
        """The next request to a leader. None if there is no request now: FetcherStreamReady follows as soon as there is
        one. The shell asks again until None."""
        return self._leaders.to(leader_id).next_request(now_ms)

    # -- the disk

    def log_appended(self, key: PartitionKey, end_offset: int, now_ms: float) -> None:
        """Note that the log has all appends up to `end_offset`, in order."""
        if (replica := self._replicas.get(key)) is not None:
            replica.appended(end_offset, now_ms)

    def log_flushed(self, key: PartitionKey, durable_end_offset: int, now_ms: float) -> None:
        """Note that all records below `durable_end_offset` are synced."""
        if (replica := self._replicas.get(key)) is not None:
            replica.flushed(durable_end_offset, now_ms)

    def log_truncated(self, key: PartitionKey, producer_state: ProducerState, now_ms: float) -> None:
        """Note that TruncateLog or StartLogAt is done. `producer_state` is that of the rest of the log."""
        if (replica := self._replicas.get(key)) is not None:
            replica.truncated(producer_state, now_ms)

    def transactions_aborted(self, key: PartitionKey, below: int, now_ms: float) -> None:
        """Note that AbortUnmarked is done."""
        if (replica := self._replicas.get(key)) is not None:
            replica.transactions_aborted(below, now_ms)

    def log_failed(self, key: PartitionKey, error: OSError, now_ms: float) -> None:
        """Note that a command failed, and with it all later commands for this log."""
        self._found_no_space |= error.errno in NO_SPACE
        if (replica := self._replicas.get(key)) is not None:
            replica.failed(error, now_ms)

    def log_damaged(self, key: PartitionKey, error: Exception, now_ms: float) -> None:
        """Note that the log cannot be read, or that it differs from the bytes that were written."""
        if (replica := self._replicas.get(key)) is not None:
            replica.go_offline(error, now_ms)

    def copy_checked(
        self, key: PartitionKey, offset: int, error: CorruptMessage | OSError | None, now_ms: float
    ) -> None:
        """Take the result of CheckCopy: the fault of our copy, if any. None also if its log was closed meanwhile."""
        if error is not None and (replica := self._replicas.get(key)) is not None:
            replica.go_offline(error, now_ms)
        self._served.copy_checked(key, self._context.copy_checks.looked(key, offset), now_ms)

    def log_start_moved(self, key: PartitionKey, now_ms: float) -> None:
        """Note that retention, or AdvanceLogStart, moved the log start."""
        if (replica := self._replicas.get(key)) is not None:
            replica.log_start_moved(now_ms)

    # -- the controller's answers

    def proposal_answered(self, key: PartitionKey, answer: ProposalAnswer, now_ms: float) -> None:
        """Take the controller's answer to ProposeInSyncReplicas."""
        if (replica := self._replicas.get(key)) is not None and replica.leader is not None:
            replica.leader.proposal_answered(answer, now_ms)

    def proposal_lost(self, key: PartitionKey, now_ms: float) -> None:
        """Note that the controller did not answer."""
        if (replica := self._replicas.get(key)) is not None and replica.leader is not None and replica.leader.leading:
            replica.leader.in_sync.lost(now_ms)

    # -- time

    def next_tick_ms(self) -> float:
        """The time at which `tick` is due. Infinity while nothing is."""
        return self._context.timers.next_ms()

    def tick(self, now_ms: float) -> None:
        """React to time: time-outs, signs of life, late followers. The time for which this process stood still does not
        count against other brokers and clients (rules/own_delay.py)."""
        delay_ms = own_delay_ms(self.next_tick_ms(), now_ms, self._context.settings.shortest_timeout_ms)
        if delay_ms > 0:
            self._excuse_all(delay_ms, now_ms)
        for kind, reference in self._context.timers.due(now_ms):
            if isinstance(reference, PartitionKey):
                if (replica := self._replicas.get(reference)) is not None:
                    replica.due(kind, now_ms)
            elif kind is TimerKind.SESSION:
                self._served.due(reference, now_ms)
            elif kind is TimerKind.CONTROLLER_SESSION:
                if now_ms < self._context.session_ends_ms:
                    self._context.timers.arm(kind, reference, self._context.session_ends_ms)
                else:
                    self._session_changed(now_ms)
            elif (session := self._leaders.by_leader.get(reference)) is not None:
                session.look(now_ms)

    def _excuse_all(self, delay_ms: float, now_ms: float) -> None:
        self._served.excuse(delay_ms, now_ms)
        for to_leader in self._leaders.by_leader.values():
            to_leader.excuse(delay_ms, now_ms)
        for leader in self.led_partitions():
            leader.excuse(delay_ms, now_ms)
