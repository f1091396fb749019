"""Redrives of the dead letters of a queue: one after the other, sometimes two at a time, and some are killed. The last
one begins when the faults are over, and has to come to its end."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from minilog.aio import Admin
from minilog.errors import MinilogError
from tests.simulation.clients.queue_settings import QUEUE
from tests.simulation.machines.identities import ADMIN

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster

PAUSE_S = (0.1, 1.5)
LIFE_S = (0.05, 3.0)  # then it is killed
KILLED_SHARE = 0.4
MOST_LETTERS = (1, 3, None)
AGAIN_S = 0.2


class Redrivers:
    """Of one queue. `are_done`: the redrive behind the last fault has brought all letters."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster, self._workload = cluster, workload
        self._chance = random.Random(f"redrives {cluster.seed}")
        self._number = 0
        self.are_done = False

    async def run(self) -> None:
        """Until the faults are over, and then once more."""
        while self._cluster.rages:
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))
            name = self._begin(self._chance.choice(MOST_LETTERS))
            if self._chance.random() < KILLED_SHARE:
                self._cluster.loop.after(self._chance.uniform(*LIFE_S), self._kill, name)
        while not self.are_done:
            name = self._begin(None, is_last=True)
            while name in self._cluster.clients:  # noqa: ASYNC110  # virtual time
                await asyncio.sleep(AGAIN_S)

    def _begin(self, most: int | None, *, is_last: bool = False) -> str:
        self._number += 1
        process, machine = self._cluster.client(f"redrive-{self._number}")
        settings = self._workload.settings_of(ADMIN, request_timeout_ms=3_000)

        async def redrive() -> None:
            try:
                async with Admin(settings, machine) as admin:
                    redriven = await admin.redrive_queue(QUEUE, max_letters=most)
            except MinilogError as error:
                self._cluster.note(f"{process.name}: {type(error).__name__}: {error}")
                return
            self._cluster.counts["letters redriven"] += redriven.made_ready_count
            self.are_done |= is_last and not redriven.is_full

        self._cluster.run_client(process, redrive())
        return process.name

    def _kill(self, name: str) -> None:
        if name in self._cluster.clients:
            self._cluster.count("redrives killed")
            self._cluster.kill_client(name)
