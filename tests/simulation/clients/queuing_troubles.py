"""What befalls the workers of a queue while faults rage: they come, go, hang, stand still and die. At the end of it one
dies that has settled nothing for a while."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.clients.queuing import Queuing
    from tests.simulation.clients.queuing_program import Worker

PAUSE_S = (0.2, 1.2)
HANGS_S = (0.5, 5.0)
STALLS_S = (0.5, 6.0)  # some longer than a lock
CLINGS_S = 1.0
KINDS = ("leave", "hang", "hang", "stall", "stall", "kill", "kill", "join")
MOST_MORE = 2


class Troubles:
    """Of one queue."""

    def __init__(self, queuing: Queuing) -> None:
        self._queuing, self._cluster = queuing, queuing.cluster
        self._chance = random.Random(f"troubles of workers {self._cluster.seed}")

    async def befall(self) -> None:
        """One after the other, until the faults end."""
        while True:
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))
            living = self._queuing.living()
            if not self._cluster.rages:
                break
            if living:
                self._strike(self._chance.choice(KINDS), self._chance.choice(living), len(living))
        victim = self._chance.choice(living)
        victim.clings = True
        await asyncio.sleep(CLINGS_S)
        self._queuing.die(victim)

    def _strike(self, kind: str, worker: Worker, living: int) -> None:
        queuing = self._queuing
        match kind:
            case "join" if living < self._cluster.plan.queuing + MOST_MORE:
                queuing.add()
            case "leave":
                worker.leaves = True
                queuing.add()
            case "kill":
                queuing.die(worker)
            case "hang":
                worker.hangs_s = self._chance.uniform(*HANGS_S)
            case "stall":
                queuing.stall(worker, self._chance.uniform(*STALLS_S))
