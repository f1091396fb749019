"""This process's clock, and the timer that wakes a core when it is due."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


def now_ms() -> float:
    """The monotonic clock of the running event loop, in milliseconds. It is never compared with another process's."""
    return asyncio.get_running_loop().time() * 1000.0


class CoreTimer:
    """Calls `tick` at `next_tick_ms`. Call `arm` after every event: each may have made the core due earlier."""

    def __init__(self, next_tick_ms: Callable[[], float], tick: Callable[[], None]) -> None:
        self._next_tick_ms = next_tick_ms
        self._tick = tick
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = math.inf
        self._running = False

    def start(self) -> None:
        self._running = True
        self.arm()

    def arm(self) -> None:
        due_ms = self._next_tick_ms()
        if not self._running or due_ms >= self._due_ms:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._due_ms = due_ms
        delay_s = max(due_ms - now_ms(), 1.0) / 1000.0
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._handle, self._due_ms = None, math.inf
        self._tick()
        self.arm()

    def stop(self) -> None:
        self._running = False
        if self._handle is not None:
            self._handle.cancel()
