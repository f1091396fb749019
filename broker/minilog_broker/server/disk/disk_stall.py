"""Whether a disk answers: a leader is held to the lag time as its followers are.

A call that does not return (a dying disk, a volume that is gone, a network file system) raises no error, and the
threads that hear the controller and clients go on. Without this the broker would lead for ever what it cannot append.
So it says so with its heartbeats, and the controller treats it as one whose disk is full: another leads where one can,
and no ISR waits for it (controller/brokers.py). When the call returns, the broker follows and comes back in sync.

Reads count as the calls of the disk's own thread do, when as many hang as can be under way: one bad file is no bad
disk.

Disks that hang together (one storage system) are reported one after the other: nothing is handed over to a broker whose
disk is slow, for it may be stalled a moment later.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

SLOW_SHARE = 1 / 2  # of it; disks that hang together are seen to be slow before the first of them is stalled
LOOK_SHARE = 1 / 3  # of the lag time: between two looks it counts for no more; who was late itself blames no disk
LEAST_STALL_MS = 3_000.0  # a lag time may be shorter: but one call may read much, and what is slow is not stalled


class DiskAnswer(IntEnum):
    """How a disk answers; the worse, the higher."""

    IN_TIME = 0
    SLOW = 1
    STALLED = 2


class Answering(Protocol):
    """What waits for a disk: its own thread, or the threads of readers."""

    @property
    def step(self) -> int | None:
        """Which call is under way, another number for each; None where the disk keeps nobody waiting."""


class DiskStall:
    """Looks at a disk now and then, at each heartbeat: a call is under way, and it is the same as the last time."""

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
        """For how long one call has not returned, as far as this was seen."""
        now_ms, step = self._now_ms(), self._disk.step
        since_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if step is None or step != self._step:
            self._step, self._waited_ms = step, 0.0
        else:
            self._waited_ms += min(since_ms, self._most_ms * LOOK_SHARE)
        if self._waited_ms > self._most_ms:
            return DiskAnswer.STALLED
        return DiskAnswer.SLOW if self._waited_ms > self._most_ms * SLOW_SHARE else DiskAnswer.IN_TIME
