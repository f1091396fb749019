"""Workers of a queue on whole brokers, step by step. They accept all messages, also when a broker or a worker dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from minilog.aio import QueueConsumer
from minilog.errors import InvalidRecordState
from minilog.net.coordinators_of import QUEUES_TOPIC_NAME, coordinator_partition
from minilog.types import TopicPartition
from tests.simulation.scene import AT, Scene, four_brokers, play

if TYPE_CHECKING:
    from tests.simulation.machines.machine import ClientMachine

QUEUE = "jobs"
LOCK_MS = 2_000


class Workers:
    """Some workers, and what became of each message."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.accepted: Counter[int] = Counter()
        self.deliveries: Counter[int] = Counter()
        self.stops = False
        self.ended = 0

    def add(self, name: str, **settings: object) -> None:
        process, machine = self._scene.cluster.client(name)
        self._scene.cluster.run_client(process, self._work(name, machine, settings))

    async def _work(self, name: str, machine: ClientMachine, settings: dict[str, object]) -> None:
        config = self._scene.workload.settings(queue=QUEUE, request_timeout_ms=5_000, **settings)
        async with QueueConsumer(config, machine) as consumer:
            await consumer.subscribe([AT.topic])
            while not self.stops:
                try:
                    for message in await consumer.poll(0.2):
                        self.deliveries[message.offset] += 1
                        await asyncio.sleep(0.005)
                        message.accept()
                        self.accepted[message.offset] += 1
                except InvalidRecordState:
                    pass
        self.ended += 1

    async def begin(self, count: int = 3, **settings: object) -> None:
        lock = {"group.share.record.lock.duration.ms": str(LOCK_MS)}
        await self._scene.ask(lambda admin: admin.alter_queue(QUEUE, set=lock))
        for number in range(count):
            self.add(f"worker-{number}", max_poll_records=10, **settings)

    async def end(self) -> None:
        """The writers stop, and the workers come to an end with all messages."""
        workload = self._scene.workload
        workload.writing = False
        await asyncio.sleep(10.0)
        description = await self._scene.ask(lambda admin: admin.describe_queue(QUEUE))
        (position,) = description.partitions
        assert (position.ranges, position.backlog, position.dead_count) == ([], 0, 0)
        self.stops = True
        await asyncio.sleep(2.0)
        workload.writing = True
        workload.add_producer()


async def calm(scene: Scene) -> None:
    workers = Workers(scene)
    await workers.begin()
    await asyncio.sleep(5.0)
    await workers.end()
    assert workers.ended == 3
    assert len(workers.accepted) > 100
    assert set(workers.deliveries.values()) == {1}


@pytest.mark.long  # the theme `queuing` has it, too
def test_no_message_comes_twice_in_a_calm_cluster() -> None:
    play(calm, four_brokers())


async def coordinator_dies(scene: Scene) -> None:
    workers = Workers(scene)
    await workers.begin()
    await asyncio.sleep(3.0)
    place = TopicPartition(QUEUES_TOPIC_NAME, coordinator_partition(QUEUE))
    (topic,) = await scene.ask(lambda admin: admin.describe_topics([place.topic]))
    leader = topic.partitions[place.partition].leader
    assert leader is not None
    before = len(workers.accepted)
    scene.cluster.hosts[leader].kill()
    await asyncio.sleep(10.0)
    assert len(workers.accepted) > before + 100
    await workers.end()
    assert workers.ended == 3


@pytest.mark.dear("it runs whole clusters")
def test_workers_go_on_when_their_coordinator_dies() -> None:
    play(coordinator_dies, four_brokers())


async def worker_dies(scene: Scene) -> None:
    workers = Workers(scene)
    await workers.begin()
    await asyncio.sleep(2.0)
    for number in range(2):
        scene.cluster.kill_client(f"worker-{number}")
        await asyncio.sleep(2.0)
    await workers.end()
    assert workers.ended == 1
    assert set(workers.deliveries) == set(workers.accepted)
    assert max(workers.deliveries.values()) <= 2


@pytest.mark.long  # the theme `queuing` has it, too
def test_the_messages_of_a_dead_worker_come_to_others() -> None:
    play(worker_dies, four_brokers())


async def cut_off(scene: Scene) -> None:
    """No call of one worker has an answer for longer than a lock, and its program goes on."""
    workers = Workers(scene)
    await workers.begin()
    await asyncio.sleep(2.0)
    for host in scene.cluster.hosts.values():
        scene.cluster.network.cut(host.name, "worker-0")
    await asyncio.sleep(3 * LOCK_MS / 1000)
    scene.cluster.network.heal_all()
    await workers.end()
    assert workers.ended == 3
    assert set(workers.deliveries) == set(workers.accepted)


@pytest.mark.long  # the theme `queuing` has it, too
def test_a_worker_that_hears_nothing_loses_its_messages_to_others() -> None:
    play(cut_off, four_brokers())
