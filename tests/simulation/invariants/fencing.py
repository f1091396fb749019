"""Who stood still blames nobody: docs/spec/quorum.md § Clocks and own delays (mutant 30). Beside V20, for brokers.

A controller whose process was stopped longer than a quarter of the session time-out fences no live broker by silence
before that broker was silent for one session time-out, of which the time that the controller stood still is no part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from minilog_broker.controller.image import MetadataImage
from tests.simulation.invariants.violation import Violation

LONG_PAUSE = 0.4  # of the session time-out: a tick is due a tenth of it at the latest, and late by a quarter
FULL_PERIOD = 0.9  # a little less than one: clocks and ticks do not meet exactly


@dataclass(slots=True)
class Fencing:
    """See the module's text. Times are virtual milliseconds."""

    session_timeout_ms: float
    _paused_ms: dict[int, float] = field(default_factory=dict)  # since when
    _woken_ms: dict[int, float] = field(default_factory=dict)  # from a long pause
    _silent_ms: dict[int, dict[int, float]] = field(default_factory=dict)  # of whom, by broker, when it stood still
    _fenced: dict[tuple[int, int], frozenset[tuple[int, int]]] = field(default_factory=dict)  # lives, by tenure

    def saw(self, node_id: int, paused: bool, silent_ms: Mapping[int, float], now_ms: float) -> bool:
        """Whether the process of a node is stopped now; True where that has changed. `silent_ms`: for how long its
        controller has not heard whom."""
        since_ms = self._paused_ms.get(node_id)
        if paused == (since_ms is not None):
            return False
        if paused:
            self._paused_ms[node_id] = now_ms
            self._silent_ms[node_id] = dict(silent_ms)
            return True
        del self._paused_ms[node_id]
        if since_ms is not None and now_ms - since_ms > LONG_PAUSE * self.session_timeout_ms:
            self._woken_ms[node_id] = now_ms
        return True

    def check(
        self, tenure: tuple[int, int], image: MetadataImage, alive: Mapping[int, int | None], now_ms: float
    ) -> None:
        """After a decision of a controller. `tenure`: its node and epoch; `alive`: broker epochs of live processes."""
        fenced = frozenset((b.broker_id, b.broker_epoch) for b in image.brokers.values() if b.fenced)
        before = self._fenced.get(tenure)
        self._fenced[tenure] = fenced
        woken_ms = self._woken_ms.get(tenure[0])
        if before is None or woken_ms is None:
            return
        for broker_id, epoch in fenced - before:
            silent_ms = now_ms - woken_ms + self._silent_ms[tenure[0]].get(broker_id, math.inf)
            if alive.get(broker_id) == epoch and silent_ms <= FULL_PERIOD * self.session_timeout_ms:
                since = f"node {tenure[0]} woke {now_ms - woken_ms:.0f} ms ago"
                raise Violation(
                    "V20", f"{since} and fences broker {broker_id}, which lives", nodes=(*tenure[:1], broker_id)
                )
