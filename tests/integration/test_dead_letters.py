"""The dead letters of queues against real brokers: each dead record is written once, with its settlement."""

from __future__ import annotations

import itertools
import json
import time

import pyarrow as pa
import pytest

from minilog import Admin, Consumer, Message, NewTopic, Producer, QueueConsumer, TopicPartition
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.types import Record, Redriven
from tests import programs
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

WITHIN_S = 40.0
LIMIT, LOCK = "group.share.delivery.count.limit", "group.share.record.lock.duration.ms"
TOPIC, COPIES = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
_numbers = itertools.count()


cluster = shared_cluster(THREE)


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
    assert sorted((letter.value, len(letter.headers)) for letter in written) == [(b"", 7), (b"bad", 8)]


def settle_again(consumer: QueueConsumer, count: int) -> dict[tuple[int, int], Message]:
    """So many messages, by partition and offset."""
    again: dict[tuple[int, int], Message] = {}
    deadline_s = time.monotonic() + WITHIN_S
    while len(again) < count:
        assert time.monotonic() < deadline_s
        for message in consumer.poll(timeout=0.3):
            message.accept()
            again[message.partition, message.offset] = message
    return again


def ends(cluster: Cluster, name: str) -> list[int]:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        return list(consumer.end_offsets(consumer.partitions_for(name)).values())


@pytest.mark.parametrize("copies", ["true", "false"])
def test_dead_letters_are_redriven_once_and_nobody_else_sees_it(
    cluster: Cluster, admin: Admin, name: str, copies: str
) -> None:
    write(cluster, name, [b"bad", b"bad", b"bad", b"bad"])
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}", COPIES: copies})
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([name])
        run(consumer, admin, name, 4)
        before = ends(cluster, name)
        assert admin.redrive_queue(name, max_letters=1).made_ready_count == 1
        assert admin.redrive_queue(name) == Redriven(made_ready_count=3)
        assert admin.redrive_queue(name) == Redriven()
        again = settle_again(consumer, 4)
    assert again.keys() == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {message.delivery_count for message in again.values()} == {1}
    assert ends(cluster, name) == before
    assert admin.list_groups() == [], "no group has the place: nobody deletes it or sets it back"


def test_letters_of_rows_are_redriven_to_their_rows(cluster: Cluster, admin: Admin, name: str) -> None:
    topic = f"{name}-rows"
    admin.create_topics([NewTopic(topic, num_partitions=1, schema=schema_from_ddl("id long"))])
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send_batch(topic, pa.table({"id": [1, 2, 3]})).result()
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}", COPIES: "true"})
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([topic])
        for message in settle_some(consumer, 3):
            message.reject("bad row")
        consumer.flush()
        letters(cluster, name, 3)
        assert admin.redrive_queue(name) == Redriven(made_ready_count=3)
        for message in settle_some(consumer, 3):
            message.reject("still bad")
        consumer.flush()
        letters(cluster, name, 6)
        admin.delete_records({TopicPartition(topic, 0): 3})
        assert admin.redrive_queue(name) == Redriven(written_to={topic: 3})
        again = settle_again(consumer, 3)
    assert [json.loads(message.value or b"") for message in again.values()] == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert again.keys() == {(0, 3), (0, 4), (0, 5)}


def settle_some(consumer: QueueConsumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline_s = time.monotonic() + WITHIN_S
    while len(messages) < count:
        assert time.monotonic() < deadline_s
        messages += consumer.poll(timeout=0.3)
    return messages


def test_a_record_that_is_gone_is_written_anew_from_its_letter_once(cluster: Cluster, admin: Admin, name: str) -> None:
    """Those that are there are ready again between them."""
    write(cluster, name, [b"bad"] * 6)
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}", COPIES: "true"})
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([name])
        run(consumer, admin, name, 6)
        admin.delete_records({TopicPartition(name, 0): 2})
        assert admin.redrive_queue(name) == Redriven(made_ready_count=4, written_to={name: 2})
        assert admin.redrive_queue(name) == Redriven()
        again = settle_again(consumer, 6)
    assert again.keys() == {(0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (0, 4)}
    assert {again[place].key for place in ((0, 3), (0, 4))} == {b"k0", b"k2"}
    assert all(message.headers == [("trace", b"t")] for message in again.values())


def test_letters_without_a_copy_and_foreign_records_are_counted(cluster: Cluster, admin: Admin, name: str) -> None:
    write(cluster, name, [b"bad"])
    admin.alter_queue(name, set={TOPIC: f"dlq.{name}"})
    with QueueConsumer(config(cluster, name)) as consumer:
        consumer.subscribe([name])
        run(consumer, admin, name, 1)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send(f"dlq.{name}", b"no letter").result()
    admin.delete_records({TopicPartition(name, 0): 1})
    done = programs.run("queue", "redrive", name, "--json", "-b", cluster.bootstrap_servers)
    assert json.loads(done.stdout) == {
        "queue": name,
        "made_ready": 0,
        "written": 0,
        "written_to": {},
        "gone": 1,
        "unsettled": 0,
        "passed_over": 1,
        "full": False,
    }
