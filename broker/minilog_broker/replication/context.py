"""The state that the roles of one broker share: its identity, the other brokers, its timers, and the effects."""

from __future__ import annotations

import enum
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from minilog.partition_key import PartitionKey
from minilog_broker.levels import ClusterLevel
from minilog_broker.replication.follower.throttle import ReplicationThrottle
from minilog_broker.replication.partition_state import BrokerIncarnation
from minilog_broker.replication.replica_effects import Effect, StableOffsetMoved
from minilog_broker.replication.sessions.copy_checks import CopyChecks
from minilog_broker.replication.settings import ReplicationSettings


class TimerKind(enum.IntEnum):
    """The kinds of timers."""

    SESSION = 1  # a session on this leader: sign of life, silence, news held back
    LEADER_SESSION = 2  # a session to a leader: sign of life, silence, time to open the stream again
    FOLLOWER_RESUME = 3  # a follower's pause is over
    LAG = 4  # a led partition: the check for late followers
    PRODUCE = 5  # a led partition: a pending produce times out
    PROPOSAL = 6  # a led partition: time to send the same proposal again
    THROTTLE = 7  # a throttled follower: its turn
    DELETE_RECORDS = 8  # a led partition: a call that deletes records times out
    CONTROLLER_SESSION = 9  # the end of this broker's session, unless the controller has answered a heartbeat since


Timer: TypeAlias = tuple[TimerKind, int | PartitionKey]


class Timers:
    """A heap of timers. Each timer is armed once. The code that a timer calls checks whether its work is really due."""

    __slots__ = ("_armed", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._armed: dict[Timer, float] = {}
        self._count = itertools.count()

    def arm(self, kind: TimerKind, reference: int | PartitionKey, due_ms: float) -> None:
        """Arm the timer for `due_ms`. If it is armed for an earlier time, that time stays."""
        timer = (kind, reference)
        if self._armed.get(timer, math.inf) > due_ms:
            self._armed[timer] = due_ms
            heapq.heappush(self._heap, (due_ms, next(self._count), timer))

    def due(self, now_ms: float) -> Iterator[Timer]:
        """Take the timers that are due, the earliest first. If a timer is armed for now during this call, it waits for
        the next call."""
        fired = []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, _, timer = heapq.heappop(self._heap)
            if self._armed.get(timer) == due_ms:
                del self._armed[timer]
                fired.append(timer)
        return iter(fired)

    def next_ms(self) -> float:
        """The time at which the next timer is due. Infinity if none is armed."""
        while self._heap and self._armed.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf


@dataclass(slots=True)
class ReplicationContext:
    """The state that all replicas of one broker share. There is one per broker."""

    broker_id: int
    settings: ReplicationSettings
    level: ClusterLevel
    broker_epoch: int | None = None
    session_ends_ms: float = -math.inf  # the end of the session with the controller, by our clock (rules/fencing.py)
    led_until_ms: float = -math.inf  # the sending of the last answered heartbeat: till then each leader here was true
    doubted: set[PartitionKey] = field(default_factory=set)  # led here, but a reader has a position above our end
    incarnations: dict[int, BrokerIncarnation] = field(default_factory=dict)
    timers: Timers = field(default_factory=Timers)
    effects: list[Effect] = field(default_factory=list)
    throttles: dict[int, ReplicationThrottle] = field(default_factory=dict)  # by rate
    watched: Counter[PartitionKey] = field(default_factory=Counter)  # the calls that wait for a stable offset
    disk_answers: bool = True  # while it is False, no follower here asks to join an ISR
    waiting_bytes: int = 0  # the bytes of the batches that wait for the coordinators of their transactions
    copy_checks: CopyChecks = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        self.copy_checks = CopyChecks(self.emit, self.settings.message_bytes)

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def stable_offset_moved(self, key: PartitionKey) -> None:
        """Report that there may be news of the stable offset, if a call waits for it."""
        if key in self.watched:
            self.emit(StableOffsetMoved(key))

    def next_number(self) -> int:
        """A new number for a question, unique in this life. By it a late answer cannot pass for a later question's."""
        self._number += 1
        return self._number

    def throttle(self, rate_bytes_per_second: int) -> ReplicationThrottle:
        """The throttle that all replicas of this rate share."""
        return self.throttles.setdefault(rate_bytes_per_second, ReplicationThrottle(rate_bytes_per_second))
