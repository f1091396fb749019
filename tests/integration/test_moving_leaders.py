"""Leaders move under an idempotent producer: by command, by themselves, at controlled shutdowns. Nobody sees an error.

What is judged is the whole history: nothing failed, nothing unknown, nothing lost or doubled.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from minilog import TopicPartition
from minilog.errors import PreferredLeaderNotAvailable
from tests.cluster import Cluster, running_cluster
from tests.integration.moving import PARTITIONS, Writing, admin, create, leaders, preferred, wait_in_sync, wait_until

# So that leaders do not move by themselves while a test moves them.
BY_COMMAND = {"auto.leader.rebalance.enable": "false"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("moving"), settings=BY_COMMAND) as cluster:
        yield cluster


def test_the_preferred_leader_leads_again_by_command(cluster: Cluster) -> None:
    create(cluster, "by-command")
    with Writing(cluster, "by-command"), admin(cluster) as client:
        cluster.stop(3)
        assert 3 not in leaders(cluster, "by-command")
        failed = client.elect_leaders([TopicPartition("by-command", p) for p in range(PARTITIONS)])
        assert {type(error) for error in failed.values()} == {type(None), PreferredLeaderNotAvailable}
        cluster.start(3)
        wait_in_sync(cluster, "by-command")
        assert set(client.elect_leaders([TopicPartition("by-command", 0)]).values()) == {None}
        assert set(client.elect_leaders().values()) == {None}
        assert leaders(cluster, "by-command") == preferred(cluster, "by-command")


def test_rolling_controlled_shutdowns_cost_no_error(cluster: Cluster) -> None:
    create(cluster, "rolling")
    with Writing(cluster, "rolling") as writer:
        for broker_id in (1, 2, 3):
            writer.wait_for_more(300)
            assert cluster.stop(broker_id) == {broker_id: 0}
            assert broker_id == 1 or broker_id not in leaders(cluster, "rolling")
            cluster.start(broker_id)
            cluster.wait_running()
            wait_in_sync(cluster, "rolling")


def test_preferred_leaders_lead_again_by_themselves(tmp_path: pathlib.Path) -> None:
    settings = {"leader.imbalance.check.interval.ms": "500"}
    with running_cluster(tmp_path, settings=settings) as cluster:
        create(cluster, "by-itself")
        with Writing(cluster, "by-itself"):
            cluster.stop(2)
            cluster.start(2)
            wait_until(lambda: leaders(cluster, "by-itself") == preferred(cluster, "by-itself"))
