"""A calm cluster in front of which a test stands and does by hand what a search seldom does.

async def story(scene): ...      a function of a module: it runs in a process of its own
play(story, plan)                founds the cluster, tells the story, and has the history judged to its end

async def director(cluster): ...   for what needs no topic
direct(director, plan)
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar
from unittest.mock import patch

from minilog.aio import Admin
from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.types import ClusterDescription, PartitionDescription, TopicPartition
from tests.rules import Patches
from tests.simulation.clients.history import History, Outcome
from tests.simulation.clients.transacting import Transacting
from tests.simulation.clients.workload import Workload
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.faults import Faults
from tests.simulation.judge import check_over, copies_agree
from tests.simulation.judge.exceptions import Exceptions
from tests.simulation.machines.host import SimulatedHost
from tests.simulation.machines.identities import ADMIN
from tests.simulation.plan import Plan
from tests.simulation.run import apart

AT = TopicPartition("t0", 0)
LOOK_S = 0.02
FOUND_S = 30.0
T = TypeVar("T")


FAST = {
    "replica.lag.time.max.ms": "500",
    "broker.session.timeout.ms": "900",
    "broker.heartbeat.interval.ms": "150",
    "auto.leader.rebalance.enable": "false",
}


def four_brokers(replicas: int = 3, topic: dict[str, str] | None = None, **configs: str) -> Plan:
    """Four brokers; `configs` of each, on top of short time-outs."""
    given = FAST | {name.replace("_", "."): value for name, value in configs.items()}
    return Plan(
        brokers=4,
        replication_factor=replicas,
        configs=dict.fromkeys(range(1, 5), given),
        topic_configs={"min.insync.replicas": "2"} if topic is None else topic,
        producers=1,
    )


class Scene:
    """One topic of one partition, whose replicas are not on the controller: what is done to them is not done to it."""

    def __init__(self, cluster: SimulatedCluster, history: History, workload: Workload) -> None:
        self.cluster = cluster
        self.history = history
        self.workload = workload
        process, self._machine = cluster.client("director")
        self._process = process
        self._admin: Admin | None = None

    # -- how it is

    async def ask(self, what: Callable[[Admin], Awaitable[T]]) -> T:
        """One operator asks until there is an answer. What he knows of metadata never goes back: a broker that is cut
        off tells him nothing."""

        async def asked() -> T:
            if self._admin is None:
                self._admin = Admin(self.workload.settings_of(ADMIN, request_timeout_ms=5_000), self._machine)
            while True:
                with contextlib.suppress(MinilogError):
                    return await what(self._admin)
                await asyncio.sleep(LOOK_S)

        found: T = await self.cluster.loop.spawn(self._process, asked())
        return found

    async def state(self) -> PartitionDescription:
        """Of the partition, as the cluster says it."""
        (topic,) = await self.ask(lambda admin: admin.describe_topics([AT.topic]))
        return topic.partitions[AT.partition]

    async def _described(self) -> ClusterDescription:
        return await self.ask(lambda admin: admin.describe_cluster())

    async def roles(self) -> tuple[SimulatedHost, list[SimulatedHost]]:
        """The leader, and the other replicas."""
        state = await self.state()
        assert state.leader is not None
        return self.cluster.hosts[state.leader], [self.cluster.hosts[n] for n in state.replicas if n != state.leader]

    async def controller(self) -> SimulatedHost | None:
        """As the cluster says it."""
        number = (await self._described()).controller
        return None if number is None else self.cluster.hosts[number]

    async def hosts(self) -> list[SimulatedHost]:
        """Of all replicas."""
        return [self.cluster.hosts[number] for number in (await self.state()).replicas]

    async def until(self, holds: Callable[[PartitionDescription], bool], within_s: float = FOUND_S) -> None:
        """Wait until the partition is so; raises TimeoutError where it is not in time."""
        async with asyncio.timeout(within_s):
            while not holds(await self.state()):  # noqa: ASYNC110 - a cluster is asked again
                await asyncio.sleep(LOOK_S)

    @property
    def key(self) -> PartitionKey:
        return self.workload.keys[AT]

    def count(self, outcome: Outcome) -> int:
        return self.history.counts()[outcome]

    def forgive_until_now(self) -> None:
        """What was acknowledged until now may be lost."""
        for write in self.history.writes.values():
            if write.outcome is Outcome.OK:
                write.outcome = Outcome.UNKNOWN

    # -- what is done to it

    def cut(self, one: SimulatedHost, *others: SimulatedHost) -> None:
        """Both ways."""
        for other in others:
            self.cluster.network.cut(one.name, other.name)
            self.cluster.network.cut(other.name, one.name)

    async def apart(self) -> None:
        """Move the replicas away from the controller, and wait until all are in sync."""
        while len((cluster := await self._described()).brokers) < len(self.cluster.hosts):  # noqa: ASYNC110 - it is asked again
            await asyncio.sleep(LOOK_S)
        assert cluster.controller is not None
        chosen = [number for number in self.cluster.hosts if number != cluster.controller]
        replicas = chosen[: self.cluster.plan.replication_factor]
        await self.ask(lambda admin: admin.alter_partition_reassignments({AT: replicas}))
        await self.until(lambda state: sorted(state.replicas) == sorted(state.isr) == replicas)


Story = Callable[[Scene], Coroutine[Any, Any, None]]
Patching = Callable[[], Patches]


def play(story: Story, plan: Plan, wrong: Patching = list) -> None:
    """Found the cluster, with one producer; tell the story; then heal, and judge all that clients were told.

    Raises AssertionError with what was found. `wrong`: a function of `mutants/`, whose rule replaces the true one."""
    direct(functools.partial(_tell, story), replace(plan, topics=1, partitions=1), wrong)


def direct(
    director: Callable[[SimulatedCluster], Coroutine[Any, Any, None]], plan: Plan, wrong: Patching = list
) -> None:
    """Run a director in a new cluster, in a process of its own. Raises AssertionError with what it raised."""
    failure = apart(functools.partial(_direct, director, plan, wrong))
    assert failure is None, failure


def _direct(
    director: Callable[[SimulatedCluster], Coroutine[Any, Any, None]], plan: Plan, wrong: Patching
) -> str | None:
    with contextlib.ExitStack() as stack:
        for each in wrong():
            stack.enter_context(patch.object(*each))
        try:
            cluster = SimulatedCluster(1, plan)
            cluster.run(director(cluster))
        except Exception as error:
            return "".join(traceback.format_exception(error))
    return None


async def _tell(story: Story, cluster: SimulatedCluster) -> None:
    history = History()
    workload = Workload(cluster, history)
    scene, faults = Scene(cluster, history, workload), Faults(cluster, workload, Transacting(cluster, workload))
    for host in cluster.hosts.values():
        host.start()
    await workload.make_topics()
    await scene.apart()
    workload.add_producer()
    await asyncio.sleep(1.0)
    await story(scene)
    faults.heal()
    await workload.look_at_replicas()
    await check_over(cluster, history, workload, faults, Exceptions(cluster, workload, history), {})
    for host in cluster.hosts.values():
        host.kill()
    copies_agree(cluster, workload, faults)
