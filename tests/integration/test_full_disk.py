"""A full disk under a broker: producing there is refused and goes on when there is space; all else goes on."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.errors import MinilogError, TimedOut, UnknownOutcome
from tests.cluster import Cluster, running_cluster
from tests.integration.small_disks import fill, small_disk
from tests.rules import proves

pytestmark = proves("DK.15")

__test__ = os.geteuid() == 0  # a small disk is mounted: there is nothing to collect for anybody else

TOPIC = "filling"
MAX_IN_FLIGHT = 5  # the default of max.in.flight.requests.per.connection
VALUE_BYTES = 256 << 10
SETTINGS = {"delivery.timeout.ms": 2000, "request.timeout.ms": 2000, "batch.size": VALUE_BYTES, "linger.ms": 0}


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """The data directory of broker 2, on a small disk of its own."""
    with small_disk(tmp_path / "brokers" / "broker-2", size_mib=24) as directory:
        yield directory


def send(cluster: Cluster, partition: int, count: int) -> tuple[list[int], list[MinilogError]]:
    """Send at once; the offsets acknowledged and the errors."""
    offsets, errors = [], []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **SETTINGS}) as producer:
        futures = [producer.send(TOPIC, value=os.urandom(VALUE_BYTES), partition=partition) for _ in range(count)]
        for future in futures:
            try:
                offsets.append(future.result(timeout=20).offset)
            except MinilogError as error:
                errors.append(error)
    return offsets, errors


def led_by(cluster: Cluster) -> dict[int, int]:
    """Partition of each leader."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])
        (topic,) = admin.describe_topics([TOPIC])
    return {each.leader: each.partition for each in topic.partitions if each.leader is not None}


@pytest.mark.dear("it waits until a bad or full disk is noticed")
def test_producing_waits_for_space_and_the_broker_lives(disk: pathlib.Path) -> None:
    with running_cluster(disk.parent, brokers=2) as cluster:
        partition_of = led_by(cluster)
        full, roomy = partition_of[2], partition_of[1]
        offsets, errors = send(cluster, full, 2)
        assert (offsets, errors) == ([0, 1], [])
        filler = fill(disk)

        written, errors = send(cluster, full, 12)
        assert errors
        # The broker refuses them until delivery.timeout.ms. At that moment some may be on their way: of these the
        # producer does not know the outcome. The offsets below show that none of them was written.
        refused = [str(error) for error in errors if isinstance(error, TimedOut)]
        on_the_way = [str(error) for error in errors if isinstance(error, UnknownOutcome)]
        assert len(refused) + len(on_the_way) == len(errors)
        assert len(on_the_way) <= MAX_IN_FLIGHT
        assert all("no final answer came within delivery.timeout.ms" in words for words in on_the_way)
        full_words = f"the last refusal was NO_SPACE: partition {TOPIC}-{full}: the disk of broker 2 is full"
        assert full_words in refused[0]
        assert TimedOut.retriable
        assert cluster.processes[2].poll() is None
        assert send(cluster, roomy, 1) == ([0], [])

        filler.unlink()
        time.sleep(1.0)  # the leader looks again after no_space_pause_ms
        after, errors = send(cluster, full, 3)
        assert errors == []
        known = [*offsets, *written, *after]
        assert known == list(range(len(known)))
        with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
            consumer.assign([TopicPartition(TOPIC, full, 0, len(known))])
            found: list[int] = []
            deadline = time.monotonic() + 20
            while not consumer.finished() and time.monotonic() < deadline:
                found += [record.offset for record in consumer.poll(timeout=0.5)]
        assert found == known
        assert set(cluster.stop(2, 1).values()) == {0}
        assert "Traceback" not in cluster.log_text(2)


@pytest.mark.long
@pytest.mark.dear("it waits until a bad or full disk is noticed")
def test_leadership_leaves_a_full_disk_and_it_joins_again_when_there_is_space(disk: pathlib.Path) -> None:
    with running_cluster(disk.parent, brokers=2) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            config = {"min.insync.replicas": "1"}
            admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=2, configs=config)])
            (topic,) = admin.describe_topics([TOPIC])
            partition = next(each.partition for each in topic.partitions if each.leader == 2)
            filler = fill(disk)
            settings = {"bootstrap.servers": cluster.bootstrap_servers, **SETTINGS, "delivery.timeout.ms": 30_000}
            with Producer(settings) as producer:
                futures = [producer.send(TOPIC, value=os.urandom(VALUE_BYTES), partition=partition) for _ in range(12)]
                offsets = [future.result(timeout=60).offset for future in futures]
            assert offsets == list(range(12))
            (topic,) = admin.describe_topics([TOPIC])
            assert [(each.leader, each.isr) for each in topic.partitions] == [(1, [1]), (1, [1])]

            filler.unlink()
            deadline = time.monotonic() + 40
            while any(len(each.isr) < 2 for each in topic.partitions):
                assert time.monotonic() < deadline, "it has space, and does not come back"
                time.sleep(0.2)
                (topic,) = admin.describe_topics([TOPIC])
        assert set(cluster.stop(2, 1).values()) == {0}
        said = cluster.log_text(2)
        assert said.count("the disk is full: the broker refuses data") <= 1
        assert "Traceback" not in said
