"""A user who may write to one topic of others, and who writes under producer ids that are not his.

V14     nothing that he writes so is acknowledged, or read by anybody. Ids are handed out in order, and stand in each
        batch for all who read: so he asks for one of his own, and tries those around it, the next ones, which others
        will be given, and the last ones, of producers that live; and of those the next epoch, too. He shows his own
        proof, or none
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from minilog.aio import Producer
from minilog.errors import MinilogError, ProducerFenced
from minilog.producer.batch import Batch
from minilog.producer.lane import Lane
from minilog.producer.sender import Sender
from minilog.types import TopicPartition
from tests.judges.violation import Violation
from tests.simulation.machines.identities import FORGER

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

PAUSE_S = 0.2
WITHIN_MS = 2_000
LOOK_S = 0.01
NEAR = (-3, -2, -1, 1, 2, 3)  # ids around his own
EPOCHS = (0, 1)


class Forger:
    """See the module's text. Where a plan has no users he is not there."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload

    def begin(self) -> None:
        """He tries, until nobody writes any more."""
        process, machine = self._cluster.client(FORGER)
        self._cluster.run_client(process, self._try(machine))

    async def _try(self, machine: ClientMachine) -> None:
        while self._workload.writing:
            with contextlib.suppress(MinilogError):
                await self._forge(machine)
            await asyncio.sleep(PAUSE_S)

    async def _forge(self, machine: ClientMachine) -> None:
        chance, at = machine.chance(), next(iter(self._workload.keys))
        settings = self._workload.settings_of(
            FORGER, delivery_timeout_ms=WITHIN_MS, max_block_ms=WITHIN_MS, request_timeout_ms=WITHIN_MS, linger_ms=0
        )
        async with Producer(settings, machine) as producer:
            sender = producer._shell._sender
            own = await self._own_id(producer, at, sender)
            others = [own + distance for distance in NEAR if own + distance >= 0]
            producer_id, epoch = chance.choice(others), chance.choice(EPOCHS)
            sender.identity.given(producer_id, epoch, chance.choice((sender.identity.proof, b"")))
            _ends_with_the_first_refusal(sender)
            told = await (await producer.send(at.topic, b"forged", partition=at.partition))
        text = f"a record under producer id {producer_id}, epoch {epoch}, is acknowledged at {told.offset} of {at}"
        raise Violation("V14", f"{text}: its writer was given {own}")

    async def _own_id(self, producer: Producer, at: TopicPartition, sender: Sender) -> int:
        """The id that his client asks for when it begins. Raises MinilogError where nobody gives it."""
        producer._shell.start()
        deadline_s = self._cluster.now_s + WITHIN_MS / 1e3
        while sender.identity.producer[0] < 0:
            if self._cluster.now_s > deadline_s:
                raise ProducerFenced(f"nobody gives an id to who writes to {at.topic}")
            await asyncio.sleep(LOOK_S)
        return sender.identity.producer[0]


def _ends_with_the_first_refusal(sender: Sender) -> None:
    """An honest client would go on under another id, and be right to."""

    def end(lane: Lane, batch: Batch, error: MinilogError) -> None:
        sender._fail_for_good(lane, batch, error)

    sender.__dict__["_start_over"] = end
