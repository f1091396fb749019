"""A disk's thread on virtual time: what ships (CommandGroups) with the times that a disk takes.

    submitted ──► run a group (an event) ──► told (an event); synced (an event) ──► told (an event) ──► the next group

Between any two of these power may be lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog_broker.server.disk.disk_thread import (
    MAX_GROUP_COMMANDS,
    CommandGroups,
    DiskCommand,
    GivenCommand,
    call_all,
    outcome_of,
)
from tests.world.disk import Death
from tests.world.loop import Process

if TYPE_CHECKING:
    from tests.simulation.machines.host import SimulatedHost

RUN_S = 0.00005
TELL_S = 0.00001
IDLE_S = 0.001


class DiskQueue:
    """A Disk, on the time of the process that it belongs to. A sync takes as long as the host's disk needs, multiplied
    by `slowness`. `hangs`: a call that does not return."""

    def __init__(
        self,
        name: str,
        host: SimulatedHost,
        process: Process,
        chance: random.Random,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self.hangs = False
        self._slowness = 1.0
        self._syncing: tuple[asyncio.TimerHandle, Callable[[], None], float] | None = None  # and when it began
        self.backlog_bytes = 0
        self._host = host
        self._process = process
        self._chance = chance
        self._failed = failed
        self._groups = CommandGroups()
        self._queue: deque[GivenCommand] = deque()
        self._busy = False
        self._under_way = 0
        self._held: deque[Callable[[], None]] = deque()
        self._working_since_s: float | None = None  # by what the threads have worked

    def submit(self, command: DiskCommand) -> None:
        self._queue.append(self._groups.give(command))
        self.backlog_bytes += command.size_bytes
        if not self._busy:
            self._go_on()

    @property
    def step(self) -> int | None:
        return self._groups.steps if self._under_way else None

    @property
    def backlog(self) -> int:
        """Commands that wait."""
        return len(self._queue)

    async def call(self, work: Callable[[], Any]) -> Any:
        return await outcome_of(self, work)

    async def stop(self) -> None:
        while self._under_way:  # noqa: ASYNC110 - the queue knows no event
            await asyncio.sleep(IDLE_S)

    # -- the thread

    def _go_on(self) -> None:
        self._busy = bool(self._queue)
        if self._busy:
            self._after(RUN_S, self._run_group)

    def _run_group(self) -> None:
        group = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_GROUP_COMMANDS))]
        told, written = self._groups.run(group)
        if told:
            self._after(TELL_S, lambda: call_all(told))
        if not written:
            self._done(group)
            return
        least_s, most_s = (each / 1_000.0 for each in self._host.sync_ms)
        delay_s = (least_s + (most_s - least_s) * self._chance.random()) * self._slowness
        self._syncing = self._after(delay_s, lambda: self._sync(group, written))

    def _sync(self, group: list[GivenCommand], written: list[DiskCommand]) -> None:
        self._syncing = None
        told = self._groups.flush(written)
        self._after(TELL_S, lambda: call_all(told))
        self._done(group)

    def _done(self, group: list[GivenCommand]) -> None:
        self.backlog_bytes -= sum(given.command.size_bytes for given in group)
        self._go_on()

    # -- its time

    def _after(self, delay_s: float, work: Callable[[], None]) -> tuple[asyncio.TimerHandle, Callable[[], None], float]:
        """An event of the thread goes on where the loop is late. It begins when what the thread reads now is read."""
        loop, reading_s = self._host.network.loop, 0.0
        if self._working_since_s is not None:
            reading_s = self._process.busy_s() - self._working_since_s

        def run() -> None:
            if self.hangs:
                self._held.append(run)
                return
            self._under_way -= 1
            self._work(work)

        self._under_way += 1
        return loop.after(reading_s + delay_s, run, process=self._process), run, loop.now_s + reading_s

    def _work(self, work: Callable[[], None]) -> None:
        self._working_since_s = self._process.busy_s()
        try:
            with self._process.thread():
                work()
        except Death:
            """The host knows: its disk has told it."""
        except Exception as error:
            self._failed(error)
        finally:
            self._working_since_s = None

    def slow(self, factor: float) -> None:
        """It is so much slower from now on; by 1 it is as fast as ever, and what was under way returns."""
        self._slowness = factor
        if factor == 1.0 and self._syncing is not None:
            handle, run, began_s = self._syncing
            self._syncing = None
            if handle._scheduled:  # type: ignore[attr-defined]  # else it has come to its time
                handle.cancel()  # what was run before it has been told by then
                loop = self._host.network.loop
                loop.after(max(0.0, began_s - loop.now_s) + 2 * TELL_S, run, process=self._process)

    def go_on(self) -> None:
        """The call returns."""
        self.hangs = False
        while self._held:
            self._host.network.loop.after(0.0, self._held.popleft(), process=self._process)
