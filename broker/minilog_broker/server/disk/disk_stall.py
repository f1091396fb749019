"""The check whether a disk answers: a leader has the same lag time as its followers.

A call that does not return (a dying disk, a lost volume, a network file system) raises no error, and the broker's other
threads go on. Without this check the broker would lead for ever without being able to append. So its heartbeats report
the stall, and the controller treats the disk like a full one: another broker leads where one can, and no ISR waits for
this one (controller/brokers.py). When the call returns, the broker follows and comes back in sync.

Reads count like the calls of the disk's own thread, when all reading threads hang: one bad file is no bad disk.

Disks that hang together (one storage system) are reported one after the other. The controller hands nothing over to a
broker with a slow disk, which may be stalled a moment later.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

SLOW_SHARE = 1 / 2  # of the lag time: disks that hang together are all slow before the first one is stalled
LOOK_SHARE = 1 / 3  # of the lag time: the most that counts between two looks, since the process itself may be late
LEAST_STALL_MS = 3_000.0  # a lag time may be shorter, but one call may read much, and a slow disk is not a stalled one


class DiskAnswer(IntEnum):
    """The answer of a disk; a worse one is higher."""

    IN_TIME = 0
    SLOW = 1
    STALLED = 2


class Answering(Protocol):
    """A user of a disk that waits for it: the disk's own thread, or the threads of readers."""

    @property
    def step(self) -> int | None:
        """The number of the call under way, another one for each call; None where the disk holds up no call."""


class DiskStall:
    """Looks at a disk at each heartbeat: is a call under way, and is it the same as at the last look?"""

    def __init__(self, disk: Answering, lag_time_max_ms: float, now_ms: Callable[[], float]) -> None:
        self._disk = disk
        self.reconfigured(lag_time_max_ms)
        self._now_ms = now_ms
        self._step: int | None = None
        self._looked_ms = now_ms()
        self._waited_ms = 0.0

    def reconfigured(self, lag_time_max_ms: float) -> None:
        """Take the disk for stalled after this lag time from now on."""
        self._most_ms = max(lag_time_max_ms, LEAST_STALL_MS)

    def look(self) -> DiskAnswer:
        """The answer of the disk, by the time that one call has not returned."""
        now_ms, step = self._now_ms(), self._disk.step
        since_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if step is None or step != self._step:
            self._step, self._waited_ms = step, 0.0
        else:
            self._waited_ms += min(since_ms, self._most_ms * LOOK_SHARE)
        if self._waited_ms > self._most_ms:
            return DiskAnswer.STALLED
        return DiskAnswer.SLOW if self._waited_ms > self._most_ms * SLOW_SHARE else DiskAnswer.IN_TIME
