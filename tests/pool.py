"""Running clusters that files of tests share: each is lent to one file after another.

A file that only needs some cluster says `cluster = shared_cluster(THREE)`. That fixture is a cluster of the pool.
The pool of a process keeps an idle cluster for the next file that wants the same kind. What is handed on is as new: all
brokers run, topics, groups, queues and transactions are removed, and users, rules, quotas and settings are what they
were. Brokers of `MORTAL` and `SECURED` may have been killed and started again. All others are the same processes. A
test that needs settings of its own, or spoils disks or links, takes a `running_cluster` of its own.

Each process of pytest has a pool, and loadfile gives it any files: `make test` starts ten of these clusters. With
loadgroup by kind there would be four, and the longest process would work for a quarter longer.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from minilog import Admin
from minilog.admin.security import Quota, QuotaAlteration, UserDeletion
from minilog.security.access_rules import AccessRule, AccessRuleFilter
from minilog.types import BrokerSetting
from tests.cluster import Cluster
from tests.secured import SecuredCluster

MOST_IDLE = 4
"""More idle clusters than this would take memory and time from the tests that run."""


@dataclass(frozen=True)
class Kind:
    """What a cluster is started with: files that want the same kind share one."""

    brokers: int = 3
    is_secured: bool = False
    is_mortal: bool = False
    """Its files kill and restart its brokers, and leave them running."""

    def cluster(self, directory: pathlib.Path) -> Cluster:
        """A new one, which has not begun."""
        return (SecuredCluster if self.is_secured else Cluster)(directory, self.brokers)


THREE = Kind()
MORTAL = Kind(is_mortal=True)
SECURED = Kind(is_secured=True, is_mortal=True)


@dataclass(frozen=True)
class Lasting:
    """What a file leaves as it was: the next one would see it."""

    users: list[str]
    rules: list[AccessRule]
    quotas: list[Quota]
    settings: list[BrokerSetting]
    cordoned: list[int]
    processes: dict[int, int]


def lasting(cluster: Cluster, kind: Kind) -> Lasting:
    """What a cluster has of it now. MinilogError where it does not answer."""
    with Admin(cluster.client) as admin:
        return Lasting(
            users=[each.name for each in admin.describe_users()],
            rules=admin.describe_access_rules(),
            quotas=admin.describe_quotas(),
            settings=admin.describe_broker_settings(),
            cordoned=[each.id for each in admin.describe_cluster().brokers if each.cordoned],
            processes={} if kind.is_mortal else {each: process.pid for each, process in cluster.processes.items()},
        )


def sweep(cluster: Cluster, before: Lasting) -> None:
    """Remove what a file has made under names of its own: the same names may come again in another file."""
    with Admin(cluster.client) as admin:
        for transaction in admin.list_transactions():
            if transaction.state == "open":
                admin.abort_transaction(transaction.transactional_id)
        for queue in admin.list_queues():
            admin.delete_queue(queue.queue)
        for group in admin.list_groups():
            admin.delete_group(group.group_id)
        admin.delete_topics(admin.list_topics())
        admin.alter_users([UserDeletion(each.name) for each in admin.describe_users() if each.name not in before.users])
        if admin.describe_access_rules() != before.rules:
            admin.delete_access_rules([AccessRuleFilter()])
            admin.create_access_rules(before.rules)
        made = [each for each in admin.describe_quotas() if each not in before.quotas]
        admin.alter_quotas([QuotaAlteration(each.entity, each.key, None) for each in made])


class ClusterPool:
    """The clusters of one process of tests."""

    def __init__(self, directory: Callable[[], pathlib.Path]) -> None:
        self._directory = directory
        self._idle: list[tuple[Kind, Cluster]] = []
        """The one that was given back last is the last."""

    @contextlib.contextmanager
    def lent(self, kind: Kind) -> Iterator[Cluster]:
        """A cluster that runs, and that nobody else uses within the block."""
        cluster = self._found(kind) or self._started(kind)
        try:
            before = lasting(cluster, kind)
            yield cluster
            cluster.wait_running()
            sweep(cluster, before)
            after = lasting(cluster, kind)
            assert after == before, "a shared cluster is given back as it was lent: take one of your own, or clean up"
        except BaseException:
            cluster.end()
            raise
        self._idle.append((kind, cluster))
        while len(self._idle) > MOST_IDLE:
            self._idle.pop(0)[1].end()

    def _found(self, kind: Kind) -> Cluster | None:
        """An idle one of this kind, if all its processes live."""
        for each in [each for each in self._idle if each[0] == kind]:
            self._idle.remove(each)
            if all(process.poll() is None for process in each[1].processes.values()):
                return each[1]
            each[1].end()
        return None

    def _started(self, kind: Kind) -> Cluster:
        cluster = kind.cluster(self._directory())
        try:
            cluster.start()
            cluster.wait_running()
        except BaseException:
            cluster.end()
            raise
        return cluster

    def close(self) -> None:
        """All processes of all idle clusters end."""
        while self._idle:
            self._idle.pop()[1].end()


def shared_cluster(kind: Kind) -> Any:
    """The fixture of a module: a cluster of this kind, lent by the fixture `cluster_pool`."""

    @pytest.fixture(scope="module")
    def cluster(cluster_pool: ClusterPool) -> Iterator[Cluster]:
        with cluster_pool.lent(kind) as running:
            yield running

    return cluster
