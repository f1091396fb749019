"""A broker is retired under a producer: real processes, the command line, a controller that dies in the middle.

Brokers 1 to 3 vote; 4 and 5 do not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from minilog import TopicPartition
from tests import programs
from tests.cluster import Cluster, running_cluster
from tests.integration.moving import Writing, admin, create, wait_until
from tests.rules import proves

pytestmark = proves("MD.51")

THROTTLE = "2000000"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("retirement"), brokers=5, voters=3) as cluster:
        yield cluster


def broker(cluster: Cluster, *arguments: str) -> Any:
    done = run(cluster, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(cluster: Cluster, *arguments: str) -> Any:
    return programs.run("broker", *arguments, "-b", cluster.bootstrap_servers, timeout_s=120)


def brokers(cluster: Cluster) -> dict[int, dict[str, Any]]:
    return {entry["id"]: entry for entry in broker(cluster, "list")}


def refusal(cluster: Cluster, *arguments: str) -> str:
    done = run(cluster, *arguments)
    assert done.returncode == 1
    return str(done.stderr)


def rebalance(cluster: Cluster, *arguments: str) -> Any:
    done = programs.run("cluster", "rebalance", *arguments, "--json", "-b", cluster.bootstrap_servers, timeout_s=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_bytes_and_leaders_are_spread_over_all_brokers(cluster: Cluster) -> None:
    create(cluster, "crowded")
    with admin(cluster) as client:
        client.alter_topic("crowded", num_partitions=10)
        crowded = {TopicPartition("crowded", number): [1, 2, 3] for number in range(10)}
        assert set(client.alter_partition_reassignments(crowded).values()) == {None}
        wait_until(lambda: not client.list_partition_reassignments(), timeout_s=60)
        planned = rebalance(cluster)
        assert not planned["applied"]
        assert {tuple(move["replicas"]) for move in planned["moves"]} >= {(1, 2, 3)}
        assert rebalance(cluster, "--apply")["moves"] == planned["moves"]
        assert not client.list_partition_reassignments()
    assert rebalance(cluster)["moves"] == []

    def spread() -> bool:
        """Preferred leaders lead as soon as they are in sync, which the command has asked for once."""
        with admin(cluster) as client:
            client.elect_leaders()
        leaders = [entry["leaders"] for entry in brokers(cluster).values()]
        return bool(max(leaders) - min(leaders) <= 2)

    wait_until(spread)


@pytest.mark.dear("it moves leaders or replicas")
def test_a_broker_is_emptied_under_a_producer_and_forgotten_when_it_stops(cluster: Cluster) -> None:
    create(cluster, "moves")
    for number in range(8):
        create(cluster, f"other{number}")
    before = brokers(cluster)
    assert before.keys() == {1, 2, 3, 4, 5}
    assert before[4]["replicas"] > 0
    assert "it is a voter" in refusal(cluster, "decommission", "1")
    with Writing(cluster, "moves") as writer:
        broker(cluster, "cordon", "5")
        assert brokers(cluster)[5]["cordoned"]
        create(cluster, "elsewhere")
        assert brokers(cluster)[5]["replicas"] == before[5]["replicas"]
        broker(cluster, "uncordon", "5")
        broker(cluster, "decommission", "4", "--throttle", THROTTLE)
        assert "one at a time" in refusal(cluster, "decommission", "5")
        with admin(cluster) as client:
            controller = client.describe_cluster().controller
        assert controller is not None
        cluster.kill(controller)
        cluster.start(controller)
        cluster.wait_running()
        assert broker(cluster, "decommission", "4", "--throttle", THROTTLE, "--wait") == {"id": 4, "empty": True}
        assert brokers(cluster)[4]["replicas"] == 0
        assert "it runs" in refusal(cluster, "forget", "4")
        writer.wait_for_more(200)
        cluster.stop(4)
        wait_until(lambda: 4 not in brokers(cluster), timeout_s=30)
        writer.wait_for_more(200)
    assert "is not registered" in refusal(cluster, "forget", "4")
