"""An idle query waits at the brokers instead of asking them again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic, Producer
from pyspark_minilog.login import clients
from pyspark_minilog.options.offsets import Partition
from pyspark_minilog.reading.tail import wait_for_news
from tests.cluster import Cluster
from tests.rules import proves


@pytest.fixture
def topic(cluster: Cluster, admin: Admin, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("_", "-")
    admin.create_topics([NewTopic(name, num_partitions=2)])
    yield name
    for client in list(clients._idle.values()):
        client.close()
    clients._idle.clear()


def seconds_to_news(cluster: Cluster, ends: dict[Partition, int], timeout_s: float) -> tuple[bool, float]:
    began_s = time.monotonic()
    found = wait_for_news({"bootstrap.servers": cluster.bootstrap_servers}, ends, timeout_s)
    return found, time.monotonic() - began_s


def send_later(cluster: Cluster, topic: str) -> threading.Thread:
    def send() -> None:
        time.sleep(0.5)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.send(topic, b"news", partition=1).result(timeout=10.0)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@proves("SPF.15")
def test_news_end_the_wait_and_no_news_do_not(cluster: Cluster, topic: str) -> None:
    ends = {Partition(topic, 0): 0, Partition(topic, 1): 0}
    found, seconds = seconds_to_news(cluster, ends, 0.4)
    assert not found
    assert seconds >= 0.4
    sending = send_later(cluster, topic)
    found, seconds = seconds_to_news(cluster, ends, 20.0)
    sending.join()
    assert found
    assert seconds < 10.0
    ends[Partition(topic, 1)] = 1
    assert not seconds_to_news(cluster, ends, 0.4)[0], "it stands behind what was news"


def test_a_wrong_end_is_news_too(cluster: Cluster, topic: str) -> None:
    assert seconds_to_news(cluster, {Partition(topic, 0): 77}, 20.0)[0]


def test_without_any_partition_it_only_waits(cluster: Cluster) -> None:
    assert not seconds_to_news(cluster, {}, 0.1)[0]
