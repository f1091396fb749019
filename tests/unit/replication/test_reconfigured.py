"""Settings of replication that change while the broker runs count for sessions and timers under way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster, quick_settings
from tests.unit.replication.test_moving_replicas import RATE, added, end, produced, without

pytestmark = proves("MD.27")

LONG_MS, SHORT_MS = 60_000.0, 1_000.0


def reconfigure(cluster: ReplicaCluster, broker_id: int, **changes: Any) -> None:
    broker = cluster[broker_id]
    broker.manager.reconfigured(replace(cluster.settings, **changes), cluster.now_ms)
    broker.run()


def with_a_silent_follower(lag_ms: float) -> ReplicaCluster:
    """Broker 3 is cut off from the leader, and the log has grown since."""
    cluster = ReplicaCluster(settings=quick_settings(replica_lag_time_max_ms=lag_ms))
    produced(cluster, 2)
    cluster.cut.add((3, 1))
    for link in list(cluster.links()):
        if (link.follower_id, link.leader_id) == (3, 1):
            cluster.break_link(link)
    cluster.settle()
    produced(cluster, 1)
    return cluster


def isr(cluster: ReplicaCluster) -> list[int]:
    return sorted(cluster.controller.partitions[KEY].in_sync_replicas)


def test_a_shorter_lag_time_counts_for_who_is_late_already() -> None:
    cluster = with_a_silent_follower(LONG_MS)
    cluster.advance(2 * SHORT_MS)
    assert isr(cluster) == [1, 2, 3]
    reconfigure(cluster, 1, replica_lag_time_max_ms=SHORT_MS)
    cluster.advance(SHORT_MS)
    assert isr(cluster) == [1, 2]


def test_a_longer_lag_time_keeps_who_would_be_put_out() -> None:
    cluster = with_a_silent_follower(SHORT_MS)
    reconfigure(cluster, 1, replica_lag_time_max_ms=LONG_MS)
    cluster.advance(10 * SHORT_MS)
    assert isr(cluster) == [1, 2, 3]
    cluster.advance(LONG_MS)
    assert isr(cluster) == [1, 2]


def joining(own_rate: int | None) -> ReplicaCluster:
    """Broker 3, whose own throttle is that, has begun to fetch 500 records."""
    settings = quick_settings(replica_fetch_max_bytes=20_000, follower_replication_throttled_rate_bytes=own_rate)
    cluster = ReplicaCluster(settings=settings)
    without(cluster, 3)
    cluster.settle()
    produced(cluster, 500)
    added(cluster, 3)
    while end(cluster, 3) < 5:
        cluster.steps()[0]()
    return cluster


def test_the_brokers_own_throttle_holds_for_what_it_fetches_now() -> None:
    cluster = joining(None)
    reconfigure(cluster, 3, follower_replication_throttled_rate_bytes=RATE)
    cluster.settle()
    assert end(cluster, 3) < 100
    cluster.advance(8_000)
    assert end(cluster, 3) == 500


def test_a_throttle_that_is_lifted_lets_go_at_once() -> None:
    cluster = joining(RATE)
    cluster.settle()
    assert end(cluster, 3) < 40
    reconfigure(cluster, 3, follower_replication_throttled_rate_bytes=None)
    cluster.settle()
    assert end(cluster, 3) == 500


def test_a_session_has_the_credit_of_its_opening() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=20_000))
    produced(cluster, 2)
    (session,) = cluster[3].manager._leaders.by_leader.values()
    reconfigure(cluster, 3, replica_fetch_max_bytes=50_000)
    assert session._credit.window_bytes == 20_000
    (link,) = [link for link in cluster.links() if (link.follower_id, link.leader_id) == (3, 1)]
    cluster.break_link(link)
    cluster.advance(1_000)
    assert session._credit.window_bytes == 50_000
