"""Jobs: each comes due again and again, and does its round in slices.

    due       `interval_s` after the end of the last round, the first time `interval_s` after the start
    slice     one call of the disk thread. It gets a budget of bytes, and gives the bytes that it read, wrote or freed
    pace      one slice of all jobs is under way at a time, and jobs take turns. After a slice all jobs rest for the
              time that its bytes take at `bytes_per_second`

So appends go on between slices, and no job holds up another. No single call takes so long that the disk counts as one
that does not answer.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Protocol

import structlog

logger = structlog.get_logger()

SLICE_BYTES = 256 << 20
BYTES_PER_SECOND = 2 << 30  # most of the bytes are freed, not read or written

Slice = Callable[[int], int]
"""Takes the budget in bytes and gives the used bytes. An OSError ends the round."""

Round = Generator[Slice, None, None]
"""The slices of one round. It goes on when its last slice has returned."""


class Job(Protocol):
    """Periodic work of a broker. `name` is for people. A round begins on the event loop, and its slices run off it."""

    @property
    def name(self) -> str: ...

    @property
    def interval_s(self) -> float: ...

    def round(self) -> Round: ...


class Jobs:
    """Runs the jobs of a broker, one slice at a time. `call` runs a slice off the event loop."""

    def __init__(
        self,
        jobs: Sequence[Job],
        call: Callable[[Callable[[], int]], Awaitable[int]],
        monotonic_s: Callable[[], float],
        *,
        slice_bytes: int = SLICE_BYTES,
        bytes_per_second: int = BYTES_PER_SECOND,
    ) -> None:
        self._call = call
        self._monotonic_s = monotonic_s
        self._slice_bytes = slice_bytes
        self._bytes_per_second = bytes_per_second
        self._scheduled = [_Scheduled(job, monotonic_s()) for job in jobs]

    async def run(self) -> None:
        """Run the jobs until cancelled."""
        while True:
            now_s = self._monotonic_s()
            due = [scheduled for scheduled in self._scheduled if scheduled.due_s <= now_s]
            for scheduled in due:
                await self._advance(scheduled)
            if not due:
                await asyncio.sleep(min(scheduled.due_s for scheduled in self._scheduled) - now_s)

    async def _advance(self, scheduled: _Scheduled) -> None:
        """Run one slice of a job that is due."""
        try:
            todo = scheduled.next_slice()
            if todo is None:
                scheduled.is_over(self._monotonic_s())
                return
            used_bytes = await self._call(functools.partial(todo, self._slice_bytes))
        except OSError as error:
            logger.error(
                "a job met a disk error, and begins again when it is due",
                job=scheduled.job.name,
                seconds=scheduled.job.interval_s,
                error=str(error),
            )
            scheduled.is_over(self._monotonic_s())
            return
        if used_bytes:
            await asyncio.sleep(used_bytes / self._bytes_per_second)


class _Scheduled:
    """A job, the begin of its rest, and its round while one is under way."""

    def __init__(self, job: Job, now_s: float) -> None:
        self.job = job
        self._since_s = now_s
        self._round: Round | None = None

    @property
    def due_s(self) -> float:
        """The time of the next round. A new interval of the job counts as soon as another job is due."""
        return self._since_s + (self.job.interval_s if self._round is None else 0.0)

    def next_slice(self) -> Slice | None:
        """The next slice, None where the round is over."""
        if self._round is None:
            self._round = self.job.round()
        return next(self._round, None)

    def is_over(self, now_s: float) -> None:
        self._round = None
        self._since_s = now_s
