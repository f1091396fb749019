"""Leaders move under an idempotent producer: by command, by themselves, at controlled shutdowns. Nobody sees an error.

What is judged is the whole history: nothing failed, nothing unknown, nothing lost or doubled.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterable, Iterator

import pytest

from minilog import Consumer, TopicPartition
from minilog.errors import PreferredLeaderNotAvailable
from tests.cluster import Cluster, running_cluster
from tests.integration.clients import Writer
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
        wait_until(lambda: leaders(cluster, "by-command") == preferred(cluster, "by-command"))


@pytest.mark.dear("it moves leaders or replicas")
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


def test_a_topic_grows_under_a_producer_and_a_consumer_while_leaders_move(cluster: Cluster) -> None:
    create(cluster, "grows")
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Consumer({**settings, "metadata.max.age.ms": 500}) as consumer:
        consumer.subscribe(["grows"])
        with Writing(cluster, "grows", settings={"metadata.max.age.ms": 500}) as writer, admin(cluster) as client:
            for partitions in (PARTITIONS + 2, PARTITIONS + 4):
                client.alter_topic("grows", num_partitions=partitions)
                moved = reorder_replicas(cluster, "grows")
                assert set(client.elect_leaders(moved).values()) == {None}
                written_to = watched(writer, range(partitions))
                assert written_to == set(range(partitions))
        wanted, seen = set(writer.history.acknowledged), set[bytes]()
        deadline_s = time.monotonic() + 30
        while not wanted <= seen:
            assert time.monotonic() < deadline_s, f"{len(wanted - seen)} of {len(wanted)} values were not read"
            seen.update(record.value for record in consumer.poll(timeout=1.0) if record.value is not None)


def reorder_replicas(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """Another preferred leader for each partition."""
    with admin(cluster) as client:
        (found,) = client.describe_topics([topic])
        wanted = {TopicPartition(topic, p.partition): [*p.replicas[1:], p.replicas[0]] for p in found.partitions}
        assert set(client.alter_partition_reassignments(wanted).values()) == {None}
    return list(wanted)


def watched(writer: Writer, partitions: Iterable[int]) -> set[int]:
    """Until writes sent from now on were acknowledged in all of these."""
    watch = writer.watch(partitions, time.monotonic())
    writer.failover_s(watch, timeout_s=30)
    return set(watch.recovered_s)


@pytest.mark.dear("it moves leaders or replicas")
def test_preferred_leaders_lead_again_by_themselves(tmp_path: pathlib.Path) -> None:
    settings = {"leader.imbalance.check.interval.ms": "500"}
    with running_cluster(tmp_path, settings=settings) as cluster:
        create(cluster, "by-itself")
        with Writing(cluster, "by-itself"):
            cluster.stop(2)
            cluster.start(2)
            wait_until(lambda: leaders(cluster, "by-itself") == preferred(cluster, "by-itself"))
