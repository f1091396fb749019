"""The dead letters of queues against real brokers: each dead record is written once, with its settlement."""

from __future__ import annotations

import itertools
import json
import logging
import pathlib
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, QueueConsumer, TopicPartition
from minilog.errors import MinilogError
from minilog.types import Record
from tests import programs
from tests.cluster import Cluster, running_cluster

WITHIN_S = 40.0
LIMIT, LOCK = "group.share.delivery.count.limit", "group.share.record.lock.duration.ms"
TOPIC, COPIES = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: pathlib.Path = tmp_path_factory.mktemp("brokers")
    with running_cluster(folder, brokers=3, settings={"flush.policy": "os"}) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


@pytest.fixture
def name(admin: Admin) -> str:
    """A topic, a queue of that name, and its dead-letter topic."""
    name = f"work-{next(_numbers)}"
    admin.create_topics([NewTopic(name, num_partitions=2), NewTopic(f"dlq.{name}", num_partitions=1)])
    return name


def config(cluster: Cluster, name: str) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "queue": name}


def write(cluster: Cluster, name: str, values: list[bytes]) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number, value in enumerate(values):
            producer.send(name, value, key=b"k%d" % number, partition=number % 2, headers=[("trace", b"t")])


def letters(cluster: Cluster, name: str, count: int) -> list[Record]:
    """The committed letters. There are so many."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": "read_committed"}
    records: list[Record] = []
    deadline_s = time.monotonic() + WITHIN_S
    with Consumer({**servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(f"dlq.{name}", 0)])
        while len(records) < count and time.monotonic() < deadline_s:
            records += consumer.poll(timeout=0.2)
        records += consumer.poll(timeout=0.5)
    return records


def run(consumer: QueueConsumer, admin: Admin, name: str, end: int) -> None:
    """Reject what is bad, and accept the rest, until all offsets of both partitions are settled."""
    deadline_s = time.monotonic() + WITHIN_S
    while sum(position.settled_to for position in admin.describe_queue(name).partitions) < end:
        assert time.monotonic() < deadline_s, admin.describe_queue(name)
        for message in consumer.poll(timeout=0.3):
            if message.value == b"bad":
                message.reject("no such customer")
            elif message.value == b"late":
                message.release()
            else:
                message.accept()


def test_dead_records_are_written_once_with_their_records(cluster: Cluster, admin: Admin, name: str) -> None:
    write(cluster, name, [b"good", b"bad", b"late", b"good"] * 10)
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}", COPIES: "true", LIMIT: "2"})
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([name])
        run(consumer, admin, name, 40)
    written = letters(cluster, name, 20)
    assert len(written) == 20
    for letter in written:
        headers = dict(letter.headers)
        assert letter.value in (b"bad", b"late")
        bad = letter.value == b"bad"
        assert headers["trace"] == b"t"
        assert (headers["_dlq.errors.group"], headers["_dlq.errors.topic"]) == (name.encode(), name.encode())
        number = 2 * int(headers["_dlq.errors.offset"] or b"") + int(headers["_dlq.errors.partition"] or b"")
        assert letter.key == b"k%d" % number
        reason = b"no such customer" if bad else b"not accepted in 2 deliveries"
        assert headers["_dlq.errors.message"] == reason
        assert headers["_dlq.errors.delivery.count"] == (b"1" if bad else b"2")
    assert len({letter.key for letter in written}) == 20
    assert sum(position.dead_count for position in admin.describe_queue(name).partitions) == 20


def test_a_record_that_is_too_large_for_the_topic_leaves_a_letter_without_it(
    cluster: Cluster, admin: Admin, name: str
) -> None:
    admin.alter_topic(name, set_configs={"max.message.bytes": str(8 << 20)})
    admin.alter_topic(f"dlq.{name}", set_configs={"max.message.bytes": "100000"})
    write(cluster, name, [b"bad"])
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send(name, b"x" * (8_000_000), partition=1).result()
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}", COPIES: "true"})
    deadline_s = time.monotonic() + WITHIN_S
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([name])
        while sum(position.settled_to for position in admin.describe_queue(name).partitions) < 2:
            assert time.monotonic() < deadline_s, admin.describe_queue(name)
            for message in consumer.poll(timeout=0.3):
                message.reject("large")
    written = letters(cluster, name, 2)
    assert sorted((letter.value, len(letter.headers)) for letter in written) == [(b"", 6), (b"bad", 7)]


def test_dead_records_wait_while_their_topic_is_gone(
    cluster: Cluster, admin: Admin, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(cluster, name, [b"bad", b"good"])
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}", LOCK: "2000"})
    admin.delete_topics([f"dlq.{name}"])
    deadline_s = time.monotonic() + WITHIN_S
    with caplog.at_level(logging.WARNING), QueueConsumer({**config(cluster, name), "max.block.ms": 1_000}) as consumer:
        consumer.subscribe([name])
        while "do not reach the dead-letter topic" not in caplog.text:
            assert time.monotonic() < deadline_s
            for message in consumer.poll(timeout=0.3):
                message.reject() if message.value == b"bad" else message.accept()
        waiting = [part for position in admin.describe_queue(name).partitions for part in position.ranges]
        assert [(part.count, part.death_reason) for part in waiting] == [(1, "rejected without a reason")]
        admin.create_topics([NewTopic(f"dlq.{name}", num_partitions=1)])
        run(consumer, admin, name, 2)
    [letter] = letters(cluster, name, 1)
    assert (letter.key, letter.value) == (None, b"")


@pytest.mark.parametrize("copies", ["true", "false"])
def test_dead_letters_are_redriven_once(cluster: Cluster, admin: Admin, name: str, copies: str) -> None:
    write(cluster, name, [b"bad", b"bad", b"bad", b"bad"])
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}", COPIES: copies})
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([name])
        run(consumer, admin, name, 4)
        assert admin.redrive_queue(name, max_letters=1).written_count == 1
        assert admin.redrive_queue(name).written_count == 3
        assert admin.redrive_queue(name).written_count == 0
        again: dict[bytes | None, tuple[bytes | None, object]] = {}
        deadline_s = time.monotonic() + WITHIN_S
        while len(again) < 4:
            assert time.monotonic() < deadline_s
            for message in consumer.poll(timeout=0.3):
                message.accept()
                again[message.key] = message.value, message.headers
    assert again == {b"k%d" % number: (b"bad", [("trace", b"t")]) for number in range(4)}


def test_a_redrive_ends_an_earlier_one_that_hangs(cluster: Cluster, admin: Admin, name: str) -> None:
    """The earlier one has pending offsets. They count for nothing, and it commits nothing any more."""
    write(cluster, name, [b"bad", b"bad", b"bad", b"bad"])
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}", COPIES: "true"})
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([name])
        run(consumer, admin, name, 4)
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{name}-redrive"}
    with Producer(servers) as hanging:
        transaction = hanging.transaction()
        transaction.__enter__()
        transaction.commit_offsets(f"{name}-redrive", {TopicPartition(f"dlq.{name}", 0): 3})
        assert admin.redrive_queue(name).written_count == 4
        with pytest.raises(MinilogError):
            transaction.__exit__(None, None, None)
    assert admin.redrive_queue(name).written_count == 0


def test_a_letter_whose_record_is_gone_is_counted(cluster: Cluster, admin: Admin, name: str) -> None:
    write(cluster, name, [b"bad"])
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}"})
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([name])
        run(consumer, admin, name, 1)
    admin.delete_records({TopicPartition(name, 0): 1})
    done = programs.run("queue", "redrive", name, "--json", "-b", cluster.bootstrap_servers)
    assert json.loads(done.stdout) == {"queue": name, "written": 0, "gone": 1}
