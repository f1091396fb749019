"""The preferred replica leads again where it can: by command, and by itself at every check."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minilog.partition_key import PartitionKey
from tests.rules import proves
from tests.unit.controller.cluster import IMBALANCE_CHECK_MS, ControllerCluster, error_of, led_by

pytestmark = proves("MD.50")


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    return cluster


def all_moved_away(cluster: ControllerCluster, count: int, *, rejoined: bool = True) -> list[PartitionKey]:
    keys = [led_by(cluster, 2) for _ in range(count)]
    cluster.restart(2, clean=True)
    for key in keys:
        assert cluster.state(key).leader_id != 2
        if rejoined:
            assert error_of(cluster.propose(key, [1, 2, 3])) is None
    return keys


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
