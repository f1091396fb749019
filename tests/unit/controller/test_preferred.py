"""The preferred replica leads again where it can: by command, and by itself at every check."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minilog.errors import PreferredLeaderNotAvailable, UnknownTopicOrPartition
from minilog.partition_key import PartitionKey
from tests.rules import proves
from tests.unit.controller.cluster import IMBALANCE_CHECK_MS, ControllerCluster, error_of, led_by

pytestmark = proves("MD.50")


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    return cluster


def moved_away(cluster: ControllerCluster, *, rejoined: bool = True) -> PartitionKey:
    """Broker 2 is the preferred leader, another leads; 2 is alive and, where `rejoined`, in the ISR."""
    (key,) = all_moved_away(cluster, 1, rejoined=rejoined)
    return key


def all_moved_away(cluster: ControllerCluster, count: int, *, rejoined: bool = True) -> list[PartitionKey]:
    keys = [led_by(cluster, 2) for _ in range(count)]
    cluster.restart(2, clean=True)
    for key in keys:
        assert cluster.state(key).leader_id != 2
        if rejoined:
            assert error_of(cluster.propose(key, [1, 2, 3])) is None
    return keys


def test_by_command_the_first_replica_leads_again_in_a_new_leader_epoch(cluster: ControllerCluster) -> None:
    key = moved_away(cluster)
    before = cluster.state(key)
    (result,) = cluster.elect(before.topic_name)
    assert (error_of(result), result.leader_id) == (None, 2)
    after = cluster.state(key)
    assert (after.leader_id, after.leader_broker_epoch) == (2, cluster.epoch(2))
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch + 1, before.partition_epoch + 1)
    assert after.in_sync_replicas == (2, *(broker for broker in after.replicas if broker != 2))


def test_where_it_leads_already_nothing_changes(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    before = cluster.state(key)
    (result,) = cluster.elect(before.topic_name, partitions=(0,))
    assert (error_of(result), result.leader_id) == (None, 2)
    assert cluster.state(key) == before


def test_outside_the_isr_or_not_running_it_is_not_available(cluster: ControllerCluster) -> None:
    key = moved_away(cluster, rejoined=False)
    before = cluster.state(key)
    (result,) = cluster.elect(before.topic_name)
    assert isinstance(error_of(result), PreferredLeaderNotAvailable)
    assert cluster.state(key) == before
    cluster.propose(key, [1, 2, 3])
    cluster.fence(2)
    (result,) = cluster.elect(before.topic_name)
    assert isinstance(error_of(result), PreferredLeaderNotAvailable)


def test_each_partition_is_decided_for_itself(cluster: ControllerCluster) -> None:
    moved = moved_away(cluster)
    name = cluster.state(moved).topic_name
    there, out_of_range, elsewhere = [*cluster.elect(name, partitions=(0, 7)), *cluster.elect("nowhere")]
    assert error_of(there) is None
    assert isinstance(error_of(out_of_range), UnknownTopicOrPartition)
    assert isinstance(error_of(elsewhere), UnknownTopicOrPartition)
    assert cluster.state(moved).leader_id == 2


def test_without_topics_all_partitions_are_asked_for(cluster: ControllerCluster) -> None:
    keys = all_moved_away(cluster, 2)
    results = cluster.elect()
    assert {result.name for result in results} == {topic.name for topic in cluster.image.topics.values()}
    assert [cluster.state(key).leader_id for key in keys] == [2, 2]


def test_by_itself_it_leads_again_at_the_next_check(cluster: ControllerCluster) -> None:
    key = moved_away(cluster)
    beat(cluster, IMBALANCE_CHECK_MS * 0.9)
    assert cluster.state(key).leader_id != 2
    beat(cluster, IMBALANCE_CHECK_MS * 0.2)
    assert cluster.state(key).leader_id == 2


def test_one_that_cannot_lead_is_left_alone_until_it_can(cluster: ControllerCluster) -> None:
    key = moved_away(cluster, rejoined=False)
    before = cluster.state(key)
    beat(cluster, IMBALANCE_CHECK_MS * 1.1)
    assert cluster.state(key) == before
    cluster.propose(key, [1, 2, 3])
    beat(cluster, IMBALANCE_CHECK_MS)
    assert cluster.state(key).leader_id == 2


def test_a_check_moves_a_bounded_number_of_leaders_in_one_batch(
    cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minilog_broker.controller.preferred.MAX_ELECTIONS", 2)
    keys = all_moved_away(cluster, 3)
    batches = len(cluster.batches)
    beat(cluster, IMBALANCE_CHECK_MS * 1.1, until=lambda: len(cluster.batches) > batches)
    assert sum(cluster.state(key).leader_id == 2 for key in keys) == 2
    assert len(cluster.batches) == batches + 1
    beat(cluster, 2_000)
    assert all(cluster.state(key).leader_id == 2 for key in keys)


def beat(cluster: ControllerCluster, by_ms: float, until: Callable[[], bool] = lambda: False) -> None:
    """Time passes, and every broker is heard."""
    end_ms = cluster.now_ms + by_ms
    while cluster.now_ms < end_ms and not until():
        cluster.advance(min(500.0, end_ms - cluster.now_ms))
        for broker_id in cluster.image.brokers:
            cluster.heartbeat(broker_id)
