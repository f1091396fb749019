"""The times at which brokers were heard. Silence fences a broker, but not by the judgement of a process that stood
still.

The time in which the controller's own process stood still does not count (replication/rules/own_delay.py). A new
controller gives each broker a full period. Times are this process's monotonic clock, in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from minilog_broker.replication.rules.own_delay import excused, own_delay_ms

_LIVES_ON_TIMEOUTS = 10  # session time-outs in which a refused connection proves nothing
_TICKS_PER_TIMEOUT = 30  # the controller notices silence at most a thirtieth of the time-out late


class Liveness:
    """The last sign of life of each broker. One per term of a controller. Times are its monotonic clock, in
    milliseconds."""

    def __init__(self, session_timeout_ms: float, now_ms: float, unfenced: Iterable[int]) -> None:
        self._timeout_ms = session_timeout_ms
        self._began_ms = now_ms
        self._heard = dict.fromkeys(unfenced, now_ms)
        self._spoke: set[int] = set()
        self._probed: dict[int, float] = {}
        self._died: set[int] = set()
        self._lives_on_until_ms: dict[int, float] = {}  # of brokers that were heard again after they counted as dead
        self._due_ms = now_ms + self._interval_ms

    def silent_before(self, broker_id: int, silent_ms: float, now_ms: float) -> None:
        """Note that a broker was silent for `silent_ms` before the term. A third of the time-out counts at most."""
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
        """Note a new life."""
        self._died.discard(broker_id)
        self._lives_on_until_ms.pop(broker_id, None)
        self.heard(broker_id, now_ms)

    def has_spoken(self, broker_id: int) -> bool:
        """Whether the broker was heard in this controller's term. Of others it is not known that they are there at
        all."""
        return broker_id in self._spoke

    def is_silent(self, broker_id: int, now_ms: float) -> bool:
        """Whether the broker was not heard for a session time-out, or since it died, or never in this controller's
        term."""
        heard_ms = self._heard.get(broker_id)
        return heard_ms is None or now_ms - heard_ms >= self._timeout_ms

    def is_gone(self, broker_id: int, now_ms: float) -> bool:
        """Whether the broker is dead for certain, or was not heard for a session time-out of this term.

        A broker that this controller never heard may have registered with the former one, and be starting. Its time-out
        begins with the term.
        """
        heard_ms = self._heard.get(broker_id, self._began_ms)
        return broker_id in self._died or now_ms - heard_ms >= self._timeout_ms

    def probed(self, broker_id: int, now_ms: float) -> None:
        self._probed[broker_id] = now_ms

    def take_probe(self, broker_id: int, now_ms: float) -> bool:
        """Whether a probe was sent and the broker was not heard since. For a while it is never true of a life that was
        heard after it counted as dead: such a life refuses connections, and lives."""
        refuses_and_lives = now_ms < self._lives_on_until_ms.get(broker_id, -math.inf)
        return self._probed.pop(broker_id, None) is not None and not refuses_and_lives

    def died(self, broker_id: int) -> None:
        """Note that the process is dead for certain: no need to wait for its silence."""
        self._heard.pop(broker_id, None)
        self._died.add(broker_id)

    def tick(self, unfenced: Iterable[int], now_ms: float) -> list[int]:
        """The brokers of `unfenced` that were silent for too long."""
        if now_ms < self._due_ms:
            return []
        delay_ms = own_delay_ms(self._due_ms, now_ms, self._timeout_ms)
        self._due_ms = now_ms + self._interval_ms
        if delay_ms > 0:
            self._heard = {
                broker_id: excused(heard_ms, delay_ms, now_ms) for broker_id, heard_ms in self._heard.items()
            }
            self._began_ms = excused(self._began_ms, delay_ms, now_ms)
        return [broker_id for broker_id in sorted(unfenced) if self.is_silent(broker_id, now_ms)]
