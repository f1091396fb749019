"""Histories of queues, step by step, on whole brokers: the coordinator dies between a lease and its answer, a worker
wakes up after its lock, and a settlement is lost on its way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from minilog.aio import QueueConsumer
from minilog.errors import InvalidRecordState, UnknownOutcome
from minilog.queues.message import Message
from minilog.v1.queue_pb2 import LeaseResponse
from tests.simulation.clients.history import History
from tests.simulation.clients.queue_settings import QUEUE, drawn
from tests.simulation.clients.queuing import Queuing
from tests.simulation.clients.transacting import Transacting
from tests.simulation.clients.workload import Workload
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.judge import Judge
from tests.simulation.mutants import queues
from tests.simulation.plan import Plan
from tests.simulation.scene import direct
from tests.world.loop import Process

if TYPE_CHECKING:
    from tests.simulation.machines.wire import Said

LOCK_S = drawn(1).lock_s  # the seed of scenes
LONG_S = 3 * LOCK_S + 5.0  # an election, and a fresh lock
SENT_S = 0.05
TAKEN = [0, 1, 2]  # by the first lease
T = TypeVar("T")


class Stage:
    """A calm cluster with records in the topic of a queue, and workers whose program is the test."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.workload = Workload(cluster, History())
        self.judge = Judge(cluster)
        self._processes: dict[QueueConsumer, Process] = {}

    async def begin(self) -> None:
        looking = asyncio.get_running_loop().create_task(self.judge.watch())
        self.cluster.rages = False  # nothing else befalls anybody
        for host in self.cluster.hosts.values():
            host.start()
        await self.workload.make_topics()
        queuing = Queuing(self.cluster, self.workload, History(), Transacting(self.cluster, self.workload))
        await queuing.set_up()
        self.workload.add_producer()
        await asyncio.sleep(1.0)
        self.workload.writing = False
        self._looking = looking

    async def worker(self, name: str, max_poll_interval_ms: int = 300) -> QueueConsumer:
        process, machine = self.cluster.client(name)
        settings = self.workload.settings(
            queue=QUEUE, isolation_level="read_committed", max_poll_records=3, max_poll_interval_ms=max_poll_interval_ms
        )

        async def begin() -> QueueConsumer:
            consumer = QueueConsumer(settings, machine)
            await consumer.subscribe(["t0"])
            return consumer

        consumer: QueueConsumer = await self.cluster.loop.spawn(process, begin())
        self._processes[consumer] = process
        return consumer

    async def on(self, consumer: QueueConsumer, call: Callable[[], Awaitable[T]]) -> T:
        """What the worker's program calls runs in its process."""

        async def called() -> T:
            return await call()

        result: T = await self.cluster.loop.spawn(self._processes[consumer], called())
        return result

    def process(self, consumer: QueueConsumer) -> Process:
        return self._processes[consumer]

    async def poll(self, consumer: QueueConsumer, within_s: float) -> list[Message]:
        """The first messages that the worker gets in time."""
        until_s = self.cluster.now_s + within_s
        while self.cluster.now_s < until_s:
            if messages := await self.on(consumer, lambda: consumer.poll(0.2)):
                return messages
        return []

    def end(self) -> None:
        self._looking.cancel()


PLAN = replace(
    Plan.draw(1, "queuing"),
    queuing=2,
    writers=0,
    partitions=1,
    faults={},
    configs={
        number: {**configs, "broker.session.timeout.ms": "900", "broker.heartbeat.interval.ms": "150"}
        for number, configs in Plan.draw(1, "queuing").configs.items()
    },
)


def offsets(messages: list[Message]) -> list[int]:
    return [message.offset for message in messages]


async def death_before_the_answer(cluster: SimulatedCluster) -> None:
    """The coordinator's broker dies when the first lease is committed, and its worker hears nothing of it."""
    stage = Stage(cluster)
    await stage.begin()
    struck: list[str] = []

    def strike(call: Said, message: Any, answers: bool) -> None:
        if answers and isinstance(message, LeaseResponse) and message.ranges and not struck:
            struck.append(call.host)
            cluster.network.cut(call.host, call.client)
            cluster.loop.after(0.0, cluster.host(call.host).kill)

    cluster.wire.watch(strike)
    worker = await stage.worker("a")
    handed = await stage.poll(worker, LONG_S)
    assert struck
    counts = {message.offset: message.delivery_count for message in handed}
    until_s = cluster.now_s + LONG_S
    while not counts.keys() >= set(TAKEN) and cluster.now_s < until_s:
        counts |= {message.offset: message.delivery_count for message in await stage.poll(worker, LONG_S)}
    assert [counts.get(offset) for offset in TAKEN] == [1, 1, 1], "no program was handed the first lease"
    stage.end()


async def late_worker(cluster: SimulatedCluster) -> None:
    """A worker stands still with messages, one of them accepted, for longer than its lock. Another is given them."""
    stage = Stage(cluster)
    await stage.begin()
    late, other = await stage.worker("late"), await stage.worker("other")
    messages = await stage.poll(late, LONG_S)
    assert offsets(messages) == TAKEN

    async def accept(message: Message) -> None:
        message.accept()

    await stage.on(late, lambda: accept(messages[0]))
    cluster.loop.stand_still(stage.process(late))
    again: list[Message] = []
    while not {message.offset for message in again} >= set(TAKEN):
        again += await stage.poll(other, LONG_S)
    cluster.loop.go_on(stage.process(late))
    for message in messages[1:]:
        with pytest.raises(InvalidRecordState, match="has ended"):
            await stage.on(late, lambda message=message: accept(message))  # type: ignore[misc]
    with pytest.raises(InvalidRecordState, match="did not reach the coordinator"):
        await stage.on(late, lambda: late.flush(5.0))
    stage.end()


async def lost_settlement(cluster: SimulatedCluster) -> None:
    """A settlement is lost, and comes again after the lock, when another worker has the messages."""
    stage = Stage(cluster)
    await stage.begin()
    cut_off, other = await stage.worker("a"), await stage.worker("b")
    messages = await stage.poll(cut_off, LONG_S)
    assert offsets(messages) == TAKEN
    for host in cluster.hosts.values():
        cluster.network.cut("a", host.name)

    async def accept() -> None:
        for message in messages:
            message.accept()
        await cut_off.flush(30.0)

    flushing = asyncio.ensure_future(stage.on(cut_off, accept))
    await asyncio.sleep(SENT_S)
    for host in cluster.hosts.values():
        cluster.network.reset("a", host.name)
    again: list[Message] = []
    while not {message.offset for message in again} >= set(TAKEN):
        again += await stage.poll(other, LONG_S)
    cluster.network.heal_all()
    with contextlib.suppress(UnknownOutcome, InvalidRecordState):
        await flushing
        raise AssertionError("a flush says that it is done, and another worker has the messages")
    stage.end()


async def deposed_coordinator(cluster: SimulatedCluster) -> None:
    """A worker has its locks renewed by a coordinator that no broker hears any more. Another asks its successor."""
    stage = Stage(cluster)
    await stage.begin()
    coordinators: list[str] = []

    def note(call: Said, message: Any, answers: bool) -> None:
        if answers and isinstance(message, LeaseResponse):
            coordinators.append(call.host)

    cluster.wire.watch(note)
    kept, other = await stage.worker("kept", max_poll_interval_ms=60_000), await stage.worker("other")
    messages = await stage.poll(kept, LONG_S)
    assert offsets(messages) == TAKEN
    deposed = coordinators[-1]
    for host in cluster.hosts.values():
        if host.name != deposed:
            cluster.network.cut(deposed, host.name)
            cluster.network.cut(host.name, deposed)
            cluster.network.cut("kept", host.name)
    cluster.network.cut("other", deposed)

    async def poll_on() -> None:
        while True:
            await kept.poll(0.2)

    polling = asyncio.ensure_future(stage.on(kept, poll_on))
    again: list[Message] = []
    until_s = cluster.now_s + 3 * LONG_S
    while not {message.offset for message in again} >= set(TAKEN):
        assert cluster.now_s < until_s, "nobody is given the messages again"
        again += await stage.poll(other, LONG_S)

    async def is_locked() -> bool:
        return messages[0].held.lease.is_locked(asyncio.get_running_loop().time() * 1000.0)

    assert not await stage.on(kept, is_locked), "two workers have the lock"
    polling.cancel()
    stage.end()


@pytest.mark.timeout(120)
def test_a_lease_that_was_not_answered_comes_again_after_its_lock() -> None:
    direct(death_before_the_answer, PLAN)


@pytest.mark.timeout(120)
def test_a_worker_that_wakes_up_after_its_lock_settles_nothing() -> None:
    direct(late_worker, PLAN)


@pytest.mark.timeout(120)
def test_a_worker_whose_settlement_is_lost_is_not_told_that_it_is_done() -> None:
    direct(lost_settlement, PLAN)


@pytest.mark.timeout(120)
def test_where_any_second_refusal_counts_as_done_it_is_told_so() -> None:
    with pytest.raises(AssertionError, match="a flush says that it is done"):
        direct(lost_settlement, PLAN, queues.any_second_refusal_is_done)


@pytest.mark.timeout(120)
def test_where_anybody_settles_a_lost_settlement_is_taken_late() -> None:
    with pytest.raises(AssertionError, match="a flush says that it is done"):
        direct(lost_settlement, PLAN, queues.settled_by_anybody)


@pytest.mark.timeout(120)
def test_a_deposed_coordinator_renews_no_lock() -> None:
    direct(deposed_coordinator, PLAN)


@pytest.mark.timeout(120)
def test_a_renewal_without_a_record_leaves_a_message_to_two_workers() -> None:
    """The next coordinator knows nothing of the lease: it also forgets that the delivery counts."""
    with pytest.raises(AssertionError, match=r"two workers have the lock|deliveries are not counted"):
        direct(deposed_coordinator, PLAN, queues.renewed_without_a_record)
