"""A user who may use one topic now and then, and who tries everything all the time; and the user of all other programs.

V22     what no rule allows does not come to pass: nothing of his is acknowledged, he is handed nothing, and told of no
        topic, unless a rule that allows it may have been there meanwhile. Each broker hears of a rule that is taken
        away with the metadata, and one that hears no controller refuses him at the end of its session. Where it was cut
        off together with a controller, that one ends its office before: grace_s
V22     when nothing befalls the cluster any more, he may what a rule allows, and may it no more when it is taken away
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from minilog.admin.security import UserUpsertion
from minilog.aio import Admin, Consumer, Producer
from minilog.errors import AuthorizationFailed, MinilogError
from minilog.security.access_rules import (
    AccessRule,
    AccessRuleFilter,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
)
from minilog.types import TopicPartition
from minilog_broker.server.config import BrokerConfig
from tests.judges.violation import Violation
from tests.simulation.machines.identities import ADMIN, APP, FORGER, GUEST, ITERATIONS, MECHANISM, PASSWORD

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine
    from tests.simulation.plan import Plan

TOPIC = "guests"
MESSAGES_S = 1.0  # until a broker that hears has replayed it, and what was on its way has come
_TIMEOUTS = {
    "broker.session.timeout.ms": BrokerConfig().broker_session_timeout_ms,
    "quorum.fetch.timeout.ms": BrokerConfig().quorum_fetch_timeout_ms,
}
CALM_GRACE_S = 1.5  # where all hear of it
AGAIN_S = 0.2
PAUSE_S = 0.3
WITHIN_MS = 2_000
Asked: TypeAlias = "Callable[[Admin], Awaitable[None]]"


def _allowing(user: str, kind: ResourceKind, name: str, operation: Operation = Operation.ALL) -> AccessRule:
    return AccessRule(f"User:{user}", "*", operation, kind, name, Pattern.LITERAL, Permission.ALLOW)


GUESTS_RULE = _allowing(GUEST, ResourceKind.TOPIC, TOPIC)
_RULES = [
    _allowing(APP, ResourceKind.TOPIC, "*"),
    _allowing(APP, ResourceKind.GROUP, "*"),
    _allowing(APP, ResourceKind.TRANSACTIONAL_ID, "*"),
    _allowing(APP, ResourceKind.CLUSTER, "minilog-cluster", Operation.IDEMPOTENT_WRITE),
]


def _of_forger(topic: str) -> AccessRule:
    """He may write what others write."""
    return _allowing(FORGER, ResourceKind.TOPIC, topic, Operation.WRITE)


async def make_users(admin: Admin, shared_topic: str) -> None:
    """Until they are there. `shared_topic`: that the forger may write to, too."""
    users = [UserUpsertion(name, PASSWORD, MECHANISM, ITERATIONS) for name in (APP, GUEST, FORGER)]
    while True:
        try:
            await admin.alter_users(users)
            await admin.create_access_rules([*_RULES, _of_forger(shared_topic)])
        except MinilogError:
            await asyncio.sleep(AGAIN_S)
        else:
            return


def grace_s(plan: Plan) -> float:
    """For so long a rule that is gone may count: a broker's session, and the office of a controller that hears
    no majority. By the longest that a broker is, or may be, configured with."""
    total_ms = 0
    for name, default_ms in _TIMEOUTS.items():
        said = [configs.get(name, str(default_ms)) for configs in plan.configs.values()]
        if "reconfigure" in plan.faults:
            said += plan.other_configs.get(name, ())
        total_ms += max(map(int, said))
    return total_ms / 1000.0 + MESSAGES_S


class Guest:
    """See the module's text. Where a plan has no users he is not there."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._allowed = self._asking = False  # by a rule that may be there
        self._until_s = float("-inf")  # when the last one was gone for certain
        self._number = 0
        self._grace_s = grace_s(cluster.plan)
        self._insists_until_s = float("-inf")
        self._has_written = False

    def begin(self) -> None:
        """He tries, until nobody writes any more."""
        process, machine = self._cluster.client(GUEST)
        self._cluster.run_client(process, self._try(machine))

    # -- the rule

    @property
    def has_something_to_lose(self) -> bool:
        """A rule that is there, as far as is known, and records that he could read without it."""
        return self._allowed and self._has_written and not self._asking

    def insist(self, for_s: float) -> None:
        """He reads what he may, or might, and tries nothing else meanwhile; nor does his rule change."""
        self._insists_until_s = self._cluster.now_s + for_s

    @property
    def _insists(self) -> bool:
        return self._cluster.now_s < self._insists_until_s

    def change(self) -> bool:
        """An administrator gives him the rule, or takes it away; whether that comes to pass is not waited for."""
        if self._asking or self._insists:
            return False
        self._asking = True
        self._workload.command(self._revoke if self._allowed else self._grant)
        return True

    async def _grant(self, admin: Admin) -> None:
        self._allowed = True
        try:
            await admin.create_access_rules([GUESTS_RULE])
        finally:
            self._asking = False

    async def _revoke(self, admin: Admin) -> None:
        try:
            await admin.delete_access_rules([AccessRuleFilter(principal=GUESTS_RULE.principal)])
            self._allowed, self._until_s = False, self._cluster.now_s
        finally:
            self._asking = False

    def _check_allowed(self, what: str) -> None:
        if not self._allowed and self._cluster.now_s > self._until_s + self._grace_s:
            raise Violation("V22", f"{what}, and no rule allows that since {self._until_s:.3f}")

    # -- what he tries

    async def _try(self, machine: ClientMachine) -> None:
        streaming = asyncio.ensure_future(self._write_on(machine))
        while self._workload.writing:
            if self._insists:
                with contextlib.suppress(MinilogError):
                    await self._read_at(machine, TopicPartition(TOPIC, 0))
                await asyncio.sleep(PAUSE_S)
                continue
            with contextlib.suppress(MinilogError):
                await self._write_elsewhere(machine)
            with contextlib.suppress(MinilogError):
                await self._read(machine)
            with contextlib.suppress(MinilogError):
                await self._look(machine)
            await asyncio.sleep(PAUSE_S)
        await streaming

    def _producer(self, machine: ClientMachine) -> Producer:
        settings = self._workload.settings_of(GUEST, delivery_timeout_ms=WITHIN_MS, max_block_ms=WITHIN_MS, linger_ms=0)
        return Producer(settings, machine)

    async def _write_on(self, machine: ClientMachine) -> None:
        """To the topic that he may write now and then, by one stream as long as it lasts."""
        while self._workload.writing:
            with contextlib.suppress(MinilogError):
                async with self._producer(machine) as producer:
                    while self._workload.writing:
                        await self._write_once(producer)
                        await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(PAUSE_S)

    async def _write_once(self, producer: Producer) -> None:
        self._number += 1
        told = await (await producer.send(TOPIC, b"guest:%d" % self._number, partition=0))
        self._has_written = True
        self._check_allowed(f"the guest's record is acknowledged at {told.offset} of {TOPIC}")

    async def _write_elsewhere(self, machine: ClientMachine) -> None:
        at = next(iter(self._workload.keys))
        async with self._producer(machine) as producer:
            told = await (await producer.send(at.topic, b"guest", partition=at.partition))
        raise Violation("V22", f"the guest's record is acknowledged at {told.offset} of {at}")

    async def _read(self, machine: ClientMachine) -> None:
        for at in (TopicPartition(TOPIC, 0), next(iter(self._workload.keys))):
            await self._read_at(machine, at)

    async def _read_at(self, machine: ClientMachine, at: TopicPartition) -> None:
        settings = self._workload.settings_of(GUEST, request_timeout_ms=WITHIN_MS)
        async with Consumer(settings, machine) as consumer:
            await consumer.assign([TopicPartition(at.topic, at.partition, 0)])
            for record in await consumer.poll(1.0):
                what = f"the guest is handed the record at {record.offset} of {at}"
                if at.topic != TOPIC:
                    raise Violation("V22", what)
                self._check_allowed(what)

    async def _look(self, machine: ClientMachine) -> None:
        async with Admin(self._workload.settings_of(GUEST, request_timeout_ms=WITHIN_MS), machine) as admin:
            topics = set(await admin.list_topics())
            if topics - {TOPIC}:
                raise Violation("V22", f"the guest is told of {sorted(topics)}")
            if topics:
                self._check_allowed(f"the guest is told of {sorted(topics)}")
            try:
                await admin.create_access_rules([_allowing(GUEST, ResourceKind.TOPIC, "*")])
            except AuthorizationFailed:
                return
            raise Violation("V22", "the guest may give himself rules")

    # -- the end

    async def check(self) -> None:
        """Nothing befalls the cluster any more. Raises Violation."""
        self._grace_s = CALM_GRACE_S
        process, machine = self._cluster.client("host")
        checking = self._cluster.loop.spawn(process, self._check(machine))
        await asyncio.wait([checking])
        checking.result()

    async def _check(self, machine: ClientMachine) -> None:
        deadline_s = self._cluster.now_s + self._cluster.plan.liveness_s
        administrator = self._workload.settings_of(ADMIN, request_timeout_ms=WITHIN_MS)
        async with Admin(administrator, machine) as admin, self._producer(machine) as before:
            await self._until(deadline_s, "the guest is allowed", admin, self._grant)
            await self._until(deadline_s, "the guest, who may, writes", admin, lambda _: self._write_once(before))
            await self._until(deadline_s, "the guest is not allowed any more", admin, self._revoke)
            while self._cluster.now_s < self._until_s + CALM_GRACE_S + 2.0:
                with contextlib.suppress(MinilogError):
                    await self._write_once(before)
                await asyncio.sleep(PAUSE_S)
            with contextlib.suppress(MinilogError):  # for him there is no such topic any more
                await self._write_anew(machine)

    async def _until(self, deadline_s: float, what: str, admin: Admin, ask: Asked) -> None:
        while True:
            try:
                await ask(admin)
            except MinilogError as error:
                if self._cluster.now_s > deadline_s:
                    raise Violation("V19", f"in vain: {what}: {error}") from error
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _write_anew(self, machine: ClientMachine) -> None:
        async with self._producer(machine) as producer:
            await self._write_once(producer)
