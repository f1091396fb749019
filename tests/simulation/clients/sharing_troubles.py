"""What befalls the members of a group while faults rage: they join, leave, hang, stand still, die, have twins. Some of
it befalls them where they give partitions back."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from tests.simulation.clients.sharing_program import Crash, CrashPoint

if TYPE_CHECKING:
    from tests.simulation.clients.sharing import Sharer, Sharing

PAUSE_S = (0.3, 1.5)
HANGS_S = (1.0, 4.0)
STALLS_S = (2.0, 5.0)  # some longer than a session time-out
GOES_ON_S = 0.01  # until it commits
MOST_MORE, MOST_TWINS_MORE = 2, 3
GENTLE = ("join", "leave", "hang", "stall", "stall", "stall_at_giving_back", "twin")
DEADLY = (*GENTLE, "kill", "die_at_giving_back")


class Troubles:
    """Of half the seeds no member dies, for a death lets partitions wait longer (M2)."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing, self._cluster = sharing, sharing.cluster
        self._chance = random.Random(f"troubles {self._cluster.seed}")
        self._kinds = self._chance.choice((GENTLE, DEADLY))

    async def befall(self) -> None:
        """One after the other, until the faults end."""
        while True:
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))
            if not self._cluster.rages:
                return
            living = self._sharing.living()
            await self._strike(self._chance.choice(self._kinds), self._chance.choice(living), living)

    async def _strike(self, kind: str, sharer: Sharer, living: list[Sharer]) -> None:
        sharing, fewest = self._sharing, self._cluster.plan.sharing
        match kind:
            case "join" if len(living) < fewest + MOST_MORE:
                sharing.add("")
            case "leave":
                sharing.leave(sharer)
                sharing.add(sharer.instance_id)
            case "kill":
                sharing.die(sharer)
            case "hang":
                sharer.hangs_s = self._chance.uniform(*HANGS_S)
            case "twin" if len(living) < fewest + MOST_TWINS_MORE:  # refused while the other lives
                sharing.add(next((other.instance_id for other in living if other.instance_id), ""))
            case "stall":
                sharer.hangs_s = GOES_ON_S  # when it goes on it commits first
                stalls_s = self._chance.uniform(*STALLS_S)
                sharing.stall(sharer, stalls_s)
                await asyncio.sleep(stalls_s)
            case "stall_at_giving_back":
                sharer.crash = Crash(self._chance.choice(list(CrashPoint)), self._chance.uniform(*STALLS_S))
            case "die_at_giving_back":
                sharer.crash = Crash(self._chance.choice(list(CrashPoint)), 0.0)
