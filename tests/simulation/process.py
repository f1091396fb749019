"""One process: what runs in it, when it is stopped, and its own clock.

A broker's life is a process; a simulated client is another. Everything that happens in it goes through `run`: a dead
process does nothing any more, a stopped one (SIGSTOP) does it all when it goes on, late.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.events import Action, Scheduler

EPOCH_US = 1_700_000_000_000_000  # wall clock at virtual time 0


class Process:
    """See the module's text. `now_ms` is its monotonic clock: another origin than any other process's."""

    __slots__ = ("_held", "alive", "endpoint_id", "origin_ms", "paused", "scheduler")

    def __init__(self, scheduler: Scheduler, endpoint_id: int, origin_ms: float) -> None:
        self.scheduler = scheduler
        self.endpoint_id = endpoint_id
        self.origin_ms = origin_ms
        self.alive = True
        self.paused = False
        self._held: list[tuple[Action, Any]] = []

    @property
    def now_ms(self) -> float:
        """The monotonic clock of this process, in milliseconds."""
        return self.scheduler.now_ms + self.origin_ms

    def run(self, action: Action, argument: Any = None) -> None:
        """Do it now; later where the process is stopped; never where it is dead."""
        if self.paused:
            self._held.append((action, argument))
        elif self.alive:
            action(argument)

    def after(self, delay_ms: float, action: Action, argument: Any = None) -> None:
        """Do it in `delay_ms` of virtual time."""
        self.scheduler.after(delay_ms, self._run_pair, (action, argument))

    def _run_pair(self, pair: tuple[Action, Any]) -> None:
        if self.paused:
            self._held.append(pair)
        elif self.alive:
            pair[0](pair[1])

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
