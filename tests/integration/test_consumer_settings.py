"""What a consumer's settings do, against a real broker."""

from __future__ import annotations

import time

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

P0 = TopicPartition("settings", 0)


cluster = shared_cluster(THREE)


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> str:
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic(P0.topic, num_partitions=1, replication_factor=1)])
    with Producer(cluster.client) as producer:
        for number in range(3):
            producer.send(P0.topic, b"%d" % number).result(timeout=10.0)
    return cluster.bootstrap_servers


def first_poll(servers: str, end_offset: int | None = None, **settings: object) -> tuple[int, float]:
    """How many records the first poll brings, and after how many seconds; what is there has arrived before it."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with Consumer({"bootstrap.servers": servers, **named}) as consumer:
        consumer.assign([TopicPartition(P0.topic, 0, 0, end_offset)])
        time.sleep(0.5)
        began_s = time.monotonic()
        return len(consumer.poll(timeout=5.0)), time.monotonic() - began_s


def test_a_poll_gathers_fetch_min_bytes_for_fetch_max_wait_ms(servers: str) -> None:
    assert first_poll(servers)[1] < 0.3
    count, seconds = first_poll(servers, fetch_min_bytes=1_000_000, fetch_max_wait_ms=700)
    assert count == 3
    assert 0.7 <= seconds < 2.0


def test_a_poll_waits_for_nothing_behind_its_end_offset(servers: str) -> None:
    count, seconds = first_poll(servers, end_offset=3, fetch_min_bytes=1_000_000, fetch_max_wait_ms=3_000)
    assert count == 3
    assert seconds < 1.0
