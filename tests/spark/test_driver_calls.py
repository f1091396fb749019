"""What the calls of a micro-batch cost on the driver: one round trip each, and no spinning while there is nothing.

The reader is driven as Spark drives it, in this process, so that what it asks the cluster can be counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from minilog import Admin, NewTopic, Producer
from minilog.net.network_client import NetworkClient as KnownCluster
from minilog.types import SizesFrom
from pyspark_minilog.login import clients
from pyspark_minilog.options.table import parse_stream_options
from pyspark_minilog.reading import stream_reader
from pyspark_minilog.reading.schema import arrow_source_schema
from pyspark_minilog.reading.stream_reader import StreamReader
from tests.cluster import Cluster
from tests.rules import proves


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("_", "-")
    admin.create_topics([NewTopic(name, num_partitions=3)])
    yield name
    for client in list(clients._idle.values()):
        client.close()
    clients._idle.clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kind of question was put; consumers, which wait at the brokers, are not counted."""
    found: Counter[str] = Counter()

    def counted(name: str) -> None:
        original: Callable[..., Any] = getattr(KnownCluster, name)

        async def count(self: KnownCluster, *arguments: Any) -> Any:
            found[name] += 1
            return await original(self, *arguments)

        monkeypatch.setattr(KnownCluster, name, count)

    for name in ("refresh_and_ask", "complete"):
        counted(name)
    return found


def reader_of(cluster: Cluster, topic: str, **options: object) -> StreamReader:
    given = {name: str(value) for name, value in options.items()}
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    parsed = parse_stream_options({**servers, "subscribe": topic, "startingOffsets": "earliest", **given})
    return StreamReader(parsed, arrow_source_schema(False))


def send(cluster: Cluster, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for future in [producer.send(topic, b"v" * 100, partition=n % 3) for n in range(count)]:
            future.result(timeout=10.0)


def latest(reader: StreamReader, start: dict[str, Any], limit: ReadLimit | None = None) -> tuple[dict[str, Any], float]:
    began_s = time.monotonic()
    found = reader.latestOffset(start, limit or reader.getDefaultReadLimit())
    return found, time.monotonic() - began_s


@proves("SPF.15", "SPF.16", "SPF.17")
def test_a_call_is_one_round_trip_limits_included(cluster: Cluster, topic: str, asked: Counter[str]) -> None:
    reader = reader_of(cluster, topic, maxBytesPerTrigger=900, maxOffsetsPerTrigger=15, minOffsetsPerTrigger=2)
    send(cluster, topic, 30)
    start = reader.initialOffset()
    for _ in range(3):
        asked.clear()
        end, _ = latest(reader, start)
        assert asked == {"refresh_and_ask": 1}, "metadata and offsets are asked for at the same time"
        assert end != start
        asked.clear()
        reader.partitions(start, end)
        reader.reportLatestOffset()
        reader.commit(end)
        assert not asked
        start = end


@proves("SPF.14", "SPF.15")
def test_an_idle_query_waits_at_the_brokers_and_hears_of_data_at_once(
    cluster: Cluster, topic: str, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(cluster, topic)
    start = reader.initialOffset()
    assert latest(reader, start)[0] is start, "as it came, text for text"
    asked.clear()
    began_s = time.monotonic()
    while time.monotonic() - began_s < 1.0:
        found, _ = latest(reader, start)
        assert found is start
    assert 1 <= asked["refresh_and_ask"] <= 6
    send(cluster, topic, 1)
    monkeypatch.setattr(stream_reader, "_IDLE_WAIT_S", 30.0)
    end, seconds = latest(reader, start)
    assert end[topic] == {"0": 1, "1": 0, "2": 0}
    assert seconds < 15.0


def test_a_query_that_waits_for_more_does_not_spin_though_data_trickles(
    cluster: Cluster, topic: str, asked: Counter[str]
) -> None:
    reader = reader_of(cluster, topic, minOffsetsPerTrigger=1000, maxTriggerDelay="1200ms")
    start, _ = latest(reader, reader.initialOffset())
    began_s, calls = time.monotonic(), 0
    asked.clear()
    while True:
        send(cluster, topic, 3)
        found, _ = latest(reader, start)
        if found != start:
            break
        calls += 1
    assert 0.8 <= time.monotonic() - began_s < 15.0
    assert asked["refresh_and_ask"] == calls + 1 <= 8


@proves("SPF.12")
def test_all_that_is_there_is_read_where_spark_says_so(cluster: Cluster, topic: str) -> None:
    reader = reader_of(cluster, topic, maxOffsetsPerTrigger=1, minOffsetsPerTrigger=1)
    send(cluster, topic, 30)
    end, _ = latest(reader, reader.initialOffset(), ReadAllAvailable())
    assert end[topic] == {"0": 10, "1": 10, "2": 10}


def test_offsets_left_unread_by_a_limit_are_reported_with_the_latest_offset(
    cluster: Cluster, admin: Admin, topic: str, asked: Counter[str]
) -> None:
    reader = reader_of(cluster, topic, maxOffsetsPerTrigger=15)
    began_ms = int(time.time() * 1000)
    send(cluster, topic, 30)
    ended_ms = int(time.time() * 1000)
    asked.clear()
    end, _ = latest(reader, reader.initialOffset())
    assert asked["refresh_and_ask"] == 2, "the first offset and this one: nobody is asked for bytes alone"
    assert end[topic] == {"0": 5, "1": 5, "2": 5}
    assert "__unread" not in end, "nothing of it is in a checkpoint"
    first_unread = reader._first_unread
    assert first_unread is not None
    first_unread.settle(10.0)
    told = reader.reportLatestOffset()
    assert told is not None
    assert told[topic] == {"0": 10, "1": 10, "2": 10}
    assert began_ms <= told["__unread"]["since_ms"][topic] <= ended_ms
    (described,) = admin.describe_topics([topic], sizes=lambda each: SizesFrom(0, [2**62]))
    whole = sum(each.sizes[0].size_bytes for each in described.partitions)
    assert 0 < told["__unread"]["bytes"][topic] < whole
    all_of_it, _ = latest(reader, end, ReadAllAvailable())
    assert all_of_it[topic] == {"0": 10, "1": 10, "2": 10}
    rest = reader.reportLatestOffset()
    assert rest is not None
    assert "__unread" not in rest
