"""Jobs: each comes due again and again, and its round is done in slices.

    due       `interval_s` after the end of the last round, the first time `interval_s` after the start
    slice     one call of the disk thread. It is given a budget of bytes, and returns how many it read, wrote or let go
    pace      of all jobs one slice is under way at a time, and they take turns. After a slice they all rest for as long
              as its bytes take at `bytes_per_second`

So appends go on between slices, no job holds up another, and no single call lasts so long that the disk passes for one
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
BYTES_PER_SECOND = 2 << 30  # most of it is let go, not read or written

Slice = Callable[[int], int]
"""Takes the budget in bytes and returns what it used. Raises OSError: the round is over then."""

Round = Generator[Slice, None, None]
"""The slices of one round. It goes on when its last slice has returned."""


class Job(Protocol):
    """Some work of a broker. `name` is for people; a round is begun on the event loop, its slices are called off it."""

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
        """Until cancelled."""
        while True:
            now_s = self._monotonic_s()
            due = [each for each in self._scheduled if each.due_s <= now_s]
            for each in due:
                await self._advance(each)
            if not due:
                await asyncio.sleep(min(each.due_s for each in self._scheduled) - now_s)

    async def _advance(self, scheduled: _Scheduled) -> None:
        """One slice of a job that is due."""
        try:
            todo = scheduled.next_slice()
            if todo is None:
                scheduled.is_over(self._monotonic_s())
                return
            used_bytes = await self._call(functools.partial(todo, self._slice_bytes))
        except OSError as error:
            logger.error(
                "a job met a disk error; it begins anew when it is due again",
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
        """None where the round is over."""
        if self._round is None:
            self._round = self.job.round()
        return next(self._round, None)

    def is_over(self, now_s: float) -> None:
        self._round = None
        self._since_s = now_s
