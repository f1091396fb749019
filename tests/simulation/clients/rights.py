"""Users with several rules each, which come and go, who try every call all the time, and of whom one reads two topics
by a stream that lasts, and another writes them; an administrator who gives and takes rules, passwords and delegation
tokens; and a program that writes what they read. What they are answered is judged on wires (judge/rights.py).

V22    when nothing befalls the cluster any more, they are not refused what a rule allows
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from minilog.admin.security import DelegationToken, UserDeletion, UserUpsertion
from minilog.aio import Admin, Consumer, Producer
from minilog.config import parse_config
from minilog.errors import AuthenticationFailed, AuthorizationFailed, MinilogError, TopicAlreadyExists
from minilog.net.network_client import NetworkClient
from minilog.security.access_rules import AccessRule, AccessRuleFilter, Operation, Pattern, Permission, ResourceKind
from minilog.types import NewTopic, TopicPartition
from tests.judges.violation import Violation
from tests.simulation.clients.probes import PROBES, STUBS, Resource
from tests.simulation.judge.rules import Asker
from tests.simulation.machines.identities import ADMIN, APP, ITERATIONS, MECHANISM

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.judge.rights import Rights
    from tests.simulation.machines.machine import ClientMachine

TOPICS = ("rights-0", "rights-1")  # and so are named what groups, transactions and tokens they ask for
HIDDEN = "t0"  # no rule of theirs lets them see it, and a group that they may look at has an offset of it
MADE_UP = Resource("nobody-made-this", b"\x07" * 16)
READER = "alice"
HOSTS = {READER: "10.0.0.1", "bob": "10.0.0.2"}  # each at a host of its own: rules name addresses
PAUSE_S, STREAM_PAUSE_S, CHANGE_S, SETTLE_S, AGAIN_S = 0.2, 0.4, 0.5, 2.5, 0.5
WITHIN_MS = 2_000
MADE_S = 60.0  # nothing befalls the cluster then
TOKEN_SHARE, PASSWORD_SHARE, GONE_SHARE, EXPIRE_SHARE = 0.06, 0.05, 0.05, 0.06  # of an administrator's changes
TOKEN_CALLS = [path for path in PROBES if "DelegationToken" in path]
_O, _K, _L, _P = Operation, ResourceKind, Pattern.LITERAL, Pattern.PREFIXED
_ALLOW, _DENY = Permission.ALLOW, Permission.DENY
Settings = Callable[[], dict[str, object] | None]
"""Of the next login; None: there is nothing to log in with."""
_Menu = tuple[tuple[Permission, Operation, ResourceKind, str, Pattern, str], ...]
OFTEN, FIRST = 4, 7  # so many of the menu are changed more often, and of so many those that allow are there at first
MENU: _Menu = (
    (_ALLOW, _O.READ, _K.TOPIC, "rights-0", _L, "*"),
    (_ALLOW, _O.READ, _K.TOPIC, "rights-1", _L, "*"),
    (_ALLOW, _O.WRITE, _K.TOPIC, "rights-", _P, "*"),
    (_DENY, _O.READ, _K.TOPIC, "rights-", _P, "10.0.0.1"),
    (_ALLOW, _O.READ, _K.GROUP, "*", _L, "*"),
    (_ALLOW, _O.CREATE, _K.TOPIC, "nobody", _L, "*"),  # as whose name begins what nobody made
    (_ALLOW, _O.ALTER, _K.CLUSTER, "minilog-cluster", _L, "10.0.0.9"),  # where nobody is
    (_DENY, _O.WRITE, _K.TOPIC, "rights-1", _L, "*"),
    (_ALLOW, _O.ALL, _K.TOPIC, "rights-1", _L, "10.0.0.2"),
    (_ALLOW, _O.DESCRIBE, _K.TOPIC, "*", _L, "10.0.0.9"),
    (_ALLOW, _O.CREATE, _K.TOPIC, "rights", _P, "*"),
    (_ALLOW, _O.ALL, _K.GROUP, "rights-", _P, "*"),
    (_DENY, _O.DESCRIBE, _K.GROUP, "rights-0", _L, "*"),
    (_ALLOW, _O.WRITE, _K.TRANSACTIONAL_ID, "rights", _P, "*"),
    (_ALLOW, _O.DESCRIBE, _K.CLUSTER, "minilog-cluster", _L, "*"),
    (_ALLOW, _O.ALTER, _K.CLUSTER, "minilog-cluster", _L, "10.0.0.1"),
    (_DENY, _O.ALL, _K.CLUSTER, "minilog-cluster", _L, "*"),
    (_ALLOW, _O.ALTER_CONFIGS, _K.CLUSTER, "minilog-cluster", _L, "*"),
)


def rules_of(user: str) -> list[AccessRule]:
    """All that may be given to a user."""
    return [
        AccessRule(f"User:{user}", host, operation, kind, name, pattern, permission)
        for permission, operation, kind, name, pattern, host in MENU
    ]


class Subjects:
    """See the module's text. Where a plan has no users they are not there."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._passwords = dict.fromkeys(HOSTS, 0)
        self._given = {user: {each for each in rules_of(user)[:FIRST] if each.permission is _ALLOW} for user in HOSTS}
        self._tokens: dict[str, DelegationToken] = {}
        self._resources = [MADE_UP]

    def begin(self) -> None:
        """An administrator makes it all; then they try, until nobody writes any more."""
        process, machine = self._cluster.client("rights")
        self._cluster.run_client(process, self._administer(machine))

    # -- the administrator

    async def _administer(self, machine: ClientMachine) -> None:
        chance = machine.chance()
        async with Admin(self._workload.settings_of(ADMIN, request_timeout_ms=WITHIN_MS), machine) as admin:
            await self._until_made(admin, self._make, self._hide)
            for user, host in HOSTS.items():
                process, own = self._cluster.client(host)
                self._cluster.run_client(process, self._live(user, own))
            feeding = asyncio.ensure_future(self._feed(machine))
            while self._workload.writing:
                await asyncio.sleep(chance.uniform(0.5, 1.5) * CHANGE_S)
                with contextlib.suppress(MinilogError):  # it may have come to pass all the same
                    await self._change(admin, chance, chance.choice(list(HOSTS)))
            await feeding

    async def _until_made(self, admin: Admin, *makes: Callable[[Admin], Awaitable[None]]) -> None:
        """Each of it is there, and nothing is made by half."""
        while True:
            try:
                for make in makes:
                    await make(admin)
            except MinilogError:
                await asyncio.sleep(AGAIN_S)
            else:
                break
        known = admin._cluster.cache.topics
        self._resources += [Resource(name, known[name].topic_id) for name in TOPICS]

    async def _make(self, admin: Admin) -> None:
        for name in TOPICS:
            with contextlib.suppress(TopicAlreadyExists):
                await admin.create_topics([NewTopic(name, 1, 2, {"min.insync.replicas": "1"})])
        await admin.alter_users([self._upsertion(user) for user in HOSTS])
        await admin.create_access_rules([rule for given in self._given.values() for rule in _ordered(given)])
        await admin.describe_topics(TOPICS)

    async def _hide(self, admin: Admin) -> None:
        """Their group has an offset of a topic that they may not see. Never again where all copies of the group's
        partition were lost with the disk of the only broker in sync."""
        await admin.seek_group(TOPICS[0], {TopicPartition(HIDDEN, 0): "earliest"})

    def _upsertion(self, user: str) -> UserUpsertion:
        return UserUpsertion(user, self._password(user), MECHANISM, ITERATIONS)

    def _password(self, user: str) -> str:
        return f"{user}-{self._passwords[user]}"

    async def _change(self, admin: Admin, chance: random.Random, user: str) -> None:
        drawn = chance.random()
        if drawn < TOKEN_SHARE + PASSWORD_SHARE:
            self._passwords[user] += 1
            await admin.alter_users([self._upsertion(user)])
        elif drawn < TOKEN_SHARE + PASSWORD_SHARE + GONE_SHARE:
            await admin.alter_users([UserDeletion(user)])
            await asyncio.sleep(chance.uniform(0.5, 3.0))
            await admin.alter_users([self._upsertion(user)])
        elif drawn < TOKEN_SHARE + PASSWORD_SHARE + GONE_SHARE + EXPIRE_SHARE:
            token = self._tokens.pop(user, None)
            if token is not None:
                await admin.expire_delegation_token(token.information.token_id)
        else:
            menu = rules_of(user)
            await self._toggle(admin, user, chance.choice(menu[:OFTEN] if chance.random() < 0.5 else menu))

    async def _toggle(self, admin: Admin, user: str, rule: AccessRule) -> None:
        given = self._given[user]
        if rule in given:
            exact = AccessRuleFilter(
                rule.principal, rule.host, rule.operation, rule.resource_kind, rule.name, rule.pattern, rule.permission
            )
            await admin.delete_access_rules([exact])
            given.discard(rule)
        else:
            await admin.create_access_rules([rule])
            given.add(rule)

    async def _feed(self, machine: ClientMachine) -> None:
        """There is always something to read."""
        settings = self._workload.settings_of(APP, delivery_timeout_ms=WITHIN_MS, max_block_ms=WITHIN_MS, linger_ms=0)
        while self._workload.writing:
            with contextlib.suppress(MinilogError):
                async with Producer(settings, machine) as producer:
                    while self._workload.writing:
                        for topic in TOPICS:
                            await producer.send(topic, b"fed", partition=0)
                        await asyncio.sleep(STREAM_PAUSE_S)
            await asyncio.sleep(STREAM_PAUSE_S)

    # -- who tries

    def _settings(self, user: str, **given: object) -> dict[str, object]:
        return self._workload.settings_of(user, **given) | {"sasl.password": self._password(user)}

    async def _live(self, user: str, machine: ClientMachine) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._try(user, machine))
            tasks.create_task(self._try_by_token(user, machine))
            tasks.create_task(self._read(user, machine) if user == READER else self._write(user, machine))

    async def _try(self, user: str, machine: ClientMachine) -> None:
        """Every call, of any broker."""
        await self._ask_on(user, machine, lambda: self._settings(user, request_timeout_ms=WITHIN_MS))

    async def _try_by_token(self, user: str, machine: ClientMachine) -> None:
        """The same by a delegation token of its own."""

        def settings() -> dict[str, object] | None:
            if (token := self._tokens.get(user)) is None:
                return None
            return self._settings(user, request_timeout_ms=WITHIN_MS) | token.client_settings()

        while self._workload.writing:
            if user not in self._tokens:
                with contextlib.suppress(MinilogError):
                    async with Admin(self._settings(user, request_timeout_ms=WITHIN_MS), machine) as admin:
                        self._tokens[user] = await admin.create_delegation_token()
            await self._ask_on(user, machine, settings)
            await asyncio.sleep(STREAM_PAUSE_S)

    async def _ask_on(self, user: str, machine: ClientMachine, settings: Settings) -> None:
        """With one login after the other, each as long as it lasts."""
        chance = machine.chance()
        while self._workload.writing and (given := settings()) is not None:
            client = NetworkClient(parse_config(given), machine)
            with contextlib.suppress(AuthenticationFailed):
                while self._workload.writing:
                    paths = TOKEN_CALLS if "sasl.tokenauth" in given and chance.random() < 0.3 else list(PROBES)
                    path, resource = chance.choice(paths), chance.choice(self._resources)
                    with contextlib.suppress(AuthorizationFailed):
                        await self._probe(client, chance, path, resource)
                    await asyncio.sleep(PAUSE_S)
            await client.close()
            if "sasl.tokenauth" in given:
                self._tokens.pop(user, None)
                return
            await asyncio.sleep(STREAM_PAUSE_S)

    async def _probe(self, client: NetworkClient, chance: random.Random, path: str, resource: Resource) -> Any:
        """The answer, or None where it was lost. Raises AuthorizationFailed, AuthenticationFailed."""
        service, _, method = path.removeprefix("/minilog.v1.").partition("/")
        request = PROBES[path](client.identity, resource)
        address = chance.choice(client.config.bootstrap_servers)
        return await client.call(
            address, lambda channel: getattr(STUBS[service](channel), method)(request, timeout=WITHIN_MS / 1e3)
        )

    async def _read(self, user: str, machine: ClientMachine) -> None:
        """Both topics by one stream, as long as it lasts; where that is refused, one of them."""
        chance, wanted = machine.chance(), list(TOPICS)
        while self._workload.writing:
            try:
                async with Consumer(self._settings(user, request_timeout_ms=WITHIN_MS), machine) as consumer:
                    await consumer.assign([TopicPartition(topic, 0, 0) for topic in wanted])
                    while self._workload.writing:
                        await consumer.poll(0.5)
            except MinilogError:
                wanted = list(TOPICS) if len(wanted) == 1 else [chance.choice(TOPICS)]
            await asyncio.sleep(STREAM_PAUSE_S)

    async def _write(self, user: str, machine: ClientMachine) -> None:
        """To both, by one stream."""
        while self._workload.writing:
            settings = self._settings(user, delivery_timeout_ms=WITHIN_MS, max_block_ms=WITHIN_MS, linger_ms=0)
            with contextlib.suppress(MinilogError):
                async with Producer(settings, machine) as producer:
                    while self._workload.writing:
                        for topic in TOPICS:
                            with contextlib.suppress(AuthorizationFailed):
                                await (await producer.send(topic, b"written", partition=0))
                        await asyncio.sleep(2 * STREAM_PAUSE_S)
            await asyncio.sleep(STREAM_PAUSE_S)

    # -- the end

    async def check(self, rights: Rights) -> None:
        """Nothing befalls the cluster any more. Raises Violation."""
        process, machine = self._cluster.client("rights-at-last")
        making = self._cluster.loop.spawn(process, self._make_again(machine))
        done, _ = await asyncio.wait([making], timeout=MADE_S)
        if not done:
            raise Violation("V22", f"for {MADE_S:.0f} s an administrator could not make the users again")
        making.result()
        checking = []
        for user, host in HOSTS.items():
            process, machine = self._cluster.client(host)
            checking.append(self._cluster.loop.spawn(process, self._check(user, host, machine, rights)))
        await asyncio.wait(checking)
        for each in checking:
            each.result()

    async def _make_again(self, machine: ClientMachine) -> None:
        """Who was deleted is there again."""
        async with Admin(self._workload.settings_of(ADMIN, request_timeout_ms=WITHIN_MS), machine) as admin:
            await self._until_made(admin, self._make)

    async def _check(self, user: str, host: str, machine: ClientMachine, rights: Rights) -> None:
        await asyncio.sleep(SETTLE_S)
        chance = machine.chance()
        client = NetworkClient(parse_config(self._settings(user, request_timeout_ms=WITHIN_MS)), machine)
        for path, probe in PROBES.items():
            resource = chance.choice(self._resources)
            request = probe(client.identity, resource)
            refusals = 0
            while rights.must_be_allowed(Asker(user, host), path, request):
                try:
                    await self._probe(client, chance, path, resource)
                    break
                except (AuthorizationFailed, AuthenticationFailed) as error:
                    refusals += 1
                    if refusals == 3:
                        text = f"{user} is refused {path} of {resource.name}, which rules allow: {error}"
                        raise Violation("V22", text) from error
                    await asyncio.sleep(AGAIN_S)
        await client.close()


def _ordered(rules: set[AccessRule]) -> list[AccessRule]:
    return sorted(rules, key=lambda rule: rule.order)
