"""`minilog cluster health` against real brokers: what it says of a cluster that is well, and of one that is not."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

import pytest

from minilog import Admin, NewTopic
from tests import programs
from tests.cluster import Cluster, running_cluster

WITHIN_S = 60.0


def health(cluster: Cluster, *arguments: str) -> tuple[int, str]:
    ended = programs.run("cluster", "health", *arguments, "-b", cluster.bootstrap_servers)
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stdout


def problems(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """By their codes."""
    code, text = health(cluster, "--json")
    document = json.loads(text)
    assert code == (0 if document["healthy"] else 1)
    assert document["healthy"] is (document["problems"] == [])
    return {each["code"]: each for each in document["problems"]}


def until(cluster: Cluster, *codes: str) -> dict[str, dict[str, Any]]:
    """The problems, once they are these."""
    deadline_s = time.monotonic() + WITHIN_S
    while set(found := problems(cluster)) != set(codes):
        assert time.monotonic() < deadline_s, f"{sorted(found)} instead of {sorted(codes)}"
        time.sleep(0.2)
    return found


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_cluster_says_what_is_wrong_with_it(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("flights", num_partitions=2, replication_factor=3)])
        until(cluster)
        code, text = health(cluster)
        assert (code, text) == (0, text)
        assert text.startswith("healthy: 3 brokers")

        cluster.kill(3)
        found = until(cluster, "BROKER_FENCED", "PARTITION_UNDER_REPLICATED")
        assert found["BROKER_FENCED"]["brokers"] == [3]
        assert len(found["PARTITION_UNDER_REPLICATED"]["partitions"]) == 2
        code, text = health(cluster)
        assert code == 1
        assert "BROKER_FENCED: the controller does not hear from brokers 3" in text

        cluster.kill(2)
        assert "a majority of the voters 1, 2, 3" in until_controller_is_gone(cluster)["remedy"]

        cluster.start(2, 3)
        cluster.wait_running()
        until(cluster)


def until_controller_is_gone(cluster: Cluster) -> dict[str, Any]:
    """One voter of three is left."""
    deadline_s = time.monotonic() + WITHIN_S
    while "NO_CONTROLLER" not in (found := problems(cluster)):
        assert time.monotonic() < deadline_s, sorted(found)
    return found["NO_CONTROLLER"]
