"""One process: what runs in it, when it is stopped, and its own clock.

A broker's life is a process; a simulated client is another. Everything that happens in it goes through `run` or
`after`: a dead process does nothing any more, a stopped one (SIGSTOP) does it all when it goes on, late. An error that
ends a real broker (its own, the disk's, or power lost under it) goes to `on_failed`; any other is a bug, and is raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from minilog.errors import MinilogError
from minilog_broker.storage.errors import CorruptFile, DataDirectoryError
from tests.simulation.disk import Death
from tests.simulation.events import Action, Scheduler

EPOCH_US = 1_700_000_000_000_000  # wall clock at virtual time 0
FATAL = (Death, MinilogError, OSError, CorruptFile, DataDirectoryError)


class Process:
    """See the module's text. `now_ms` is its monotonic clock: another origin than any other process's."""

    __slots__ = ("_held", "_touched", "alive", "endpoint_id", "on_failed", "origin_ms", "paused", "scheduler")

    def __init__(
        self, scheduler: Scheduler, endpoint_id: int, origin_ms: float, touched: dict[int, None] | None = None
    ) -> None:
        self.scheduler = scheduler
        self.endpoint_id = endpoint_id
        self.origin_ms = origin_ms
        self.alive = True
        self.paused = False
        self.on_failed: Callable[[BaseException], None] | None = None
        self._held: list[tuple[Action, Any]] = []
        self._touched = {} if touched is None else touched

    @property
    def now_ms(self) -> float:
        """The monotonic clock of this process, in milliseconds."""
        return self.scheduler.now_ms + self.origin_ms

    def run(self, action: Action, argument: Any = None) -> None:
        """Do it now; later where the process is stopped; never where it is dead."""
        self._run_pair((action, argument))

    def after(self, delay_ms: float, action: Action, argument: Any = None) -> None:
        """Do it in `delay_ms` of virtual time."""
        self.scheduler.after(delay_ms, self._run_pair, (action, argument))

    def _run_pair(self, pair: tuple[Action, Any]) -> None:
        if self.paused:
            self._held.append(pair)
        elif self.alive:
            self._touched[self.endpoint_id] = None
            try:
                pair[0](pair[1])
            except FATAL as error:
                if self.on_failed is None:
                    raise
                self.on_failed(error)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Go on: all that came meanwhile is done in the order in which it came, each as an event of its own."""
        self.paused = False
        held, self._held = self._held, []
        for index, pair in enumerate(held):
            self.scheduler.after(index * 0.001, self._run_pair, pair)

    def end(self) -> None:
        """Killed: nothing of it runs any more."""
        self.alive = False
        self.paused = False
        self._held.clear()


class CoreTimer:
    """Calls `tick` in the process when `next_tick_ms` says so. `arm` after every event, as server/runtime/timer.py."""

    __slots__ = ("_due_ms", "_next_tick_ms", "_number", "_process", "_running", "_tick", "lateness_ms")

    def __init__(self, process: Process, next_tick_ms: Callable[[], float], tick: Callable[[], None]) -> None:
        self._process = process
        self._next_tick_ms = next_tick_ms
        self._tick = tick
        self._due_ms = math.inf
        self._number = 0  # of the timer that counts: one armed for earlier replaces it
        self._running = False
        self.lateness_ms = 0.2

    def start(self) -> None:
        self._running = True
        self.arm()

    def arm(self) -> None:
        due_ms = self._next_tick_ms()
        if due_ms >= self._due_ms or not self._running:
            return
        self._due_ms = due_ms
        self._number += 1
        delay_ms = due_ms - self._process.now_ms
        self._process.after(max(delay_ms, 1.0) + self.lateness_ms, self._fire, self._number)

    def _fire(self, number: int) -> None:
        if number == self._number and self._running:
            self._due_ms = math.inf
            self._tick()
            self.arm()

    def stop(self) -> None:
        self._running = False
