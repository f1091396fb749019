"""The tables of states (`WAYS`) say neither too little nor too much: random histories, and what they seldom have, go
every way that a table has, and no other."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minilog.groups import member as member_core
from minilog.groups.member import MemberCore
from minilog_broker.coordinators import coordinator
from minilog_broker.coordinators.coordinator import Coordinator
from minilog_broker.levels import SUPPORTED_LEVELS, ClusterLevel
from minilog_broker.quorum import transitions
from minilog_broker.quorum.transitions import Transitions
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.follower import fetcher, partition
from minilog_broker.replication.follower.fetcher import ReplicaFetcher
from minilog_broker.replication.follower.partition import FollowerPartition
from minilog_broker.replication.sessions import session
from minilog_broker.replication.sessions.session import SessionPartition
from minilog_broker.replication.settings import ReplicationSettings
from tests.unit.coordinators.grouping import SETTINGS
from tests.unit.coordinators.membering import Membering
from tests.unit.coordinators.transacting import TransactionCalls
from tests.unit.quorum import test_future_epochs as future_epochs
from tests.unit.quorum.histories import QuorumHistory
from tests.unit.replication.histories import ReplicationHistory
from tests.unit.replication.test_follower import FollowerBench

SEARCHED = 40  # seeds within which each way is gone
Way = tuple[Any, Any]


@contextmanager
def ways_of(owner: type[Any], attribute: str) -> Iterator[set[Way]]:
    """What each instance's attribute was, and what it was set to; where that is something else."""
    seen: set[Way] = set()
    set_any: Any = owner.__setattr__

    def noting(self: object, name: str, value: object) -> None:
        if name == attribute and hasattr(self, attribute):
            before, after = (getattr(each, "role", each) for each in (getattr(self, attribute), value))
            if before is not after:
                seen.add((before, after))
        set_any(self, name, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, "__setattr__", noting)
        yield seen


def quorum_histories() -> Iterator[None]:
    future_epochs.test_voters_that_stand_far_apart_come_together_after_a_restart(0, (5 * future_epochs.FAR, 0, 0))
    for seed in (27, 15, *range(SEARCHED)):
        QuorumHistory(seed, 3).run()
        yield


def replication_histories() -> Iterator[None]:
    for seed in range(SEARCHED):
        ReplicationHistory(seed).run()
        yield


def sessions_to_leaders() -> Iterator[None]:
    context = ReplicationContext(1, ReplicationSettings(), ClusterLevel(SUPPORTED_LEVELS), broker_epoch=1)
    ReplicaFetcher(2, context, random.Random(0)).follow(FollowerBench().follower, 0.0)  # where broker 2 is nobody knows
    yield from replication_histories()


def followers() -> Iterator[None]:
    bench = FollowerBench()
    bench.diverging(4, 5)  # nothing to cut
    bench.follower.resume()
    bench.follower.found_no_space(0.0)
    bench.follower.disconnect()
    bench.follower.found_no_space(0.0)
    bench.follower.connect()
    bench.diverging(2, 2)
    bench.replica.append_failed()
    bench.follower.found_no_space(0.0)
    bench.follower.resume()
    bench.diverging(2, 2)
    bench.follower.disconnect()
    bench.disk()
    yield from replication_histories()


def coordinators() -> Iterator[None]:
    cluster = TransactionCalls()
    cluster.enlisted()
    cluster.fail_over()
    cluster.coordinator.deposed()
    cluster.coordinator.lead(7, cluster.log_end)
    cluster.coordinator.deposed()
    cluster.coordinator.lead(8, cluster.log_end)
    cluster.coordinator.high_watermark(8, cluster.log_end, cluster.now)
    cluster.coordinator.deposed()
    yield


def members() -> Iterator[None]:
    world = Membering()
    member = world.member("a")
    member.core.leave(member.now_ms, for_good=True)  # nothing to leave
    member.core.subscribe(["orders"])
    member.poll()
    member.core.leave(member.now_ms, for_good=True)  # before the first assignment
    world.settle(300.0)
    member.core.subscribe(["orders"])
    world.settle(300.0)
    member.core.leave(member.now_ms, for_good=True)
    world.settle(300.0)
    member.core.subscribe(["orders"])
    world.settle(300.0)
    member.reaches_coordinator = False
    member.link = None
    world.settle(SETTINGS.session_timeout_ms)  # it fences itself
    world.allows_members = False
    member.reaches_coordinator = True
    world.settle(300.0)  # refused
    yield


@pytest.mark.parametrize(
    ("owner", "attribute", "table", "drive"),
    [
        (Transitions, "state", transitions.WAYS, quorum_histories),
        (Coordinator, "_state", coordinator.WAYS, coordinators),
        (MemberCore, "_state", member_core.WAYS, members),
        (ReplicaFetcher, "state", fetcher.WAYS, sessions_to_leaders),
        (FollowerPartition, "state", partition.WAYS, followers),
        (SessionPartition, "state", session.WAYS, replication_histories),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_a_table_has_every_way_and_no_other(
    owner: type[Any], attribute: str, table: dict[Way, str], drive: Callable[[], Iterator[None]]
) -> None:
    with ways_of(owner, attribute) as seen:
        for _ in drive():
            if seen >= set(table):
                break
    assert seen == set(table)
