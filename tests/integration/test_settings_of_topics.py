"""What a topic has is one value for all: brokers that are configured differently, in the middle of a rolling change."""

from __future__ import annotations

import pathlib
import time

import pytest

from minilog import Admin, NewTopic, Producer
from minilog.errors import MinilogError, TimedOut
from tests.cluster import HOST, Cluster, running_cluster
from tests.rules import proves

pytestmark = proves("MD.56")

SEEN_WITHIN_S = 20.0


def configs_at(cluster: Cluster, broker_id: int, topic: str) -> dict[str, str]:
    """As this broker tells them."""
    with Admin({"bootstrap.servers": f"{HOST}:{cluster.ports[broker_id]}"}) as admin:
        return admin.describe_topics([topic])[0].configs


def wait_alone(cluster: Cluster, topic: str, partition: int, leader: int) -> None:
    """Until the ISR is the leader alone."""
    deadline_s, seen = time.monotonic() + SEEN_WITHIN_S, None
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        while time.monotonic() < deadline_s:
            seen = admin.describe_topics([topic])[0].partitions[partition]
            if list(seen.isr) == [leader]:
                return
            time.sleep(0.1)
    raise AssertionError(f"the ISR is not {leader} alone: {seen}")


def written(cluster: Cluster, topic: str, partition: int) -> MinilogError | None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "delivery.timeout.ms": 3000, "request.timeout.ms": 1000}
    with Producer(settings) as producer:
        try:
            producer.send(topic, value=b"one", partition=partition).result(timeout=20)
        except MinilogError as error:
            return error
    return None


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_leader_under_another_default_asks_for_what_the_topic_was_made_with(tmp_path: pathlib.Path) -> None:
    """Broker 1, the controller, says 2; the others, and whoever comes back, say 1."""
    weak = ("--set", "min.insync.replicas=1", "--set", "max.message.bytes=4096")
    arguments = {2: weak, 3: weak}
    with running_cluster(tmp_path, voters=1, arguments=arguments) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("made", num_partitions=6, replication_factor=2)])
            (topic,) = admin.describe_topics(["made"])
        of_weak = next(each for each in topic.partitions if set(each.replicas) == {2, 3})
        assert written(cluster, "made", of_weak.partition) is None
        leader = of_weak.leader
        assert leader is not None
        (follower,) = {2, 3} - {leader}
        cluster.kill(follower)
        wait_alone(cluster, "made", of_weak.partition, leader)
        refused = written(cluster, "made", of_weak.partition)
        assert isinstance(refused, TimedOut), f"{leader} committed alone: {refused}"
        assert "NOT_ENOUGH_REPLICAS" in str(refused)
        assert "below min.insync.replicas=2" in str(refused)

        cluster.start(follower)
        cluster.wait_running()
        assert written(cluster, "made", of_weak.partition) is None
        told = [configs_at(cluster, broker_id, "made") for broker_id in cluster.ports]
        assert told == [{"min.insync.replicas": "2"}] * 3

        cluster.arguments[1] = ("--set", "min.insync.replicas=1", "--set", "flush.policy=os")
        cluster.stop(1)
        cluster.start(1)
        cluster.wait_running()
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("later", num_partitions=1, replication_factor=2)])
        assert configs_at(cluster, 2, "made") == {"min.insync.replicas": "2"}
        assert configs_at(cluster, 2, "later") == {"min.insync.replicas": "1", "flush.policy": "os"}


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
@pytest.mark.long
@pytest.mark.parametrize("least", ["1", "2"])
def test_min_is_altered_while_one_replica_is_away_and_writing_goes_on(tmp_path: pathlib.Path, least: str) -> None:
    with running_cluster(tmp_path, voters=1) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            before = {"min.insync.replicas": "2" if least == "1" else "1"}
            admin.create_topics([NewTopic("altered", num_partitions=6, replication_factor=2, configs=before)])
            (topic,) = admin.describe_topics(["altered"])
            chosen = next(each for each in topic.partitions if 1 not in each.replicas)
            leader = chosen.leader
            assert leader is not None
            (follower,) = set(chosen.replicas) - {leader}
            cluster.kill(follower)
            wait_alone(cluster, "altered", chosen.partition, leader)
            assert (written(cluster, "altered", chosen.partition) is None) == (least == "2")
            admin.alter_topic("altered", set_configs={"min.insync.replicas": least})
            assert (written(cluster, "altered", chosen.partition) is None) == (least == "1")
        cluster.start(follower)
        cluster.wait_running()
        assert written(cluster, "altered", chosen.partition) is None
