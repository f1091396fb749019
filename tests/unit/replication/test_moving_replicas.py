"""Replicas come and go: what is known of one that went never counts again, and what is added may be throttled."""

from __future__ import annotations

import pytest

from minilog.partition_key import PartitionKey
from minilog_broker.replication.follower.throttle import ReplicationThrottle
from tests.rules import proves
from tests.unit.replication.broker import batch
from tests.unit.replication.cluster import KEY, TOPIC_ID, ReplicaCluster, quick_settings

pytestmark = proves("ISR.8")

OTHER = PartitionKey(TOPIC_ID, 1)
RATE = 100_000


def without(cluster: ReplicaCluster, broker_id: int, key: PartitionKey = KEY) -> None:
    """It is no replica any more: a higher leader epoch, as the controller has it (election.py)."""
    state = cluster.controller.partitions[key]
    kept = tuple(each for each in state.replicas if each != broker_id)
    in_sync = tuple(each for each in state.in_sync_replicas if each != broker_id)
    cluster.controller.set_state(key, replicas=kept, in_sync_replicas=in_sync, leader_epoch=state.leader_epoch + 1)


def added(cluster: ReplicaCluster, broker_id: int, key: PartitionKey = KEY, throttle: int = 0) -> None:
    replicas = (*cluster.controller.partitions[key].replicas, broker_id)
    cluster.controller.set_state(
        key, replicas=replicas, adding_replicas=(broker_id,), throttle_bytes_per_second=throttle
    )


def produced(cluster: ReplicaCluster, count: int, size_bytes: int = 1_000, key: PartitionKey = KEY) -> None:
    for _ in range(count):
        cluster.produce(1, batch(size_bytes=size_bytes, key=key), key=key)
    cluster.settle()


def end(cluster: ReplicaCluster, broker_id: int, key: PartitionKey = KEY) -> int:
    log = cluster[broker_id].logs.get(key)
    return 0 if log is None else log.log_end_offset


# -- coming and going


def test_a_replica_that_went_and_came_back_starts_with_nothing() -> None:
    cluster = ReplicaCluster()
    produced(cluster, 5)
    without(cluster, 3)
    cluster.settle()
    assert KEY not in cluster[3].logs
    added(cluster, 3)
    cluster.settle()
    assert end(cluster, 3) == 5
    assert sorted(cluster.controller.partitions[KEY].in_sync_replicas) == [1, 2, 3]


@proves("MD.53")
def test_a_leader_that_sees_only_the_end_of_both_counts_nothing_of_before() -> None:
    """Mutant 8, where the two changes reach the leader as one."""
    cluster = ReplicaCluster()
    produced(cluster, 5)
    without(cluster, 3)
    while cluster[3].images_replayed < len(cluster.controller.images):
        cluster.replay(cluster[3])
    while cluster[3].disk:
        cluster[3].work()
    assert KEY not in cluster[3].logs
    added(cluster, 3)
    cluster[1].images_replayed = len(cluster.controller.images) - 1
    cluster.replay(cluster[1])
    leader = cluster[1].leader()
    assert leader is not None
    while cluster[1].disk:
        cluster[1].work()
    assert leader.in_sync.views[3].durable_end is None
    assert not cluster[1].proposals
    cluster.settle()
    assert end(cluster, 3) == 5
    assert 3 in cluster.controller.partitions[KEY].in_sync_replicas


def test_a_replica_that_goes_gives_back_the_credit_of_what_waits_for_its_disk() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=4_000))
    cluster.controller.create(OTHER, (1, 2, 3), 1)
    cluster.settle()
    for _ in range(6):
        cluster.produce(1, batch(size_bytes=1_000))
    held = cluster[3].disk
    for _ in range(200):  # everything but 3's disk
        steps = [step for step in cluster.steps() if step != cluster[3].work]
        if not steps:
            break
        steps[0]()
    assert held, "what 3 received waits for its disk"
    cluster.controller.delete(KEY)
    cluster.replay(cluster[3])
    cluster.settle()
    produced(cluster, 20, key=OTHER)
    assert end(cluster, 3, OTHER) == 20, "the session's credit is whole again"


# -- the throttle


def test_an_added_replica_fetches_at_its_rate() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=20_000))
    without(cluster, 3)
    cluster.settle()
    produced(cluster, 500)
    added(cluster, 3, throttle=RATE)
    size_bytes = sum(header.length for header in cluster[1].headers())
    cluster.settle()
    assert 0 < end(cluster, 3) < 40, "the bucket, and a batch"
    cluster.advance(2_000)
    came_bytes = sum(header.length for header in cluster[3].headers())
    assert 2.0 < came_bytes / RATE < 2.4
    cluster.advance(1_000 * (size_bytes - came_bytes) / RATE + 300)
    assert end(cluster, 3) == 500
    assert 3 in cluster.controller.partitions[KEY].in_sync_replicas


def test_those_of_one_rate_share_it() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=20_000))
    cluster.controller.create(OTHER, (1, 2), 1)
    without(cluster, 3)
    cluster.settle()
    for key in (KEY, OTHER):
        produced(cluster, 300, key=key)
        added(cluster, 3, key, throttle=RATE)
    cluster.advance(2_000)
    came = [sum(header.length for header in cluster[3].headers(key)) for key in (KEY, OTHER)]
    assert 2.0 < sum(came) / RATE < 2.5
    assert min(came) > max(came) / 3, "they take turns"


def test_a_replica_in_the_isr_is_not_throttled() -> None:
    cluster = ReplicaCluster()
    without(cluster, 3)
    cluster.settle()
    added(cluster, 3, throttle=RATE)
    cluster.settle()
    assert 3 in cluster.controller.partitions[KEY].in_sync_replicas
    produced(cluster, 500)
    assert end(cluster, 3) == 500


def test_a_throttled_replica_holds_up_no_other_of_its_session() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=20_000))
    cluster.controller.create(OTHER, (1, 2, 3), 1)
    without(cluster, 3)
    cluster.settle()
    produced(cluster, 500)
    added(cluster, 3, throttle=RATE)
    cluster.settle()
    held_at = end(cluster, 3)
    produced(cluster, 500, key=OTHER)
    assert end(cluster, 3, OTHER) == 500
    assert end(cluster, 3) == held_at


def test_the_brokers_own_limit_counts_too_and_the_lower_one_wins() -> None:
    settings = quick_settings(replica_fetch_max_bytes=20_000, follower_replication_throttled_rate_bytes=RATE)
    cluster = ReplicaCluster(settings=settings)
    without(cluster, 3)
    cluster.settle()
    produced(cluster, 500)
    added(cluster, 3, throttle=100 * RATE)
    cluster.settle()
    assert end(cluster, 3) < 40


def test_a_limit_that_is_lifted_lets_go_at_once() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=20_000))
    without(cluster, 3)
    cluster.settle()
    produced(cluster, 500)
    added(cluster, 3, throttle=RATE)
    cluster.settle()
    assert end(cluster, 3) < 40
    cluster.controller.set_state(KEY, throttle_bytes_per_second=0)
    cluster.settle()
    assert end(cluster, 3) == 500


def test_a_limit_that_is_set_later_holds_for_what_is_under_way() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=20_000))
    without(cluster, 3)
    cluster.settle()
    produced(cluster, 500)
    added(cluster, 3)
    while end(cluster, 3) < 20:
        cluster.steps()[0]()
    cluster.controller.set_state(KEY, throttle_bytes_per_second=RATE)
    cluster.replay(cluster[3])
    cluster.settle()
    assert end(cluster, 3) < 100
    cluster.advance(1_000)
    assert end(cluster, 3) < 300
    cluster.advance(5_000)
    assert end(cluster, 3) == 500


def test_a_new_session_does_not_get_round_the_limit() -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_fetch_max_bytes=20_000))
    without(cluster, 3)
    cluster.settle()
    produced(cluster, 500)
    added(cluster, 3, throttle=RATE)
    cluster.settle()
    before = end(cluster, 3)
    cluster.break_link(cluster[3].links[1])
    cluster.advance(100)
    assert end(cluster, 3) - before < 100


@pytest.mark.parametrize("size_bytes", [100, 10_000, 300_000])
def test_the_mean_is_the_rate_whatever_the_size_of_what_comes(size_bytes: int) -> None:
    throttle, now_ms, came = ReplicationThrottle(RATE), 0.0, 0
    while now_ms < 60_000:
        throttle.take(size_bytes, now_ms)
        came += size_bytes
        now_ms += throttle.wait_ms(now_ms)
    assert RATE * 55 < came < RATE * 65
