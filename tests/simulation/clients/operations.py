"""What operators and curious clients do meanwhile: topics come and go, leaders and replicas move, ends are asked for,
and groups keep their offsets.

V8     "latest" never goes back for one client; what each epoch may answer is judged on wires (judge/partition.py)
level  it never goes down, and no broker is registered that does not support it
group  a committed offset that was answered is what the group has, until it commits another
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from minilog.aio import Admin, Consumer
from minilog.errors import MinilogError, UnsupportedVersion
from minilog.types import NewTopic, TopicPartition
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

GROUP = "group"
LATEST_COUNT = 20


class Operations:
    """See the module's text. Each is begun, and not waited for: it may fail, or come to pass unheard of."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._random = cluster.random
        self._number = 0
        self._committed: dict[TopicPartition, int] = {}
        self._group_is_used = False
        self._level = 0

    def elect(self) -> None:
        """Preferred leaders lead again."""
        self._workload.command(lambda admin: admin.elect_leaders(None))

    def reassign(self) -> None:
        """A partition moves to other replicas, as many as it has."""
        plan = self._cluster.plan
        at = self._random.choice(list(self._workload.keys))
        replicas = self._random.sample(sorted(self._cluster.hosts), plan.replication_factor)
        self._workload.command(lambda admin: admin.alter_partition_reassignments({at: replicas}))

    def topics(self) -> None:
        """One comes, and goes."""
        self._number += 1
        name = f"short-lived-{self._number}"

        async def come_and_go(admin: Admin) -> None:
            await admin.create_topics([NewTopic(name, 2, 1)])
            await asyncio.sleep(self._random.uniform(0.0, 1.0))
            await admin.delete_topics([name])

        self._workload.command(come_and_go)

    def upgrade(self) -> None:
        """The level of the cluster goes up, where all brokers support it."""

        async def ask(admin: Admin) -> None:
            least = self._level
            with contextlib.suppress(UnsupportedVersion):
                _, reached = await admin.upgrade_level()
                least = max(least, reached)
            found = await admin.describe_cluster()
            if found.level < least:
                raise Violation("level", f"the cluster is at level {found.level}, and was at {least} before")
            self._level = max(self._level, found.level)
            for each in found.brokers:
                if not each.lowest_level <= found.level <= each.highest_level:
                    raise Violation("level", f"{each} is registered, and the cluster is at level {found.level}")

        self._workload.command(ask)

    def latest(self) -> None:
        """Where a partition ends, asked again and again by a client whose picture of the cluster grows old."""
        at = self._random.choice(list(self._workload.keys))
        pauses_s = [self._random.uniform(0.05, 0.5) for _ in range(LATEST_COUNT)]

        async def ask(admin: Admin) -> None:
            least = 0
            for pause_s in pauses_s:
                with contextlib.suppress(MinilogError):
                    least = await self._ask_latest(admin, at, least)
                await asyncio.sleep(pause_s)

        self._workload.command(ask)

    async def _ask_latest(self, admin: Admin, at: TopicPartition, least: int) -> int:
        """Who was deposed and does not know it may tell one client less than its successor tells another."""
        key = self._workload.keys[at]
        found = (await admin.list_offsets({at: "latest"}))[at]
        if found is None or self._workload.may_have_lost(key):
            return 0
        if found < least:
            raise Violation("V8", f"{at} ends at {found}, and one client was told {least} before", key=key)
        return found

    def group(self) -> None:
        """One member of a group at a time looks where the group is, and commits another offset."""
        if self._group_is_used:
            return
        self._group_is_used = True
        self._number += 1
        process, machine = self._cluster.client(f"g{self._number}")
        self._cluster.run_client(process, self._use_group(machine))

    async def _use_group(self, machine: ClientMachine) -> None:
        at = self._random.choice(list(self._workload.keys))
        settings = self._workload.settings(group_id=GROUP, request_timeout_ms=5_000, enable_auto_commit=False)
        known = self._committed.get(at)
        try:
            async with Consumer(settings, machine) as consumer:
                await consumer.assign([at])
                found = (await consumer.committed([at]))[at]
                if known is not None and found != known:
                    text = f"the group is at {found} of {at}, and {known} was committed last"
                    raise Violation("V15", text, key=self._workload.keys[at])
                offset = self._workload.acknowledged_end.get(self._workload.keys[at], 0)
                self._committed.pop(at, None)  # unknown, until it is answered
                await consumer.commit({at: offset})
                self._committed[at] = offset
        except MinilogError as error:
            self._cluster.note(f"the group: {type(error).__name__}: {error}")
        finally:
            self._group_is_used = False
