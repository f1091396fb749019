"""The threads of readers on virtual time: what ships (ReadTurns) with the times that a disk takes to read.

    begun ──► read (an event) ──► told (an event)

A log may be cut or deleted between any two of these. A disk that hangs returns no read before it goes on.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from minilog_broker.server.disk.reader_threads import PAUSE_S, DiskRead, ReadTurns, carry_out
from tests.world.disk import Death
from tests.world.loop import Process

if TYPE_CHECKING:
    from tests.simulation.machines.host import SimulatedHost


class SimulatedReaders:
    """A Readers, on the time of the process that it belongs to. A read takes as long as the host's disk needs,
    multiplied by `slowness`. `hangs`: none returns."""

    def __init__(
        self,
        name: str,
        most: int,
        host: SimulatedHost,
        process: Process,
        chance: random.Random,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self.hangs = False
        self._slowness = 1.0
        self._host = host
        self._process = process
        self._chance = chance
        self._failed = failed
        self._turns = ReadTurns(most, self._begin)
        self._held: deque[Callable[[], None]] = deque()

    def submit(self, read: DiskRead) -> None:
        self._turns.submit(read)

    @property
    def step(self) -> int | None:
        return self._turns.step

    @property
    def waiting(self) -> int:
        return self._turns.waiting

    def pause(self, seconds: float = PAUSE_S) -> None:
        """A read is one event."""

    async def stop(self) -> None:
        self._turns.end()

    def hang(self, *, hangs: bool) -> None:
        """Whether reads return."""
        self.hangs = hangs
        while self._held and not hangs:
            self._after(0.0, self._held.popleft())

    def slow(self, factor: float) -> None:
        """It is so much slower for what begins from now on."""
        self._slowness = factor

    def _begin(self, read: DiskRead) -> None:
        least_s, most_s = (each / 1_000.0 for each in self._host.read_ms)
        takes_s = (least_s + (most_s - least_s) * self._chance.random()) * self._slowness
        before_s = takes_s * self._chance.random()
        self._after(before_s, lambda: self._read(read, takes_s - before_s))

    def _read(self, read: DiskRead, behind_s: float) -> None:
        before_s = self._process.busy_s()
        try:
            with self._process.thread():
                told = carry_out(read)
        except Exception as error:
            self._failed(error)
            return
        self._after(behind_s + self._process.busy_s() - before_s, lambda: self._turns.ended(told))

    def _after(self, delay_s: float, work: Callable[[], None]) -> None:
        def run() -> None:
            if self.hangs:
                self._held.append(run)
                return
            try:
                work()
            except Death:
                """The host knows: its disk has told it."""

        self._host.network.loop.after(delay_s, run, process=self._process)
