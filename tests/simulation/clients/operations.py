"""What operators and curious clients do meanwhile: topics come and go, leaders and replicas move, ends are asked for,
and groups keep their offsets.

V8     "latest" never goes back for one client; what each epoch may answer is judged on wires (judge/partition.py)
rules  what was created and answered is told by whoever is the controller then
level  it never goes down, and no broker is registered that does not support it
V15    a group has the offset whose commit was answered last; or one whose commit may come to pass later, or came after
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog.admin.security import Quota, QuotaAlteration
from minilog.aio import Admin, Consumer
from minilog.errors import MinilogError, UnsupportedVersion
from minilog.security.access_rules import (
    AccessRule,
    AccessRuleFilter,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
)
from minilog.types import NewTopic, TopicPartition
from tests.judges.violation import Violation
from tests.simulation.machines.identities import APP

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

TYPED = "t0"
GROUPS = ("group-0", "group-1", "group-2")  # of several coordinators
LATEST_COUNT = 20
MOST_MEMBERS, ROUNDS, ROUND_PAUSES_S = 3, 40, (0.05, 0.4)
COMMITS_SHARE, OWN_COMMITS_SHARE = 0.2, 0.05  # of a member's rounds; the others are looks
QUOTAS = (
    ("producer_byte_rate", 300_000),
    ("consumer_byte_rate", 300_000),
    ("request_rate", 2_000),
    ("open_transactions", 40),
    ("producer_id_rate", 200),
)
SETTINGS = {  # of which the judge of a cluster has no opinion, whatever their values
    "controlled.shutdown.timeout.ms": ("500", "5000"),
    "delete.delay.ms": ("500", "60000"),
    "follower.replication.throttled.rate.bytes": ("200000", "off"),
    "leader.imbalance.check.interval.ms": ("2000", "4000"),
    "log.level": ("debug", "info", "warning"),
    "metadata.log.max.record.bytes.between.snapshots": ("2000", "16777216"),
    "replica.fetch.max.bytes": ("20000", "16777216"),
    "segment.bytes": ("4096", "65536"),
}
CLEANER_SETTINGS = {  # of plans with compacted topics
    "log.cleaner.enable": ("false", "false", "true"),
    "log.cleaner.io.max.bytes.per.second": ("65536", "1000000"),
    "log.cleaner.backoff.ms": ("50", "1000"),
}
SWIFT_S = 0.9  # a client asks nobody a second time while it waits for an answer no longer than that


@dataclass(slots=True)
class _Place:
    """Where a group is in a partition: `last` was answered last, None: nothing was. `maybe`: what else it may have, now
    or later, for its commit may not have come to pass, or may do so a second time."""

    last: int | None = None
    maybe: set[int] = field(default_factory=set)


class Operations:
    """See the module's text. Each is begun, and not waited for: it may fail, or come to pass unheard of."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._random = cluster.random
        self._number = 0
        self._members = 0
        self._places: defaultdict[tuple[str, TopicPartition], _Place] = defaultdict(_Place)
        self._offset = 0  # of the newest commit: each commits one that is higher than all before
        self._commits = False
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

    def cordon(self) -> None:
        """A broker gets no new replicas, for a while."""
        broker_id = self._random.choice(sorted(self._cluster.hosts))
        pause_s = self._random.uniform(1.0, 6.0)

        async def ask(admin: Admin) -> None:
            await admin.cordon_broker(broker_id)
            await asyncio.sleep(pause_s)
            await admin.uncordon_broker(broker_id)

        self._workload.command(ask)

    def decommission(self) -> bool:
        """A broker that does not vote loses its replicas; now and then it is called off."""
        others = sorted(self._cluster.hosts.keys() - set(self._cluster.voter_ids))
        if not others:
            return False
        broker_id, is_called_off = self._random.choice(others), self._random.random() < 0.2
        throttle, pause_s = self._random.choice((None, 50_000)), self._random.uniform(0.5, 5.0)

        async def ask(admin: Admin) -> None:
            await admin.decommission_broker(broker_id, throttle_bytes_per_second=throttle)
            await asyncio.sleep(pause_s)
            if is_called_off:
                await admin.uncordon_broker(broker_id)

        self._workload.command(ask)
        return True

    def change_voters(self) -> bool:
        """A broker votes, or votes no more; the voters are recorded at the addresses that they have."""
        broker_id = self._random.choice(sorted(self._cluster.hosts))
        change = self._random.choice((Admin.add_voter, Admin.add_voter, Admin.remove_voter, Admin.move_voter))
        if change is Admin.remove_voter and not self._may_vote_no_more(broker_id):
            return False
        self._workload.command(lambda admin: change(admin, broker_id))
        return True

    def _may_vote_no_more(self, broker_id: int) -> bool:
        """Whether an operator would remove it: three voters stay, for one of them may lose its disk."""
        voter_ids = self._cluster.voter_ids
        return len(voter_ids) > 3 and broker_id in voter_ids

    def forget(self) -> None:
        """Any broker: mostly it runs, or has replicas, and stays."""
        broker_id = self._random.choice(sorted(self._cluster.hosts))
        self._workload.command(lambda admin: admin.forget_broker(broker_id))

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

    def secure(self) -> None:
        """An access rule and a quota come, and mostly go."""
        self._number += 1
        user, stays = f"User:u{self._number}", self._random.random() < 0.3
        rule = AccessRule(user, "*", Operation.READ, ResourceKind.TOPIC, "t", Pattern.PREFIXED, Permission.ALLOW)

        async def ask(admin: Admin) -> None:
            await admin.create_access_rules([rule])
            await admin.alter_quotas([QuotaAlteration(user, "connections", 3)])
            rules = await admin.describe_access_rules(AccessRuleFilter(principal=user))
            quotas = await admin.describe_quotas(user)
            if (rules, quotas) != ([rule], [Quota(user, "connections", 3)]):
                raise Violation("rules", f"{rule} and a quota were created, and the controller tells {rules}, {quotas}")
            if not stays:
                await admin.delete_access_rules([AccessRuleFilter(principal=user)])
                await admin.alter_quotas([QuotaAlteration(user, "connections", None)])

        self._workload.command(ask)

    def settings(self) -> None:
        """Settings of a broker, or of all, change while they run, or go back."""
        whose = self._random.choice((None, *sorted(self._cluster.hosts)))
        table = CLEANER_SETTINGS if self._cluster.plan.compacted else SETTINGS
        names = self._random.sample(sorted(table), self._random.choice((1, 1, 2)))
        wanted = {name: self._random.choice((*table[name], None)) for name in names}
        configs = {name: value for name, value in wanted.items() if value is not None}
        unset = [name for name, value in wanted.items() if value is None]
        self._workload.command(
            lambda admin: admin.alter_broker_settings(whose, set_configs=configs, unset_configs=unset)
        )

    def access(self) -> bool:
        """The guest is given a rule, or it is taken away."""
        return self._workload.guest is not None and self._workload.guest.change()

    def quota(self) -> None:
        """The user of all programs gets a quota, more than they need, or loses it."""
        key, most = self._random.choice(QUOTAS)
        value = most if self._random.random() < 0.6 else None
        self._workload.command(lambda admin: admin.alter_quotas([QuotaAlteration(f"User:{APP}", key, value)]))

    def evolve(self) -> bool:
        """The schema of the typed topic gets another version; now and then two evolve it at once."""
        typed = self._workload.typed
        if typed is None:
            return False
        for change in [typed.change(self._random) for _ in range(self._random.choice((1, 1, 2, 3)))]:
            self._workload.command(lambda admin, change=change: admin.evolve_schema(TYPED, change))  # type: ignore[misc]
        return True

    def lie(self) -> bool:
        """A program writes a row by a version of the schema that nobody has made: it is never acknowledged."""
        if self._workload.typed is None:
            return False
        self._number += 1
        process, machine = self._cluster.client(f"liar{self._number}")
        self._cluster.run_client(process, self._workload.lie(process.name, machine, self._random))
        return True

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
            raise Violation("V8", f"{at} ends at {found}, and one client was told {least} before")
        return found

    def group(self) -> bool:
        """Another member of all groups, which looks where they are, and commits other offsets."""
        if self._members == MOST_MEMBERS:
            return False
        self._members += 1
        self._number += 1
        process, machine = self._cluster.client(f"g{self._number}")
        self._cluster.run_client(process, self._use_group(machine))
        return True

    async def _use_group(self, machine: ClientMachine) -> None:
        """One commits at a time, so that it is known whose commit was the last; others look meanwhile. Most
        commits are of a program that begins, and asks who coordinates: others may still ask whoever did before, and has
        nothing to wait for."""
        chance, groups = machine.chance(), contextlib.AsyncExitStack()
        async with groups:
            members = {each: await groups.enter_async_context(self._member(each, machine)) for each in GROUPS}
            for each in members.values():  # of what is assigned metadata is not asked for at each look
                await each.assign([TopicPartition(at.topic, at.partition, 0) for at in self._workload.keys])
            for _ in range(ROUNDS):
                group, at = chance.choice(GROUPS), chance.choice(list(self._workload.keys))
                try:
                    drawn = chance.random()
                    if self._commits or drawn >= COMMITS_SHARE:
                        await self._look(members[group], group)
                    elif drawn < OWN_COMMITS_SHARE:
                        await self._commit(members[group], group, at)
                    else:
                        async with self._member(group, machine) as other:
                            await self._commit(other, group, at)
                except MinilogError as error:
                    self._cluster.note(f"{group}: {type(error).__name__}: {error}")
                await asyncio.sleep(chance.uniform(*ROUND_PAUSES_S))
        self._members -= 1

    def _member(self, group: str, machine: ClientMachine) -> Consumer:
        return Consumer(self._workload.settings(group_id=group, request_timeout_ms=5_000), machine)

    async def _commit(self, consumer: Consumer, group: str, at: TopicPartition) -> None:
        self._commits, began_s = True, self._cluster.now_s
        self._offset += 1
        place, offset = self._places[group, at], self._offset
        place.maybe.add(offset)
        try:
            await consumer.commit({at: offset})
        finally:
            self._commits = False
        place.last = offset
        if self._cluster.now_s - began_s < SWIFT_S:
            place.maybe.discard(offset)

    async def _look(self, consumer: Consumer, group: str) -> None:
        """What it finds was so at its beginning, or has been committed since."""
        newest = self._offset
        lasts = {at: self._places[group, at].last for at in self._workload.keys}
        allowed = {at: {last, *self._places[group, at].maybe} for at, last in lasts.items()}
        for at, found in (await consumer.committed(lasts)).items():
            if found not in allowed[at] and (found is None or found <= newest):
                text = f"{group} is at {found} of {at}, where {lasts[at]} was committed last, and it may be at "
                raise Violation("V15", f"{text}{allowed[at]}")
