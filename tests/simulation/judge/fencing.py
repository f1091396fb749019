"""Silence fences after a session time-out, and who stood still blames nobody: quorum.md, Clocks and own delays.

heard      a heartbeat of a life came to the program of the controller. A leader of the quorum that is not active yet
           refuses it (NOT_CONTROLLER), and has not heard it
awake      time without the long pauses of the controller's process; running: without any
V20        no controller fences whom it heard less than a session time-out ago, awake, or less than two thirds of one
           after its own election; but where a process was refused a connection, nothing listens
session    whom a controller whose disk is well has not heard for a session time-out and some more, running, is fenced
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from minilog.v1 import common_pb2
from minilog.v1.records_pb2 import BrokerStateRecord
from tests.judges.violation import Violation
from tests.simulation.judge.hearing import Lead
from tests.simulation.judge.registrations import Decision
from tests.simulation.machines.machine import EPOCH_S

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.judge.metadata import Metadata
    from tests.simulation.machines.host import SimulatedHost
    from tests.simulation.machines.wire import Said

SESSION_TIMEOUT = "broker.session.timeout.ms"
LONG_PAUSE = 0.3  # of the session time-out: a tick is due a thirtieth of it at the latest, and late by a quarter
FULL_PERIOD = 0.9  # a little less than one: clocks and ticks do not meet exactly
NEVER_HEARD_PERIOD = 0.6  # the same of two thirds
OWN_SHARE = 1.5  # a controller promises its own broker two thirds
REFUSED_S = 1.0  # from a refusal to the decision that rests on it
LATEST_S = 30.0  # from a decision until it is known to be committed; more is another clock
ACTIVE_S = 1.0  # who answered a heartbeat so lately is the controller
HARMLESS = {"stands still", "cut", "slow link", "lossy link", "refuses"}  # a controller decides nevertheless
OVERDUE, OVERDUE_S = 1.3, 1.0  # and until it is decided, and on a disk
ROUNDED_S = 2e-6  # a wall clock is rounded down to microseconds
KEPT = 400  # heartbeats of a life: more than in LATEST_S
_HEARTBEAT = "/minilog.v1.PeerService/Heartbeat"


class Fencing:
    """Hears heartbeats and committed fencings; looks five times a second."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        configured = [*cluster.plan.configs.values()]
        others = cluster.plan.other_configs.get(SESSION_TIMEOUT, ())
        told_ms = [int(each[SESSION_TIMEOUT]) for each in configured if SESSION_TIMEOUT in each]
        self._least_s = min([*told_ms, *map(int, others)], default=3_000) / 1e3
        self._timeout_s: dict[int, float] = {}  # by quorum epoch, as its controller tells
        self._lives: weakref.WeakKeyDictionary[Said, tuple[int, int]] = weakref.WeakKeyDictionary()
        self._came_s: weakref.WeakKeyDictionary[Said, float] = weakref.WeakKeyDictionary()
        self._heard_s: dict[tuple[str, int], deque[float]] = {}  # by controller and broker epoch
        self._answered_s: dict[int, float] = {}  # by quorum epoch

    # -- what is said

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent."""
        if call.method != _HEARTBEAT:
            return
        if not answers:
            self._lives[call] = message.broker_id, message.broker_epoch
        elif message.error.code == common_pb2.ERROR_CODE_NONE and call in self._lives:
            own = self._cluster.hosts[self._lives[call][0]].name == call.host
            told_s = message.session_timeout_ms / 1e3 * (OWN_SHARE if own else 1.0)
            self._timeout_s[message.controller_epoch] = told_s
            self._answered_s[message.controller_epoch] = self._cluster.now_s
        elif message.error.code == common_pb2.ERROR_CODE_NOT_CONTROLLER and call in self._came_s:
            times, came_s = self._heard_s[call.host, self._lives[call][1]], self._came_s.pop(call)
            if came_s in times:
                times.remove(came_s)

    def heard(self, call: Said, answers: bool | None) -> None:
        """A message has come, or the connection broke."""
        if answers is False and (life := self._lives.get(call)) is not None:
            self._came_s[call] = self._cluster.now_s
            self._heard_s.setdefault((call.host, life[1]), deque(maxlen=KEPT)).append(self._cluster.now_s)

    # -- nobody too early

    def fenced(self, state: BrokerStateRecord, decision: Decision) -> None:
        """It is committed that a life is fenced."""
        controller = self._cluster.hosts[decision.controller_id]
        decided_s, elected_s = (self._true_s(controller, us) for us in (decision.decided_us, decision.elected_us))
        now_s = self._cluster.now_s
        if not max(now_s - LATEST_S, elected_s, controller.started_s) <= decided_s <= now_s + 2 * ROUNDED_S:
            return  # its wall clock has jumped, or it is another life by now
        broker = self._cluster.hosts[state.broker_id]
        if self._cluster.network.refused_s.get((controller.name, broker.name), -1e9) > decided_s - REFUSED_S:
            return
        times = self._heard_s.get((controller.name, state.broker_epoch), ())
        before_s = decided_s - 2 * ROUNDED_S  # of one moment nobody knows what came first
        heard_s = max((each for each in times if elected_s <= each < before_s), default=None)
        timeout_s = self._timeout_s.get(decision.quorum_epoch, self._least_s)
        since_s = elected_s if heard_s is None else heard_s
        awake_s = decided_s - since_s - paused_s(controller, since_s, decided_s, LONG_PAUSE * timeout_s)
        if awake_s <= timeout_s * (NEVER_HEARD_PERIOD if heard_s is None else FULL_PERIOD):
            text = f"{controller.name} fences b{state.broker_id} for {awake_s:.3f} s of silence in which it was awake, "
            text += f"its session time-out is {timeout_s:.1f} s"
            raise Violation("V20", text)

    def _true_s(self, host: SimulatedHost, wall_us: int) -> float:
        offset_us = host.wall_offset_us if host.machine is None else host.machine.wall_offset_us
        return (wall_us - offset_us) / 1e6 - EPOCH_S + ROUNDED_S

    # -- nobody too late

    def look(self, lead: Lead | None, metadata: Metadata) -> None:
        """Whom the controller does not hear."""
        if lead is None or self._cluster.now_s - self._answered_s.get(lead.epoch, -1e9) > ACTIVE_S:
            return
        controller, overdue_s = self._cluster.hosts[lead.number], OVERDUE * self._timeout_s[lead.epoch] + OVERDUE_S
        process = controller.process
        if process is None or process.stands_still or controller.lives != lead.life or controller.ailments - HARMLESS:
            return
        now_s = self._cluster.now_s
        for number, life in metadata.registrations.lives.items():
            times = self._heard_s.get((controller.name, life.broker_epoch))
            since_s = max(lead.since_s, times[-1] if times else -1e9)
            if life.fenced or now_s - since_s <= overdue_s:
                continue
            running_s = now_s - since_s - paused_s(controller, since_s, now_s, 0.0)
            if running_s > overdue_s and not metadata.later_of(number, controller.number):
                text = f"{controller.name} has not heard b{number} for {running_s:.1f} s, and does not fence it"
                raise Violation("session", text)


def paused_s(host: SimulatedHost, since_s: float, until_s: float, longer_than_s: float) -> float:
    """For how long the process of a host stood still between the two, in pauses longer than that."""
    pauses_s = host.process.pauses_s if host.process is not None else []
    return sum(
        min(end_s, until_s) - max(begin_s, since_s)
        for begin_s, end_s in pauses_s
        if end_s - begin_s > longer_than_s and begin_s < until_s and end_s > since_s
    )
