"""A follower's session to one leader: its requests, its stream, and its signs of life.

    state    meaning
    CLOSED   no partition follows this leader
    OPENING  the shell was asked to open the stream (OpenFetcherStream)
    OPEN     the stream is open
    BROKEN   the stream broke, or the leader's address is unknown: a pause with back-off and jitter

A replica that is being added may be throttled. Its position asks for one turn's bytes, and its next position waits for
the next turn. That does not hold up the other replicas of the session.

The session gives credit back for every byte that it received, whether the byte was appended or dropped. The credit of
an appended byte goes back when it is written. So the session's credit bounds the bytes that wait for the disk.
"""

from __future__ import annotations

import enum
import itertools
import math
import random
from dataclasses import dataclass

from minilog.limits import MAX_POSITIONS
from minilog.partition_key import PartitionKey
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, data_pb2, peer_pb2
from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.follower.partition import FollowerPartition
from minilog_broker.replication.follower.throttle import ReplicationThrottle
from minilog_broker.replication.replica_effects import CloseFetcherStream, FetcherStreamReady, OpenFetcherStream
from minilog_broker.replication.rules.own_delay import excused

_GRANT_SHARE = 4  # a message for credit alone goes when a quarter has come back; any other message carries credit, too


class FetcherState(enum.Enum):
    """The states of the session to a leader. WAYS has the transitions."""

    CLOSED = enum.auto()
    OPENING = enum.auto()
    OPEN = enum.auto()
    BROKEN = enum.auto()


WAYS = {
    (FetcherState.CLOSED, FetcherState.OPENING): "the first follower",
    (FetcherState.CLOSED, FetcherState.BROKEN): "the same, of a leader that the image does not know",
    (FetcherState.OPENING, FetcherState.OPEN): "opened",
    (FetcherState.OPENING, FetcherState.BROKEN): "closed, or another life of the leader",
    (FetcherState.OPENING, FetcherState.CLOSED): "nothing follows any more",
    (FetcherState.OPEN, FetcherState.BROKEN): "closed, silence of five keep-alives, or another life of the leader",
    (FetcherState.OPEN, FetcherState.CLOSED): "nothing follows any more",
    (FetcherState.BROKEN, FetcherState.OPENING): "the pause is over, or the leader's life is known now",
    (FetcherState.BROKEN, FetcherState.CLOSED): "nothing follows any more",
}
"""All transitions, each with its cause."""


@dataclass(slots=True)
class _Credit:
    """The credit of a session, as absolute counts of bytes since the session was opened."""

    window_bytes: int
    returned_bytes: int = 0
    told_bytes: int = 0

    @property
    def granted_bytes(self) -> int:
        return self.window_bytes + self.returned_bytes


class ReplicaFetcher:
    """The session of a broker to one leader, for all partitions that follow it.

    The Outbox of every FollowerPartition that follows this leader.
    """

    def __init__(self, leader_id: int, context: ReplicationContext, rng: random.Random) -> None:
        self.leader_id = leader_id
        self.followers: dict[PartitionKey, FollowerPartition] = {}
        self.state = FetcherState.CLOSED
        self._context = context
        self._rng = rng
        self._number = 0  # the number of the session, unique in this life
        self._credit = _Credit(context.settings.replica_fetch_max_bytes)
        self._positions: dict[PartitionKey, None] = {}
        self._progress: dict[PartitionKey, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        self._throttles: dict[PartitionKey, ReplicationThrottle] = {}
        self._turns: dict[PartitionKey, int] = {}  # the remaining bytes of each throttled follower's turn
        self._held_back: set[PartitionKey] = set()
        self._first = True
        self._awake = False
        self._last_sent_ms = 0.0
        self._last_heard_ms = 0.0
        self._since_ms = 0.0
        self._pause_ms = context.settings.reopen_min_ms
        self._leader_incarnation: int | None = None

    # -- the followers

    def follow(self, follower: FollowerPartition, now_ms: float) -> None:
        """Let a partition follow this leader from now on."""
        self.followers[follower.key] = follower
        self._forgotten.pop(follower.key, None)
        if self.state is FetcherState.OPEN:
            follower.connect()
        elif self.state is FetcherState.CLOSED:
            self._open(now_ms)

    def unfollow(self, key: PartitionKey) -> None:
        """Note that a partition does not follow this leader any more."""
        follower = self.followers.pop(key, None)
        if follower is None:
            return
        follower.disconnect()
        self._positions.pop(key, None)
        self._progress.pop(key, None)
        self._throttles.pop(key, None)
        self._turns.pop(key, None)
        self._held_back.discard(key)
        if self.state is FetcherState.OPEN:
            self._forgotten[key] = None
            self._wake()

    def close_if_idle(self) -> None:
        """Close the session if no partition follows this leader."""
        if not self.followers and self.state is not FetcherState.CLOSED:
            self.state = FetcherState.CLOSED
            self._context.emit(CloseFetcherStream(self.leader_id))

    # -- throttled followers

    def limit(self, key: PartitionKey, throttle: ReplicationThrottle | None, now_ms: float) -> None:
        """Limit the rate of a follower from now on. None: no limit."""
        if throttle is not None:
            under_way = key in self.followers and key not in self._throttles
            self._throttles[key] = throttle
            if under_way:  # until a position has a bound, the leader sends without one
                self.position_due(key)
        elif self._throttles.pop(key, None) is not None:
            self._held_back.add(key)
            self.take_turn(key, now_ms)

    def _spend(self, key: PartitionKey, size_bytes: int, now_ms: float) -> None:
        self._throttles[key].take(size_bytes, now_ms)
        self._turns[key] = self._turns.get(key, 0) - size_bytes
        if self._turns[key] <= 0:
            self._held_back.add(key)
            self.take_turn(key, now_ms)

    def take_turn(self, key: PartitionKey, now_ms: float) -> None:
        """A timer's event: let a throttled follower ask again, if it is time."""
        if key not in self._held_back:
            return
        throttle = self._throttles.get(key)
        if throttle is not None and (wait_ms := throttle.wait_ms(now_ms)):
            self._context.timers.arm(TimerKind.THROTTLE, key, now_ms + wait_ms)
            return
        self._held_back.discard(key)
        self.position_due(key)
        self.progress_due(key)

    def _position(self, key: PartitionKey) -> data_pb2.FetchPosition | None:
        position = self.followers[key].position()
        throttle = self._throttles.get(key)
        if position is not None and throttle is not None:
            position.limit_bytes = self._turns[key] = throttle.turn_bytes
        return position

    # -- the stream

    def _open(self, now_ms: float) -> None:
        incarnation = self._context.incarnations.get(self.leader_id)
        if incarnation is None or self._context.broker_epoch is None:
            self._break(now_ms)
            return
        self._leader_incarnation = incarnation.broker_epoch
        self.state, self._since_ms = FetcherState.OPENING, now_ms
        self._context.emit(OpenFetcherStream(self.leader_id, incarnation.broker_epoch))
        self._arm(now_ms + self._context.settings.silence_ms)

    def opened(self, now_ms: float) -> None:
        """Note that the stream is open."""
        if self.state is not FetcherState.OPENING:
            return
        self.state = FetcherState.OPEN
        self._number = self._context.next_number()
        self._credit = _Credit(self._context.settings.replica_fetch_max_bytes)
        self._first = True
        self._awake = False
        self._forgotten.clear()
        self._last_heard_ms = self._last_sent_ms = now_ms
        for follower in self.followers.values():
            follower.connect()
        self._wake()
        self._arm(now_ms + self._context.settings.session_keepalive_ms)

    def closed(self, now_ms: float) -> None:
        """Note that the stream broke or could not be opened."""
        if self.state in (FetcherState.OPENING, FetcherState.OPEN):
            self._break(now_ms)

    def _break(self, now_ms: float) -> None:
        settings = self._context.settings
        self.state = FetcherState.BROKEN
        for follower in self.followers.values():
            follower.disconnect()
            follower.on_change(now_ms)
        self._positions.clear()
        self._progress.clear()
        self._since_ms = now_ms + self._pause_ms * self._rng.uniform(0.5, 1.0)
        self._pause_ms = min(self._pause_ms * 2, settings.reopen_max_ms)
        self._arm(self._since_ms)

    def leader_incarnation_changed(self, now_ms: float) -> None:
        """Note that the image has another life of the leader. A session to an earlier life is useless."""
        incarnation = self._context.incarnations.get(self.leader_id)
        if self.state is FetcherState.BROKEN or self.state is FetcherState.CLOSED:
            if self.followers:
                self._pause_ms = self._context.settings.reopen_min_ms
                self._open(now_ms)
        elif incarnation is None or incarnation.broker_epoch != self._leader_incarnation:
            self._drop(now_ms)

    def _drop(self, now_ms: float) -> None:
        self._context.emit(CloseFetcherStream(self.leader_id))
        self._break(now_ms)

    def look(self, now_ms: float) -> None:
        """A timer's event: a sign of life is due, the leader is silent, or it is time to open the stream again."""
        settings = self._context.settings
        match self.state:
            case FetcherState.BROKEN if now_ms >= self._since_ms:
                self._open(now_ms) if self.followers else self.close_if_idle()
            case FetcherState.BROKEN:
                self._arm(self._since_ms)
            case FetcherState.OPENING:
                self._arm(now_ms + settings.silence_ms)  # the shell reports the end of the opening
            case FetcherState.OPEN if now_ms >= self._last_heard_ms + settings.silence_ms:
                self._drop(now_ms)
            case FetcherState.OPEN:
                due_ms = self._last_sent_ms + settings.session_keepalive_ms
                if due_ms <= now_ms:
                    self._wake()
                    due_ms = now_ms + settings.session_keepalive_ms
                self._arm(min(due_ms, self._last_heard_ms + settings.silence_ms))

    def excuse(self, delay_ms: float, now_ms: float) -> None:
        """Excuse the leader's silence for `delay_ms`, for which this process stood still."""
        self._last_heard_ms = excused(self._last_heard_ms, delay_ms, now_ms)

    def _arm(self, due_ms: float) -> None:
        self._context.timers.arm(TimerKind.LEADER_SESSION, self.leader_id, due_ms)

    # -- the outbox of its followers

    def position_due(self, key: PartitionKey) -> None:
        self._positions[key] = None
        self._wake()

    def progress_due(self, key: PartitionKey) -> None:
        self._progress[key] = None
        self._wake()

    def resume_at(self, key: PartitionKey, due_ms: float) -> None:
        self._context.timers.arm(TimerKind.FOLLOWER_RESUME, key, due_ms)

    def next_position_number(self) -> int:
        return self._context.next_number()

    def credit_source(self) -> tuple[int, int]:
        return self.leader_id, self._number

    def give_back(self, number: int, size_bytes: int) -> None:
        """Give credit back for received bytes of session `number`, which are written or dropped now."""
        if number != self._number:
            return
        self._credit.returned_bytes += size_bytes
        if self._credit_due():
            self._wake()

    def _credit_due(self) -> bool:
        credit = self._credit
        return credit.granted_bytes - credit.told_bytes >= credit.window_bytes // _GRANT_SHARE

    # -- messages

    def heard(self, now_ms: float) -> None:
        """Note that bytes came from the leader, a whole message or a part."""
        if self.state is FetcherState.OPEN:
            self._last_heard_ms = now_ms

    def receive(self, response: StreamMessage[peer_pb2.ReplicateResponse], now_ms: float) -> None:
        """Take a message of the leader."""
        if self.state is not FetcherState.OPEN:
            return
        self.heard(now_ms)
        if response.message.error.code:
            self._drop(now_ms)
            return
        self._pause_ms = self._context.settings.reopen_min_ms
        for run, batches in zip(response.message.runs, response.payloads, strict=True):
            key = PartitionKey.of(run.partition_id)
            follower = self.followers.get(key)
            dropped_bytes = len(batches) if follower is None else follower.receive(run, batches, now_ms)
            if dropped_bytes:
                self.give_back(self._number, dropped_bytes)
            if key in self._throttles and batches:
                self._spend(key, len(batches), now_ms)

    def next_request(self, now_ms: float) -> peer_pb2.ReplicateRequest | None:
        """The next request to the leader. It is empty if it is only a sign of life. None if there is nothing to send.
        Then the next news wakes the shell again."""
        if self.state is not FetcherState.OPEN:
            self._awake = False
            return None
        positions, progress, forgotten = self._take()
        keepalive_due = now_ms >= self._last_sent_ms + self._context.settings.session_keepalive_ms
        more = self._forgotten or self._positions or self._progress
        if not (positions or progress or forgotten or more or self._first or self._credit_due() or keepalive_due):
            self._awake = False
            return None
        credit_bytes = self._credit.told_bytes = self._credit.granted_bytes
        request = peer_pb2.ReplicateRequest(
            credit_bytes=credit_bytes, positions=positions, progress=progress, forgotten=forgotten
        )
        if self._first:
            self._first = False
            request.broker_id = self._context.broker_id
            request.broker_epoch = -1 if self._context.broker_epoch is None else self._context.broker_epoch
            request.keepalive_ms = math.ceil(self._context.settings.session_keepalive_ms)
        self._last_sent_ms = now_ms
        return request

    def _take(
        self,
    ) -> tuple[list[data_pb2.FetchPosition], list[peer_pb2.ReplicaProgress], list[common_pb2.PartitionId]]:
        """The next positions, progress and forgotten partitions: of each kind at most the number that one message may
        have. The rest goes with the next message. Forgotten partitions go before positions, and positions before
        progress, because the leader judges progress by its position."""
        followers = self.followers
        forgotten = _first_of(self._forgotten)
        asking = [] if self._forgotten else _first_of(self._positions)
        telling = [] if self._forgotten or self._positions else _first_of(self._progress)
        positions = [p for key in asking if key not in self._held_back and (p := self._position(key)) is not None]
        progress = [report for key in telling if (report := followers[key].progress()) is not None]
        return positions, progress, [common_pb2.PartitionId(topic_id=key[0], partition=key[1]) for key in forgotten]

    def _wake(self) -> None:
        if not self._awake and self.state is FetcherState.OPEN:
            self._awake = True
            self._context.emit(FetcherStreamReady(self.leader_id))


def _first_of(keys: dict[PartitionKey, None]) -> list[PartitionKey]:
    """Take out the first keys, as many as one message may name."""
    taken = list(itertools.islice(keys, MAX_POSITIONS))
    for key in taken:
        del keys[key]
    return taken
