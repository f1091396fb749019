"""Compaction with real brokers: what readers get, what is on each disk, and what a killed cluster comes back with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import minilog
from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.typed.schema.topic_schema import TopicSchema
from tests.cluster import Cluster, running_cluster
from tests.integration.compacted_copies import WAIT_S, checkpoint, settle, stored, until

BROKERS = (1, 2, 3)
SETTINGS = {"log.cleaner.backoff.ms": "100"}
KEYED = {
    "cleanup.policy": "compact",
    "segment.bytes": "65536",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "0",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("compaction"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def config(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}


def create(config: dict[str, Any], topic: str, schema: TopicSchema | None = None) -> None:
    with Admin(config) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=3, configs=KEYED, schema=schema)])


def records(config: dict[str, Any], topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """All records up to the end of now."""
    partition, found = TopicPartition(topic, 0), list[tuple[bytes | None, bytes | None]]()
    with Consumer(config) as consumer:
        consumer.assign([partition])
        (end,) = consumer.end_offsets([partition]).values()
        deadline = time.monotonic() + WAIT_S
        while (consumer.position(partition) or 0) < end:
            assert time.monotonic() < deadline, f"the consumer did not reach offset {end}"
            found += [(record.key, record.value) for record in consumer.poll(timeout=1)]
    return found


@pytest.mark.dear("it waits for a time-out of the product")
def test_readers_get_the_newest_record_of_each_key_and_copies_are_equal(
    cluster: Cluster, config: dict[str, Any]
) -> None:
    create(config, "accounts")
    expected: dict[bytes, bytes] = {}
    with Producer({**config, "batch.size": 4096}) as producer:
        for number in range(6_000):
            key = b"key-%03d" % (number * 7 % 150)
            value = None if number % 151 == 0 else b"value %d of the key, with some bytes behind it" % number
            producer.send("accounts", value, key=key)
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        producer.flush()

    clean_to = settle(cluster, "accounts", above=3_000).clean_to
    found = records(config, "accounts")
    assert {key: value for key, value in dict(found).items() if value is not None} == expected
    assert len(found) < 6_000 - clean_to + 151, "the older records are gone"
    cluster.kill(*BROKERS)
    cluster.start(*BROKERS)
    cluster.wait_running()
    assert {key: value for key, value in dict(records(config, "accounts")).items() if value is not None} == expected
    settle(cluster, "accounts", above=3_000)
    cluster.stop(*BROKERS)
    copies = [stored(cluster, broker_id, "accounts") for broker_id in BROKERS]
    assert copies[0] == copies[1] == copies[2]
    cluster.start(*BROKERS)
    cluster.wait_running()


def test_a_copy_that_comes_anew_has_the_same_records(cluster: Cluster, config: dict[str, Any]) -> None:
    create(config, "prices")
    with Producer({**config, "batch.size": 2048}) as producer:
        for number in range(4_000):
            producer.send("prices", b"price %d" % number, key=b"%d" % (number % 40))
        producer.flush()
        until(lambda: checkpoint(cluster, 1, "prices").compaction.done.clean_to > 1_000, "no compaction")
        with Admin(config) as admin:
            (description,) = admin.describe_topics(["prices"])
        leader = description.partitions[0].leader or 0
        follower = next(broker_id for broker_id in BROKERS if broker_id != leader)
        cluster.kill(follower)
        for number in range(4_000, 8_000):
            producer.send("prices", b"price %d" % number, key=b"%d" % (number % 40))
        producer.flush()
        until(lambda: checkpoint(cluster, leader, "prices").compaction.done.clean_to > 5_000, "no compaction")
        cluster.start(follower)
        cluster.wait_running()
        settle(cluster, "prices", above=5_000)
    assert dict(records(config, "prices")) == {b"%d" % (n % 40): b"price %d" % n for n in range(7_960, 8_000)}
    cluster.stop(*BROKERS)
    copies = [stored(cluster, broker_id, "prices") for broker_id in BROKERS]
    assert copies[0] == copies[1] == copies[2]
    cluster.start(*BROKERS)
    cluster.wait_running()


def test_a_compacted_typed_topic_is_a_table(cluster: Cluster, config: dict[str, Any]) -> None:
    create(config, "customers", minilog.schema_from_ddl("id long NOT NULL, name string, balance double", ["id"]))
    expected: dict[int, tuple[str, float]] = {}
    with Producer(config) as producer:
        for number in range(60):
            states = [(row % 90, f"n{row}", float(row)) for row in range(number, number + 200)]
            producer.send_many(
                "customers", [{"id": key, "name": name, "balance": balance} for key, name, balance in states]
            )
            expected |= {state[0]: state[1:] for state in states}
            producer.delete("customers", {"id": number})
            expected.pop(number, None)
            producer.flush()
    settle(cluster, "customers", above=6_000)
    table = minilog.scan("customers", view="latest", config=config).to_arrow().to_pylist()
    assert {row["id"]: (row["name"], row["balance"]) for row in table} == expected
    rows = minilog.scan("customers", ["_offset", "id"], config=config)
    offsets = rows.to_arrow().column("_offset").to_pylist()
    assert offsets == sorted(set(offsets))
    assert len(offsets) == rows.count() < 60 * 200
    rich = minilog.scan("customers", ["id"], "balance >= 200", view="latest", config=config).to_arrow()
    assert sorted(rich.column("id").to_pylist()) == sorted(key for key, row in expected.items() if row[1] >= 200)
