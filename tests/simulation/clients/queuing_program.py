"""What the user of a simulated worker wrote: it takes messages, works on each for a while, and then settles it. It
flushes now and then, and only what a flush confirms counts as told."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog.errors import InvalidRecordState, MinilogError, TimedOut
from minilog.queues.message import Message, Verdict
from tests.judges.queues import Delivery

if TYPE_CHECKING:
    from minilog.aio import QueueConsumer
    from tests.simulation.clients.queuing import Queuing
    from tests.world.loop import Process

POLL_S = 0.2
MOST_HELD = 30  # then it does not poll
FLUSH_S = 2.0
FLUSH_SHARE = 0.3  # of its turns
AGAIN_S = 0.1
SHORT_S, MEDIUM_S, LONG_LOCKS = (0.0, 0.05), (0.1, 1.0), (0.5, 3.0)  # of work; the last in lock durations
WORKS = (SHORT_S, SHORT_S, SHORT_S, MEDIUM_S, MEDIUM_S)
LONG_SHARE = 0.08
VERDICTS = (Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT)
VERDICT_WEIGHTS = (0.82, 0.14, 0.04)
DELAYS_S = (0.0, 0.3, 1.5)


@dataclass(eq=False, slots=True)
class Held:
    """A message that the program works on, until `due_s`."""

    message: Message
    delivery: Delivery
    due_s: float


@dataclass(eq=False, slots=True)
class Worker:
    """One process of a worker. `clings`: it settles nothing."""

    name: str
    process: Process
    held: list[Held] = field(default_factory=list)
    hangs_s: float = 0.0
    clings: bool = False
    leaves: bool = False
    is_gone: bool = False

    def has_locked(self, message: Message, now_s: float) -> bool:
        """Whether the lock of a message lasts, by the worker's own clock."""
        clock_ms = (self.process.origin_s + self.process.rate * now_s) * 1000.0
        return not (self.process.dead or self.is_gone) and message.held.lease.is_locked(clock_ms)


class Program:
    """Of one worker."""

    def __init__(self, queuing: Queuing, worker: Worker, consumer: QueueConsumer, chance: random.Random) -> None:
        self._queuing, self._worker, self._consumer, self._chance = queuing, worker, consumer, chance
        self._cluster = queuing.cluster
        self._unconfirmed: list[Delivery] = []

    async def subscribe(self, topics: list[str]) -> None:
        """Until it is done."""
        while True:
            try:
                await self._consumer.subscribe(topics)
            except MinilogError as error:
                self._noted(error)
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def turn(self) -> None:
        """One poll, and what follows it."""
        worker = self._worker
        if len(worker.held) < MOST_HELD:
            await self._poll()
        else:
            await asyncio.sleep(POLL_S)
        if worker.hangs_s:
            hangs_s, worker.hangs_s = worker.hangs_s, 0.0
            await asyncio.sleep(hangs_s)
        if not worker.clings:
            self._settle_due()
            if self._chance.random() < FLUSH_SHARE or not self._cluster.rages:
                await self._flush()

    async def _poll(self) -> None:
        try:
            messages = await self._consumer.poll(POLL_S)
        except MinilogError as error:
            self._doubt(error)
            await asyncio.sleep(AGAIN_S)
            return
        for message in messages:
            self._take(message)

    def _take(self, message: Message) -> None:
        worker, now_s = self._worker, self._cluster.now_s
        delivery = Delivery(
            worker.name,
            (message.topic, message.partition, message.offset),
            now_s,
            lambda: worker.has_locked(message, self._cluster.now_s),
        )
        self._queuing.saw(worker, message)
        self._queuing.deliveries.began(delivery)
        low_s, high_s = self._chance.choice(WORKS)
        if self._chance.random() < LONG_SHARE:
            low_s, high_s = (locks * self._queuing.settings.lock_s for locks in LONG_LOCKS)
        worker.held.append(Held(message, delivery, now_s + self._chance.uniform(low_s, high_s)))

    def _settle_due(self) -> None:
        worker, now_s = self._worker, self._cluster.now_s
        due = [held for held in worker.held if held.due_s <= now_s or not self._cluster.rages]
        worker.held = [held for held in worker.held if held not in due]
        for held in due:
            if self._queuing.is_deleted(held.message):
                self._cluster.count("messages deleted while a worker had them")
            self._settle(held)

    def _settle(self, held: Held) -> None:
        (verdict,) = self._chance.choices(VERDICTS, VERDICT_WEIGHTS) if self._cluster.rages else (Verdict.ACCEPT,)
        delay_s = self._chance.choice(DELAYS_S) if verdict is Verdict.RELEASE else 0.0
        try:
            match verdict:
                case Verdict.ACCEPT:
                    held.message.accept()
                case Verdict.RELEASE:
                    held.message.release(delay_s)
                case Verdict.REJECT:
                    held.message.reject("as drawn")
        except InvalidRecordState:
            self._cluster.count("messages whose lock has ended")
            return
        self._queuing.deliveries.settled(held.delivery, verdict, delay_s, self._cluster.now_s)
        self._unconfirmed.append(held.delivery)

    async def _flush(self) -> None:
        """What was noted before it, and is not refused, is done."""
        noted, self._unconfirmed = self._unconfirmed, []
        try:
            await self._consumer.flush(FLUSH_S)
        except TimedOut:
            self._unconfirmed = noted + self._unconfirmed
        except MinilogError as error:
            self._doubt(error)
        else:
            self._cluster.counts["messages settled"] += len(noted)
            for delivery in noted:
                self._queuing.deliveries.confirmed(delivery)

    def _doubt(self, error: MinilogError) -> None:
        """It may be of any verdict so far."""
        self._noted(error)
        self._cluster.counts["messages in doubt"] += len(self._unconfirmed)
        self._unconfirmed = []

    def _noted(self, error: MinilogError) -> None:
        self._cluster.note(f"{self._worker.name}: {type(error).__name__}: {error}")

    async def leave(self) -> None:
        """It gives back what it has."""
        for held in self._worker.held:
            held.delivery.until_s = self._cluster.now_s
        self._worker.held = []
        try:
            await self._consumer.close()
        except MinilogError as error:
            self._noted(error)
