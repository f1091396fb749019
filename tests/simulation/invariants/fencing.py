"""Silence fences after one session time-out, and who stood still blames nobody: docs/spec/quorum.md § Clocks and own
delays (mutant 30). Beside V20, for brokers.

A controller fences no live broker that listens before it has not heard it for one session time-out, counted from the
last heartbeat that it took, or from the registration. A new controller begins with that for everybody; of whose broker
led the quorum before a third may be over. Time in which its own process stood still for long is no part of it; pauses
that are a small part of the time-out are (replication/rules/own_delay.py).

And silence does fence: whom a controller has not heard for a session time-out and some more, of which it was awake all
the time, is fenced, however often it stood still between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minilog_broker.controller.image import MetadataImage
from tests.simulation.invariants.violation import Violation

LONG_PAUSE = 0.3  # of the session time-out: a tick is due a thirtieth of it at the latest, and late by a quarter
FULL_PERIOD = 0.9  # a little less than one: clocks and ticks do not meet exactly
NEVER_HEARD_PERIOD = 0.6  # the same of two thirds
OVERDUE = 1.3

Tenure = tuple[int, int]  # of a controller: its node and epoch


@dataclass(slots=True)
class Fencing:
    """See the module's text. Times are virtual milliseconds; `awake`: without the long pauses of that node; `running`:
    without any."""

    session_timeout_ms: float
    _paused_ms: dict[int, float] = field(default_factory=dict)  # since when
    _stood_still_ms: dict[int, float] = field(default_factory=dict)  # for how long, in all its long pauses
    _all_pauses_ms: dict[int, float] = field(default_factory=dict)
    _began_ms: dict[Tenure, tuple[float, float]] = field(default_factory=dict)  # awake, running
    _heard_ms: dict[tuple[Tenure, int, int], tuple[float, float]] = field(default_factory=dict)  # the same, of a life
    _fenced: dict[Tenure, frozenset[tuple[int, int]]] = field(default_factory=dict)  # lives

    def saw(self, node_id: int, paused: bool, now_ms: float) -> bool:
        """Whether the process of a node is stopped now; True where that has changed."""
        since_ms = self._paused_ms.get(node_id)
        if paused == (since_ms is not None):
            return False
        if paused:
            self._paused_ms[node_id] = now_ms
            return True
        del self._paused_ms[node_id]
        self._all_pauses_ms[node_id] = self._all_pauses_ms.get(node_id, 0.0) + now_ms - (since_ms or now_ms)
        if since_ms is not None and now_ms - since_ms > LONG_PAUSE * self.session_timeout_ms:
            self._stood_still_ms[node_id] = self._stood_still_ms.get(node_id, 0.0) + now_ms - since_ms
        return True

    def running_ms(self, node_id: int, now_ms: float) -> float:
        """A clock that stands still whenever the node does."""
        return now_ms - self._all_pauses_ms.get(node_id, 0.0)

    def _clocks_ms(self, node_id: int, now_ms: float) -> tuple[float, float]:
        return now_ms - self._stood_still_ms.get(node_id, 0.0), self.running_ms(node_id, now_ms)

    def heard(self, tenure: Tenure, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """A controller takes a heartbeat of a life."""
        self._heard_ms[tenure, broker_id, broker_epoch] = self._clocks_ms(tenure[0], now_ms)

    def check(self, tenure: Tenure, image: MetadataImage, alive: Mapping[int, int | None], now_ms: float) -> None:
        """After a decision of a controller. `alive`: the broker epochs of processes that live and listen."""
        awake_ms, running_ms = clocks_ms = self._clocks_ms(tenure[0], now_ms)
        began_ms = self._began_ms.setdefault(tenure, clocks_ms)
        fenced = frozenset((b.broker_id, b.broker_epoch) for b in image.brokers.values() if b.fenced)
        before = self._fenced.get(tenure)
        self._fenced[tenure] = fenced
        if before is None:
            return
        for broker_id, epoch in fenced - before:
            heard_ms = self._heard_ms.get((tenure, broker_id, epoch))
            silent_ms = awake_ms - (heard_ms or began_ms)[0]
            share = NEVER_HEARD_PERIOD if heard_ms is None else FULL_PERIOD
            if alive.get(broker_id) == epoch and silent_ms <= share * self.session_timeout_ms:
                text = f"node {tenure[0]} fences broker {broker_id}, which lives, for {silent_ms:.0f} ms of silence"
                raise Violation("V20", text, nodes=(*tenure[:1], broker_id))
        for broker in image.brokers.values():
            silent_ms = running_ms - self._heard_ms.get((tenure, broker.broker_id, broker.broker_epoch), began_ms)[1]
            if not broker.fenced and silent_ms > OVERDUE * self.session_timeout_ms:
                text = f"node {tenure[0]} has not heard broker {broker.broker_id} for {silent_ms:.0f} ms, and does not "
                raise Violation("session", f"{text}fence it", nodes=(*tenure[:1], broker.broker_id))
