"""A user who writes, reads and asks as much as he can, on many connections at a time, under quotas.

quota   each life of a broker lets pass what a full bucket holds and what the rate gives since, and one message more,
        whatever streams and connections he comes by. He begins when all brokers that serve him know the quotas
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from minilog.admin.security import QuotaAlteration, UserUpsertion
from minilog.aio import Admin, Consumer, Producer
from minilog.errors import MinilogError, TopicAlreadyExists
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.security.quota_keys import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_RATE
from minilog.types import NewTopic, TopicPartition
from minilog_broker.security.quotas import WINDOW_S
from tests.judges.violation import Violation
from tests.simulation.clients.guest import AGAIN_S, WITHIN_MS, grace_s
from tests.simulation.machines.identities import ADMIN, GLUTTON, ITERATIONS, MECHANISM, PASSWORD

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

TOPIC = "gluttons"
RATES = {PRODUCER_BYTE_RATE: 500, CONSUMER_BYTE_RATE: 500, REQUEST_RATE: 5}
VALUE = bytes(4_096)
MESSAGE = {PRODUCER_BYTE_RATE: len(VALUE), CONSUMER_BYTE_RATE: 2 * len(VALUE), REQUEST_RATE: 1}
AT_A_TIME = 3  # of each kind of call
CLOCKS = 1.05  # how much faster than ours a broker's may run


class Glutton:
    """See the module's text."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._began_s = 0.0
        self._lives: Counter[int] = Counter()  # of each broker, when he began
        self._had: Counter[str] = Counter()

    def begin(self) -> None:
        """He takes what he gets, until nobody writes any more."""
        process, machine = self._cluster.client(GLUTTON)
        self._cluster.run_client(process, self._take(machine))

    async def _take(self, machine: ClientMachine) -> None:
        await self._prepare(machine)
        await asyncio.sleep(grace_s(self._cluster.plan))
        self._began_s = self._cluster.now_s
        self._lives.update({number: host.lives - 1 for number, host in self._cluster.hosts.items()})
        calls = (self._write, self._read, self._ask)
        await asyncio.gather(*(self._again(call, machine) for call in calls for _ in range(AT_A_TIME)))

    async def _prepare(self, machine: ClientMachine) -> None:
        administrator = self._workload.settings_of(ADMIN, request_timeout_ms=WITHIN_MS)
        operations = ((ResourceKind.TOPIC, TOPIC), (ResourceKind.CLUSTER, "minilog-cluster"))
        rules = [
            AccessRule(f"User:{GLUTTON}", "*", Operation.ALL, kind, name, Pattern.LITERAL, Permission.ALLOW)
            for kind, name in operations
        ]
        async with Admin(administrator, machine) as admin:
            steps: list[Callable[[], Awaitable[object]]] = [
                lambda: admin.alter_users([UserUpsertion(GLUTTON, PASSWORD, MECHANISM, ITERATIONS)]),
                lambda: admin.alter_quotas([QuotaAlteration(f"User:{GLUTTON}", *each) for each in RATES.items()]),
                lambda: admin.create_access_rules(rules),
                lambda: admin.create_topics([NewTopic(TOPIC, 1, 2, {"min.insync.replicas": "1"})]),
            ]
            for step in steps:
                await _until_done(step)

    async def _again(self, call: Callable[[ClientMachine], Awaitable[None]], machine: ClientMachine) -> None:
        while self._workload.writing:
            with contextlib.suppress(MinilogError):
                await call(machine)
            await asyncio.sleep(0)

    def _settings(self) -> dict[str, object]:
        return self._workload.settings_of(
            GLUTTON,
            request_timeout_ms=WITHIN_MS,
            delivery_timeout_ms=WITHIN_MS,
            max_block_ms=WITHIN_MS,
            linger_ms=0,
            fetch_max_bytes=len(VALUE),
        )

    async def _write(self, machine: ClientMachine) -> None:
        """Each record by a stream of its own."""
        async with Producer(self._settings(), machine) as producer:
            await (await producer.send(TOPIC, VALUE, partition=0))
        self._has(PRODUCER_BYTE_RATE, len(VALUE))

    async def _read(self, machine: ClientMachine) -> None:
        """From the start, by a stream of its own."""
        async with Consumer(self._settings(), machine) as consumer:
            await consumer.assign([TopicPartition(TOPIC, 0, 0)])
            records = await consumer.poll(1.0)
        self._has(CONSUMER_BYTE_RATE, sum(len(each.value or b"") for each in records))

    async def _ask(self, machine: ClientMachine) -> None:
        async with Admin(self._settings(), machine) as admin:
            await admin.list_topics()
        self._has(REQUEST_RATE, 1)

    def _has(self, key: str, amount: int) -> None:
        self._had[key] += amount
        most = sum(self._most(key, number) for number in self._cluster.hosts)
        if self._had[key] > most:
            since_s = self._cluster.now_s - self._began_s
            text = f"{GLUTTON} has had {self._had[key]:.0f} in {since_s:.1f} s under a {key} of {RATES[key]:g}, "
            raise Violation("quota", f"{text}and {most:.0f} at most may pass")

    def _most(self, key: str, number: int) -> float:
        lives = self._cluster.hosts[number].lives - self._lives[number]
        given_s = lives * WINDOW_S + CLOCKS * (self._cluster.now_s - self._began_s)
        return RATES[key] * given_s + lives * MESSAGE[key]


async def _until_done(step: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await step()
        except TopicAlreadyExists:
            return
        except MinilogError:
            await asyncio.sleep(AGAIN_S)
        else:
            return
