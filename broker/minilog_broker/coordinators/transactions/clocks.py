"""When open transactions time out: nothing was heard of their writers for as long as they asked for.

A clock begins anew at every enlistment, registration and keep-alive. A coordinator that is new gives everybody a full
period; the time in which its own process stood still does not count (replication/rules/own_delay.py). Times are this
process's monotonic clock.
"""

from __future__ import annotations

import math

from minilog_broker.replication.rules.own_delay import excused, own_delay_ms

_TICKS_PER_TIMEOUT = 30  # silence is noticed at most a thirtieth of the shortest time-out late


class Clocks:
    """By transactional id. A tick that is late itself excuses everybody for so long."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, float]] = {}  # when, and the time-out
        self._due_ms = math.inf

    def clear(self) -> None:
        self._heard.clear()
        self._due_ms = math.inf

    def heard(self, transactional_id: str, timeout_ms: float, now_ms: float) -> None:
        """It is open, and somebody of it lives."""
        self._heard[transactional_id] = (now_ms, timeout_ms)
        self._due_ms = min(self._due_ms, now_ms + self._interval_ms)

    def stop(self, transactional_id: str) -> None:
        """Nothing of it is open."""
        if self._heard.pop(transactional_id, None) is not None and not self._heard:
            self._due_ms = math.inf

    def silent_ms(self, transactional_id: str, now_ms: float) -> float | None:
        """Since the last sign of life; None where it is not open."""
        heard = self._heard.get(transactional_id)
        return None if heard is None else now_ms - heard[0]

    @property
    def next_tick_ms(self) -> float:
        return self._due_ms

    def tick(self, now_ms: float) -> list[str]:
        """Those that were silent for too long."""
        if now_ms < self._due_ms or not self._heard:
            return []
        delay_ms = own_delay_ms(self._due_ms, now_ms, self._shortest_ms)
        self._due_ms = now_ms + self._interval_ms
        if delay_ms > 0:
            signs = self._heard.items()
            self._heard = {
                transactional_id: (excused(heard_ms, delay_ms, now_ms), out_ms)
                for transactional_id, (heard_ms, out_ms) in signs
            }
        return sorted(
            transactional_id
            for transactional_id, (heard_ms, timeout_ms) in self._heard.items()
            if now_ms - heard_ms >= timeout_ms
        )

    @property
    def _shortest_ms(self) -> float:
        return min(timeout_ms for _, timeout_ms in self._heard.values())

    @property
    def _interval_ms(self) -> float:
        return self._shortest_ms / _TICKS_PER_TIMEOUT
