"""Brokers report copies whose compaction is late, and the controller shows them with the partition."""

from __future__ import annotations

from tests.unit.controller.cluster import ControllerCluster


def test_the_last_heartbeat_of_each_replica_counts() -> None:
    cluster = ControllerCluster()
    cluster.start_all()
    key = cluster.created(replication_factor=2)
    state = cluster.image.partitions[key]
    first, second = state.replicas
    (stranger,) = set(cluster.image.brokers) - set(state.replicas)
    for broker_id in (second, stranger):
        cluster.heartbeat(broker_id, late_cleanings=[key])
    assert cluster.controller.reported(cluster.now_ms).late_cleanings_of(state) == [second]
    cluster.heartbeat(first, late_cleanings=[key])
    cluster.heartbeat(second)
    reported = cluster.controller.reported(cluster.now_ms)
    assert reported.late_cleanings_of(state) == [first]
    assert second not in reported.late_cleanings, "a broker without a late copy takes no place"
