"""The guard that decides whether retention may delete by the wall clock (docs/spec/replication.md § Deleting records).

Two clocks run side by side. The process notes their difference at its start.

    state        entered when                                            deletes by age    left by
    TRUSTED      the process starts                                      yes               a jump of more than an hour
    SUSPENDED    the wall clock jumped against the monotonic one         no                the jump is undone, to within
                                                                                           an hour, or the next start

Only age is in doubt: retention still deletes records above retention.bytes. Pure: both clocks come in as arguments.
"""

from __future__ import annotations

import enum

MAX_JUMP_S = 3600.0


class ClockNews(enum.Enum):
    """A change that a look at the clocks showed. The broker logs it once."""

    NOTHING = enum.auto()
    JUMPED = enum.auto()
    RESUMED = enum.auto()


class ClockGuard:
    """The comparison of the wall clock with the monotonic clock.

    `monotonic_s` must count the time in which the machine sleeps. Else the guard takes a sleep for a jump.
    """

    def __init__(self, *, wall_s: float, monotonic_s: float) -> None:
        self._difference_s = wall_s - monotonic_s
        self.jump_s = 0.0
        self.trusted = True

    def look(self, *, wall_s: float, monotonic_s: float) -> ClockNews:
        """Compare the clocks, and set `trusted` and `jump_s` accordingly. Returns the change since the last look."""
        self.jump_s = wall_s - monotonic_s - self._difference_s
        before, self.trusted = self.trusted, abs(self.jump_s) <= MAX_JUMP_S
        if before == self.trusted:
            return ClockNews.NOTHING
        return ClockNews.RESUMED if self.trusted else ClockNews.JUMPED
