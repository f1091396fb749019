"""Compacted topics as users make them, with real brokers: their settings, and records without a key are refused."""

from __future__ import annotations

import pytest

from minilog import Admin, Consumer, Producer
from minilog.errors import InvalidRecord
from tests.cluster import Cluster
from tests.integration.commands import done, minilog
from tests.pool import THREE, shared_cluster
from tests.rules import proves

pytestmark = proves("PR.10")


cluster = shared_cluster(THREE)


@pytest.fixture
def settings(cluster: Cluster) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}


def stored(settings: dict[str, object], topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        records: list[tuple[bytes | None, bytes | None]] = []
        while len(records) < count:
            records.extend((record.key, record.value) for record in consumer.poll(timeout=20))
    return records


def test_a_compacted_topic_shows_its_settings_and_takes_no_record_without_a_key(
    cluster: Cluster, settings: dict[str, object]
) -> None:
    done(cluster, "topic", "create", "accounts", "--config", "cleanup.policy=compact", "-c", "min.compaction.lag.ms=5")
    shown = done(cluster, "topic", "describe", "accounts")
    assert {"cleanup.policy=compact,", "min.compaction.lag.ms=5,"} <= set(shown.split())
    with Admin(settings) as admin:
        (topic,) = admin.describe_topics(["accounts"])
    assert (topic.configs["cleanup.policy"], topic.configs["min.compaction.lag.ms"]) == ("compact", "5")
    with Producer(settings) as producer:
        producer.send("accounts", b"1", key=b"a").result(timeout=20)
        with pytest.raises(InvalidRecord, match=r"record 0 of the batch .* has no key.*send each record with a key"):
            producer.send("accounts", b"2").result(timeout=20)
        producer.send("accounts", b"3", key=b"a").result(timeout=20)
    refused = minilog(cluster, "produce", "accounts", stdin="a line without a key\n")
    assert refused.returncode != 0
    assert "has no key" in " ".join(refused.stderr.split())
    assert stored(settings, "accounts", 2) == [(b"a", b"1"), (b"a", b"3")]


def test_the_settings_of_the_cleaner_change_while_brokers_run(cluster: Cluster) -> None:
    done(cluster, "broker", "alter", "--all", "-c", "log.cleaner.enable=false", "-c", "log.cleaner.backoff.ms=7")
    shown = done(cluster, "config", "print", "broker", "--id", "1")
    (line,) = [line for line in shown.splitlines() if "log.cleaner.enable" in line]
    assert "false" in line
    refused = minilog(cluster, "broker", "alter", "1", "-c", "log.cleaner.dedupe.buffer.size=1")
    assert "a whole number from 1048576 to 1073741824" in " ".join(refused.stderr.split())
    done(cluster, "broker", "alter", "--all", "-d", "log.cleaner.enable", "-d", "log.cleaner.backoff.ms")
