"""Virtual time: a heap of events, run one after another in one thread. Nothing else moves time or does anything.

An event is a function and one argument, due at a time in virtual milliseconds. Two events of the same time run in the
order in which they were scheduled; so a run is a function of its seed alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[[Any], None]


class Scheduler:
    """See the module's text. `now_ms` is virtual time since the beginning; `run` counts events."""

    __slots__ = ("_count", "_heap", "now_ms", "run")

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.run = 0
        self._heap: list[tuple[float, int, Action, Any]] = []
        self._count = 0

    def at(self, due_ms: float, action: Action, argument: Any = None) -> None:
        """Run `action(argument)` at `due_ms`, or now where that is past."""
        self._count += 1
        heapq.heappush(self._heap, (due_ms if due_ms > self.now_ms else self.now_ms, self._count, action, argument))

    def after(self, delay_ms: float, action: Action, argument: Any = None) -> None:
        """Run `action(argument)` in `delay_ms` from now."""
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._count, action, argument))

    def step(self) -> bool:
        """Run the next event; False where there is none."""
        if not self._heap:
            return False
        self.now_ms, _, action, argument = heapq.heappop(self._heap)
        self.run += 1
        action(argument)
        return True

    @property
    def next_ms(self) -> float:
        """When the next event is due; infinity where there is none."""
        return self._heap[0][0] if self._heap else float("inf")
