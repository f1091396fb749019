"""Bounds of time that count only the time in which the event loop ran.

A program may hold its event loop, by a long computation or a blocking call. Meanwhile answers wait unread, and the
other side is not to blame. So such a bound looks at the clock in short steps. A look that comes late shows how long the
loop stood still, and that time does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

_LOOK_S = 0.5  # the longest time between two looks
_LEAST_S = 0.001  # less is nothing: sums of floats are not exact
_LATE_S = 0.1  # of a busy loop: so much lateness of one look counts as time in which the loop ran
_TOLD_S = 0.5  # a shorter hold explains nothing


class RunningTime:
    """What is left of a bound. Pure."""

    def __init__(self, within_s: float, now_s: float) -> None:
        self.within_s = within_s
        self.held_s = 0.0
        """The time in which the loop stood still."""
        self._left_s = within_s
        self._looked_s = now_s
        self.pause_s = min(_LOOK_S, within_s)
        """The time until the next look."""

    def look(self, now_s: float) -> bool:
        """Whether the time is over."""
        passed_s = now_s - self._looked_s
        ran_s = min(passed_s, self.pause_s + _LATE_S)
        self.held_s += passed_s - ran_s
        self._left_s -= ran_s
        self._looked_s = now_s
        self.pause_s = min(_LOOK_S, self._left_s)
        return self._left_s < _LEAST_S

    def __str__(self) -> str:
        if self.held_s < _TOLD_S:
            return f"within {self.within_s:g} s"
        return (
            f"within {self.within_s:g} s, beside {self.held_s:.1f} s in which this program held its event loop: let it "
            "run long computations and blocking calls in threads"
        )


@contextlib.asynccontextmanager
async def running_within(within_s: float) -> AsyncIterator[RunningTime]:
    """Bound a block by so much time in which the event loop runs. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    left = RunningTime(within_s, loop.time())
    async with asyncio.timeout(None) as bound:  # wait_for may drop a cancellation (Python 3.11)
        looks: list[asyncio.TimerHandle] = []  # the next one

        def look() -> None:
            if left.look(loop.time()):
                bound.reschedule(loop.time())
            else:
                looks[:] = [loop.call_later(left.pause_s, look)]

        looks.append(loop.call_later(left.pause_s, look))
        try:
            yield left
        finally:
            looks[-1].cancel()
