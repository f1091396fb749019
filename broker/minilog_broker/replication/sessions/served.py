"""The sessions that followers and consumers have on this broker, and the subscribers of each partition.

A follower has one session, the newest. The broker refuses a session of a follower's earlier life, and one that is
silent for five keep-alives. A subscription outlives the leader that it was made for: it waits for the next one here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minilog.errors import InvalidArgument, MinilogError, StaleBrokerEpoch, TimedOut
from minilog.partition_key import PartitionKey
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, data_pb2, peer_pb2
from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.replica import Replica
from minilog_broker.replication.replica_effects import ReadRun, SessionReady, SessionRefused
from minilog_broker.replication.sessions.selected import Scanners
from minilog_broker.replication.sessions.session import ServedSession, SessionPartition, message_of
from minilog_broker.replication.sessions.source import Audience

_TOPIC_ID_BYTES = 16


class ServedSessions:
    """The sessions of one broker. The manager passes on the events of streams, and asks for ready messages."""

    def __init__(self, context: ReplicationContext, replicas: Mapping[PartitionKey, Replica]) -> None:
        self._context = context
        self._replicas = replicas
        self._sessions: dict[int, ServedSession] = {}
        self._scanners = Scanners()
        self._of_follower: dict[int, int] = {}  # broker id -> session id
        self._subscribers: dict[PartitionKey, dict[int, SessionPartition]] = {}

    def subscribers(self, key: PartitionKey) -> dict[int, SessionPartition]:
        """The subscribers of a partition, by session id. It stays the same object as long as there is one."""
        return self._subscribers.setdefault(key, {})

    # -- opening and closing

    def open(self, session_id: int, audience: Audience, now_ms: float, keepalive_ms: float) -> ServedSession:
        """Open a session."""
        session = ServedSession(
            session_id,
            audience,
            self._context.settings,
            wake=lambda ready_id: self._context.emit(SessionReady(ready_id)),
            hold=lambda held_id, due_ms: self._context.timers.arm(TimerKind.SESSION, held_id, due_ms),
            read=self._context.emit,
            opened_ms=now_ms,
            keepalive_ms=keepalive_ms,
            scanners=self._scanners,
        )
        self._sessions[session_id] = session
        return session

    def open_follower(
        self, session_id: int, broker_id: int, broker_epoch: int, keepalive_ms: int, now_ms: float
    ) -> None:
        """Open a follower's session in the place of its older one."""
        if self._is_stale(broker_id, broker_epoch):
            self._context.emit(SessionRefused(session_id, self._stale(broker_id, broker_epoch)))
            return
        if (older := self._of_follower.get(broker_id)) is not None:
            self._refuse(older, StaleBrokerEpoch(f"broker {broker_id} has opened a newer session"), now_ms)
        session = self.open(
            session_id, Audience.FOLLOWER, now_ms, self._context.settings.peer_keepalive_ms(keepalive_ms)
        )
        session.broker_id, session.broker_epoch = broker_id, broker_epoch
        self._of_follower[broker_id] = session_id

    def broker_incarnation_changed(self, broker_id: int, now_ms: float) -> None:
        """Refuse the session of a broker's earlier life."""
        session = self._sessions.get(self._of_follower.get(broker_id, -1))
        if session is not None and self._is_stale(broker_id, session.broker_epoch):
            self._refuse(session.session_id, self._stale(broker_id, session.broker_epoch), now_ms)

    def _is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        incarnation = self._context.incarnations.get(broker_id)
        return incarnation is not None and broker_epoch < incarnation.broker_epoch

    def _stale(self, broker_id: int, broker_epoch: int) -> StaleBrokerEpoch:
        return StaleBrokerEpoch(
            f"broker epoch {broker_epoch} of broker {broker_id} is over: the broker has registered again"
        )

    def _refuse(self, session_id: int, error: MinilogError, now_ms: float) -> None:
        self.close(session_id, now_ms)
        self._context.emit(SessionRefused(session_id, error))

    def close(self, session_id: int, now_ms: float) -> None:
        """Close the session of a stream that is gone."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if self._of_follower.get(session.broker_id) == session_id:
            del self._of_follower[session.broker_id]
        for key in list(session.subscriptions):
            self._unsubscribe(session, key, now_ms)

    def _unsubscribe(self, session: ServedSession, key: PartitionKey, now_ms: float) -> None:
        self._context.copy_checks.let_go(key, session.session_id)
        session.forget(key)
        replica = self._replicas.get(key)
        if session.audience is Audience.FOLLOWER and replica is not None and replica.leader is not None:
            replica.leader.follower_left(session.broker_id, now_ms)
        subscribers = self._subscribers.get(key)
        if subscribers is not None:
            subscribers.pop(session.session_id, None)
            if not subscribers and key not in self._replicas:
                del self._subscribers[key]

    # -- messages

    def receive(
        self, session_id: int, request: data_pb2.FetchRequest | peer_pb2.ReplicateRequest, now_ms: float
    ) -> None:
        """Take a message. Positions come first, because the leader judges progress by its position."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        for partition_id in request.forgotten:
            self._unsubscribe(session, _key(partition_id), now_ms)
        if not all(self._take_position(session, position, now_ms) for position in request.positions):
            return
        session.grant(request.credit_bytes, now_ms)
        if isinstance(request, peer_pb2.ReplicateRequest):
            self._take_progress(session, request.progress, now_ms)

    def _take_position(self, session: ServedSession, position: data_pb2.FetchPosition, now_ms: float) -> bool:
        key = _key(position.partition_id)
        if len(key.topic_id) != _TOPIC_ID_BYTES or position.fetch_offset < 0:
            error = InvalidArgument(
                f"a position needs an offset of at least 0 and a topic id of {_TOPIC_ID_BYTES} bytes, and this one has "
                f"offset {position.fetch_offset} and topic id '{key.topic_id.hex()}'"
            )
            self._refuse(session.session_id, error, now_ms)
            return False
        replica = self._replicas.get(key)
        checks = self._context.copy_checks
        checks.let_go(key, session.session_id)
        if position.came_damaged and replica is not None and replica.has(position.fetch_offset):
            session.forget(key)
            if checks.hold(key, session.session_id, position):
                return True
        self._subscribe(session, key, position, now_ms)
        return True

    def copy_checked(self, key: PartitionKey, positions: Mapping[int, data_pb2.FetchPosition], now_ms: float) -> None:
        """Let positions go on, because the check of the copy for which they waited is done."""
        for session_id, position in positions.items():
            if (session := self._sessions.get(session_id)) is not None:
                self._subscribe(session, key, position, now_ms)

    def _subscribe(
        self, session: ServedSession, key: PartitionKey, position: data_pb2.FetchPosition, now_ms: float
    ) -> None:
        replica = self._replicas.get(key)
        source = None if replica is None else replica.source_for(session.audience)
        subscribers = self.subscribers(key)
        subscribers[session.session_id] = session.take_position(key, source, position, now_ms)

    def _take_progress(
        self, session: ServedSession, reports: Iterable[peer_pb2.ReplicaProgress], now_ms: float
    ) -> None:
        for progress in reports:
            key = _key(progress.partition_id)
            replica = self._replicas.get(key)
            if replica is None or replica.leader is None:
                continue
            if session.is_at(key, progress.leader_epoch, progress.position_number):
                replica.leader.progress(session, progress, now_ms)

    def next_read(self, session_id: int, now_ms: float) -> ReadRun | None:
        """The next read for a session's coming message."""
        session = self._sessions.get(session_id)
        return None if session is None else session.next_read(now_ms)

    def asking(self, question: ReadRun) -> ServedSession | None:
        """The session that asked for this run. None if it is closed."""
        return self._sessions.get(question.session_id)

    def next_message(
        self, session_id: int, now_ms: float
    ) -> StreamMessage[data_pb2.FetchResponse] | StreamMessage[peer_pb2.ReplicateResponse] | None:
        """A session's next message. None if it has nothing to send now."""
        session = self._sessions.get(session_id)
        if session is None or (runs := session.next_runs(now_ms)) is None:
            return None
        if session.audience is Audience.FOLLOWER:
            return message_of(peer_pb2.ReplicateResponse, runs)
        return message_of(data_pb2.FetchResponse, runs)

    def is_costly(self, session_id: int) -> bool:
        """Whether the next message of a session is likely to cost some milliseconds."""
        session = self._sessions.get(session_id)
        return session is not None and session.is_costly

    # -- time

    def due(self, session_id: int, now_ms: float) -> None:
        """A timer's event: refuse a silent session, or send its news or sign of life."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        settings = self._context.settings
        follower = session.audience is Audience.FOLLOWER
        silence_ms = settings.silence_ms if follower else settings.consumer_silence_ms
        if now_ms >= session.last_heard_ms + silence_ms:
            text = f"the other side of the session sent nothing for {silence_ms:.0f} ms: open a new session"
            self._refuse(session_id, TimedOut(text), now_ms)
        else:
            session.look(now_ms)

    def excuse(self, delay_ms: float, now_ms: float) -> None:
        """Excuse the other sides' silence for `delay_ms`, for which this process stood still."""
        for session in self._sessions.values():
            session.excuse(delay_ms, now_ms)


def _key(partition_id: common_pb2.PartitionId) -> PartitionKey:
    return PartitionKey.of(partition_id)
