"""What the user of a simulated member wrote: it reads, commits, and is called back. It may die or stand still where it
gives partitions back, before and after its commit; and it may commit late, what it has given back or lost."""

from __future__ import annotations

import asyncio
import enum
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.aio import Consumer
from minilog.errors import MinilogError
from minilog.types import TopicPartition
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.clients.sharing import Sharer, Sharing

POLL_S = 0.3
LATE_COMMIT_SHARE, LATE_COMMITS_S = 0.5, (0.0, 4.0)


class CrashPoint(enum.Enum):
    """Between what the coordinator asks back, and the answer to that."""

    BEFORE_COMMIT = "before it commits what it gives back"
    BEFORE_ANSWER = "between its commit and its answer"


@dataclass(frozen=True, slots=True)
class Crash:
    """What befalls a member there: it stands still so long; 0: it dies."""

    point: CrashPoint
    stalls_s: float


class Program:
    """Of one member."""

    def __init__(self, sharing: Sharing, sharer: Sharer, chance: random.Random) -> None:
        self._sharing, self._sharer, self._chance = sharing, sharer, chance
        self._late: set[asyncio.Task[None]] = set()
        self._committed: dict[int, int] = {}  # the highest offsets that it has committed, or has tried to

    async def turn(self, consumer: Consumer) -> None:
        """One poll, and what follows it."""
        sharing, sharer = self._sharing, self._sharer
        try:
            for record in await consumer.poll(POLL_S):
                sharing.saw(sharer, record)
        except MinilogError as error:
            sharing.cluster.note(f"{sharer.name}: {type(error).__name__}: {error}")
            await asyncio.sleep(0.2)
        if sharer.hangs_s:
            hangs_s, sharer.hangs_s = sharer.hangs_s, 0.0
            await asyncio.sleep(hangs_s)
            sharing.calm_s = sharing.cluster.now_s
            await self._commit(consumer.assignment())  # before a poll says that it is another's
        elif self._chance.random() < sharer.commit_share:
            await self._commit(consumer.assignment())

    async def assigned(self, partitions: list[TopicPartition]) -> None:
        self._sharer.floors |= {at.partition: self._sharing.floor(at.partition) for at in partitions}
        for at in partitions:
            self._sharer.last.pop(at.partition, None)

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        offsets = self._positions(partitions)
        await self._strike(CrashPoint.BEFORE_COMMIT)
        await self._commit_offsets(offsets)
        await self._strike(CrashPoint.BEFORE_ANSWER)
        self._commit_late(offsets)

    async def lost(self, partitions: list[TopicPartition]) -> None:
        self._commit_late(self._positions(partitions))

    def _positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Of what was read."""
        assert self._sharer.consumer is not None
        positions = {at: self._sharer.consumer.position(at) for at in partitions}
        return {at: position for at, position in positions.items() if position}

    async def _commit(self, partitions: list[TopicPartition]) -> None:
        await self._commit_offsets(self._positions(partitions))

    async def _commit_offsets(self, offsets: dict[TopicPartition, int]) -> None:
        for at, offset in offsets.items():
            self._committed[at.partition] = max(offset, self._committed.get(at.partition, 0))
        await self._sharing.commit(self._sharer, offsets)

    def _commit_late(self, offsets: dict[TopicPartition, int]) -> None:
        if self._chance.random() < LATE_COMMIT_SHARE:
            task = asyncio.get_running_loop().create_task(self.commit_beside(offsets))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def commit_beside(self, offsets: dict[TopicPartition, int]) -> None:
        """As a program that commits beside its polls. What it was given again since, and has, it leaves alone: its
        commit would set that back. It has it until it learns of a loss, which is after the end of its session. Nor does
        it set back its own later commit: of what it gives back it is the owner until the coordinator hears of that."""
        await asyncio.sleep(self._chance.uniform(*LATE_COMMITS_S))
        has = self._sharer.program_has()
        late = {
            at: offset
            for at, offset in offsets.items()
            if at.partition not in has and offset >= self._committed.get(at.partition, 0)
        }
        try:
            await self._sharing.commit(self._sharer, late)
        except Violation as violation:
            self._sharing.cluster.fail(violation)

    async def _strike(self, point: CrashPoint) -> None:
        """What was to befall it here does so."""
        sharing, sharer = self._sharing, self._sharer
        crash = sharer.crash
        if crash is None or crash.point is not point or not sharing.cluster.rages:
            return
        sharer.crash = None
        sharing.cluster.note(f"{sharer.name} is struck {point.value}")
        if crash.stalls_s:
            sharing.cluster.loop.after(0.0, sharing.stall, sharer, crash.stalls_s)
        else:
            sharing.cluster.loop.after(0.0, sharing.die, sharer)
        await asyncio.sleep(0.001)
