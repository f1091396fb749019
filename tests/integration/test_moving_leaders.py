"""Leaders move under an idempotent producer: by command, by themselves, at controlled shutdowns. Nobody sees an error.

What is judged is the whole history: nothing failed, nothing unknown, nothing lost or doubled.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic, TopicPartition
from minilog.errors import PreferredLeaderNotAvailable
from tests.cluster import Cluster, running_cluster
from tests.integration.history import Writer, read_all

PARTITIONS = 4
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


class Writing:
    """A writer in a thread of its own; on leaving, its history must be without any error."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic

    def __enter__(self) -> Writer:
        self._writer = Writer(self._cluster.bootstrap_servers, self._topic)
        self._writer.wait_for_more(200)
        return self._writer

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self._writer.wait_for_more(200)
        history = self._writer.stop()
        if error is None:
            assert history.failed == {}
            assert history.unknown == set()
            assert history.judge(read_all(self._cluster.bootstrap_servers, self._topic)) == []


def admin(cluster: Cluster) -> Admin:
    return Admin({"bootstrap.servers": cluster.bootstrap_servers})


def create(cluster: Cluster, topic: str, replication_factor: int = 3) -> None:
    with admin(cluster) as client:
        client.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=replication_factor)])


def leaders(cluster: Cluster, topic: str) -> list[int | None]:
    with admin(cluster) as client:
        return [each.leader for each in client.describe_topics([topic])[0].partitions]


def preferred(cluster: Cluster, topic: str) -> list[int]:
    with admin(cluster) as client:
        return [each.replicas[0] for each in client.describe_topics([topic])[0].partitions]


def wait_in_sync(cluster: Cluster, topic: str) -> None:
    def in_sync() -> bool:
        with admin(cluster) as client:
            (found,) = client.describe_topics([topic])
        return all(each.leader is not None and set(each.isr) == set(each.replicas) for each in found.partitions)

    wait_until(in_sync)


def wait_until(holds: object, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.05)
