"""Who was heard when: silence fences, but never by the judgement of a process that itself stood still.

The time in which its own process stood still does not count (replication/rules/own_delay.py); a new controller gives
everybody a full period. Times are this process's monotonic clock, in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from minilog_broker.replication.rules.own_delay import excused, own_delay_ms

_LIVES_ON_TIMEOUTS = 10  # for so many session time-outs a refused connection proves nothing
_TICKS_PER_TIMEOUT = 30  # silence is noticed at most a thirtieth of the time-out late


class Liveness:
    """Times are the controller's monotonic clock, in milliseconds. One per term of a controller."""

    def __init__(self, session_timeout_ms: float, now_ms: float, unfenced: Iterable[int]) -> None:
        self._timeout_ms = session_timeout_ms
        self._began_ms = now_ms
        self._heard = dict.fromkeys(unfenced, now_ms)
        self._spoke: set[int] = set()
        self._probed: dict[int, float] = {}
        self._died: set[int] = set()
        self._lives_on_until_ms: dict[int, float] = {}  # of whom was heard again in the life that was taken for dead
        self._due_ms = now_ms + self._interval_ms

    def silent_before(self, broker_id: int, silent_ms: float, now_ms: float) -> None:
        """It was silent already when we began: for `silent_ms`, of which a third of the time-out counts at most."""
        if broker_id in self._heard:
            self._heard[broker_id] = now_ms - min(silent_ms, self._timeout_ms / 3)

    @property
    def _interval_ms(self) -> float:
        return self._timeout_ms / _TICKS_PER_TIMEOUT

    @property
    def next_tick_ms(self) -> float:
        return self._due_ms

    def heard(self, broker_id: int, now_ms: float) -> None:
        self._heard[broker_id] = now_ms
        self._spoke.add(broker_id)
        self._probed.pop(broker_id, None)
        if broker_id in self._died:
            self._died.discard(broker_id)
            self._lives_on_until_ms[broker_id] = now_ms + _LIVES_ON_TIMEOUTS * self._timeout_ms

    def registered(self, broker_id: int, now_ms: float) -> None:
        """A new life."""
        self._died.discard(broker_id)
        self._lives_on_until_ms.pop(broker_id, None)
        self.heard(broker_id, now_ms)

    def has_spoken(self, broker_id: int) -> bool:
        """Whether it was heard in this controller's term: of others it is not known that they are there at all."""
        return broker_id in self._spoke

    def is_silent(self, broker_id: int, now_ms: float) -> bool:
        """Not heard for a session time-out, or since it died, or never in this controller's term."""
        heard_ms = self._heard.get(broker_id)
        return heard_ms is None or now_ms - heard_ms >= self._timeout_ms

    def is_gone(self, broker_id: int, now_ms: float) -> bool:
        """Dead for certain, or not heard for a session time-out of this term. A broker that this controller never heard
        may have registered with the one before, and be starting: its time-out begins with the term."""
        heard_ms = self._heard.get(broker_id, self._began_ms)
        return broker_id in self._died or now_ms - heard_ms >= self._timeout_ms

    def probed(self, broker_id: int, now_ms: float) -> None:
        self._probed[broker_id] = now_ms

    def take_probe(self, broker_id: int, now_ms: float) -> bool:
        """Whether a probe was sent and nothing was heard since; for a while never of a life that was heard after it had
        been taken for dead: it refuses connections, and lives."""
        refuses_and_lives = now_ms < self._lives_on_until_ms.get(broker_id, -math.inf)
        return self._probed.pop(broker_id, None) is not None and not refuses_and_lives

    def died(self, broker_id: int) -> None:
        """Its process is dead for certain: nobody waits until it has been silent."""
        self._heard.pop(broker_id, None)
        self._died.add(broker_id)

    def tick(self, unfenced: Iterable[int], now_ms: float) -> list[int]:
        """Those of `unfenced` that were silent for too long."""
        if now_ms < self._due_ms:
            return []
        delay_ms = own_delay_ms(self._due_ms, now_ms, self._timeout_ms)
        self._due_ms = now_ms + self._interval_ms
        if delay_ms > 0:
            self._heard = {each: excused(heard_ms, delay_ms, now_ms) for each, heard_ms in self._heard.items()}
            self._began_ms = excused(self._began_ms, delay_ms, now_ms)
        return [broker_id for broker_id in sorted(unfenced) if self.is_silent(broker_id, now_ms)]
