"""Messages of a queue that a transaction settles, against real brokers: output and settlement both, or neither (Q5)."""

from __future__ import annotations

import time

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, QueueConsumer, TopicPartition
from minilog.errors import InvalidRecordState
from minilog.queues.message import Message
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

WITHIN_S = 40.0
COUNT = 300


cluster = shared_cluster(THREE)


def written(cluster: Cluster, topic: str, count: int) -> list[int]:
    """The committed values of the one partition of a topic, which has so many, in their order."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": "read_committed"}
    values: list[int] = []
    deadline_s = time.monotonic() + WITHIN_S
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(values) < count and time.monotonic() < deadline_s:
            values += [int(record.value or b"") for record in consumer.poll(timeout=0.2)]
        values += [int(record.value or b"") for record in consumer.poll(timeout=0.5)]
    return values


@pytest.mark.long
@pytest.mark.dear("it copies messages from a queue by two workers, in transactions")
def test_a_copy_by_two_workers_has_each_message_once(cluster: Cluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Admin(servers) as admin, Producer(servers) as source:
        admin.create_topics([NewTopic("tx-jobs", num_partitions=2), NewTopic("tx-done", num_partitions=1)])
        for number in range(COUNT):
            source.send("tx-jobs", b"%d" % number, partition=number % 2)
        source.flush()
        for worker in ("one", "two"):
            copy(servers, worker, fails_at=2)
        partitions = admin.describe_queue("tx-copy").partitions
    assert [partition.settled_to for partition in partitions] == [COUNT // 2, COUNT // 2]
    assert sorted(written(cluster, "tx-done", COUNT)) == list(range(COUNT))


def test_a_queue_is_not_told_as_settled_while_records_wait_behind_an_open_transaction(cluster: Cluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Admin(servers) as admin, Producer(servers) as plain:
        admin.create_topics([NewTopic("tx-waits", num_partitions=1)])
        plain.send("tx-waits", b"first").result(timeout=WITHIN_S)
        with QueueConsumer({**servers, "queue": "tx-waits"}) as consumer:
            consumer.subscribe(["tx-waits"])
            next(iter(consumer)).accept()
        with Producer({**servers, "transactional.id": "tx-waits"}) as producer, producer.transaction():
            producer.send("tx-waits", b"hidden").result(timeout=WITHIN_S)
            plain.send("tx-waits", b"behind it").result(timeout=WITHIN_S)
            (position,) = admin.describe_queue("tx-waits").partitions
            assert (position.settled_to, position.end_offset, position.backlog) == (1, 1, 0)
            assert position.undecided_count == 2
        (position,) = admin.describe_queue("tx-waits").partitions
        assert (position.undecided_count, position.backlog) == (0, 3), "the marker is an offset, too"


def copy(servers: dict[str, str], worker: str, *, fails_at: int) -> None:
    """Half of the messages, in transactions; one of them fails after its settlement."""
    config = {**servers, "queue": "tx-copy", "max.poll.records": 50}
    done = 0
    deadline_s = time.monotonic() + WITHIN_S
    with QueueConsumer(config) as consumer, Producer({**servers, "transactional.id": f"copy-{worker}"}) as producer:
        consumer.subscribe(["tx-jobs"])
        for turn in range(1_000):
            if done >= COUNT // 2:
                return
            assert time.monotonic() < deadline_s
            messages = consumer.poll(timeout=0.5)[: COUNT // 2 - done]
            try:
                with producer.transaction() as transaction:
                    for message in messages:
                        producer.send("tx-done", message.value)
                    transaction.settle(messages)
                    if turn == fails_at:
                        raise RuntimeError("the program fails")
            except RuntimeError:
                continue
            done += len(messages)


@pytest.mark.dear("it waits for locks of messages")
def test_a_message_whose_lock_ended_aborts_the_transaction(cluster: Cluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Admin(servers) as admin, Producer(servers) as source:
        admin.create_topics([NewTopic("tx-late", num_partitions=1), NewTopic("tx-late-done", num_partitions=1)])
        admin.alter_queue("tx-late", set={"group.share.record.lock.duration.ms": "1000"})
        source.send("tx-late", b"1").result(WITHIN_S)
    config = {**servers, "queue": "tx-late", "max.poll.interval.ms": 500}
    with QueueConsumer(config) as consumer, Producer({**servers, "transactional.id": "late"}) as producer:
        consumer.subscribe(["tx-late"])
        first = consumer.poll(timeout=WITHIN_S)
        time.sleep(2.0)  # the program hangs: nobody renews its lock
        with pytest.raises(InvalidRecordState):
            write_and_settle(producer, b"1", first)
        again = consumer.poll(timeout=WITHIN_S)
        assert [message.delivery_count for message in again] == [2]
        write_and_settle(producer, b"2", again)
    assert written(cluster, "tx-late-done", 1) == [2]


def write_and_settle(producer: Producer, value: bytes, messages: list[Message]) -> None:
    with producer.transaction() as transaction:
        producer.send("tx-late-done", value)
        transaction.settle(messages)
