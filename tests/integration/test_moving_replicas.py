"""Replicas move between real brokers under an idempotent producer: nobody sees an error, and nothing is lost.

Brokers 1 to 4; each topic begins on three of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from minilog import Admin, Producer, TopicPartition
from tests import programs
from tests.cluster import Cluster, running_cluster
from tests.integration.moving import PARTITIONS, Writing, admin, create, wait_in_sync, wait_until

RATE = 200_000  # bytes per second
VALUE_BYTES = 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"delete.delay.ms": "0", "auto.leader.rebalance.enable": "false"}
    with running_cluster(tmp_path_factory.mktemp("replicas"), brokers=4, settings=settings) as cluster:
        yield cluster


@pytest.mark.dear("it moves leaders or replicas")
def test_all_partitions_move_round_and_every_leader_with_them(cluster: Cluster) -> None:
    create(cluster, "round")
    with Writing(cluster, "round") as writer, admin(cluster) as client:
        for first in range(1, 5):
            wanted = [1 + (first + step) % 4 for step in range(3)]
            reassign(client, "round", wanted)
            wait_moved(client, "round", wanted)
            client.elect_leaders()
            writer.wait_for_more(200)
        wait_in_sync(cluster, "round")
        last = {1, 2, 3, 4}.difference(*replicas(client, "round")).pop()
    wait_until(lambda: not list(cluster.data_directory(last).glob("*round-*")), timeout_s=15)


def test_more_and_fewer_replicas(cluster: Cluster) -> None:
    create(cluster, "one", replication_factor=1)
    with Writing(cluster, "one") as writer, admin(cluster) as client:
        for wanted in ([1, 2, 3], [4, 1], [3]):
            reassign(client, "one", wanted)
            wait_moved(client, "one", wanted)
            writer.wait_for_more(200)


@pytest.mark.long
@pytest.mark.dear("it moves leaders or replicas")
def test_a_throttled_move_is_shown_and_can_be_cancelled(cluster: Cluster) -> None:
    create(cluster, "slow")
    with admin(cluster) as client:
        before = replicas(client, "slow")
        fill(cluster, "slow", size_bytes=100 * RATE)  # each copy takes half a minute: longer than all that follows
        spare = [({1, 2, 3, 4} - set(each)).pop() for each in before]
        to = [f"--to={number}:{spare[number]},{before[number][0]},{before[number][1]}" for number in range(PARTITIONS)]
        minilog(cluster, "topic", "reassign", "slow", *to, "--throttle", str(RATE))
        time.sleep(2.0)
        moving = minilog(cluster, "topic", "describe", "slow", "--json")["partitions"]
        assert [each["adding_replicas"] for each in moving] == [[each] for each in spare]
        assert [each["removing_replicas"] for each in moving] == [[each[2]] for each in before]
        assert all(each["throttle_bytes_per_second"] == RATE for each in moving)
        assert all(set(each["isr"]) == set(former) for each, former in zip(moving, before, strict=True))
        minilog(cluster, "topic", "reassign", "slow", "--cancel")
        wait_until(lambda: [set(each) for each in replicas(client, "slow")] == [set(each) for each in before])
        assert "adding_replicas" not in minilog(cluster, "topic", "describe", "slow", "--json")["partitions"][0]


def test_a_move_goes_on_under_another_controller_and_after_kills(cluster: Cluster) -> None:
    create(cluster, "survives")
    with Writing(cluster, "survives", value_bytes=VALUE_BYTES) as writer, admin(cluster) as client:
        writer.wait_for_more(4 * RATE // VALUE_BYTES)
        before = replicas(client, "survives")
        targets = [[({1, 2, 3, 4} - set(each)).pop(), each[1], each[2]] for each in before]
        wanted = {TopicPartition("survives", number): target for number, target in enumerate(targets)}
        assert set(client.alter_partition_reassignments(wanted, throttle_bytes_per_second=RATE).values()) == {None}
        controller = client.describe_cluster().controller
        assert controller is not None
        cluster.kill(controller)
        cluster.start(controller)
        cluster.wait_running()
        writer.wait_for_more(200)
        assert client.list_partition_reassignments(), "the writer is faster than the throttle"
        assert set(client.alter_partition_reassignments(wanted).values()) == {None}  # the limit is lifted
        wait_until(lambda: replicas(client, "survives") == targets)
        assert client.list_partition_reassignments() == {}
        wait_in_sync(cluster, "survives")


def reassign(client: Admin, topic: str, wanted: list[int]) -> None:
    """All partitions to these replicas."""
    results = client.alter_partition_reassignments({TopicPartition(topic, p): wanted for p in range(PARTITIONS)})
    assert set(results.values()) == {None}


def wait_moved(client: Admin, topic: str, wanted: list[int]) -> None:
    """Until the controller says so, and then every other broker."""
    wait_until(lambda: client.list_partition_reassignments() == {})
    wait_until(lambda: replicas(client, topic) == [wanted] * PARTITIONS, timeout_s=2)


def replicas(client: Admin, topic: str) -> list[list[int]]:
    return [each.replicas for each in client.describe_topics([topic])[0].partitions]


def fill(cluster: Cluster, topic: str, size_bytes: int) -> None:
    """Write so much, over all partitions, in batches that are small beside a turn of the throttle."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "filler", "batch.size": 20_000}
    with Producer(settings) as producer:
        for number in range(size_bytes // 10_000):
            producer.send(topic, value=os.urandom(10_000), partition=number % PARTITIONS)


def minilog(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    """Run the command line; its JSON, if it was asked for."""
    done = programs.run(*arguments, "-b", cluster.bootstrap_servers)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in arguments else {}
