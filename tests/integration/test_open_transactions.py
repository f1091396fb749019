"""What happens to brokers and topics while a transaction is open on them: all of it, or nothing, is seen afterwards."""

from __future__ import annotations

import itertools
import pathlib
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.transactions.messages import Attempt
from tests.cluster import Cluster, running_cluster
from tests.integration.moving import wait_until
from tests.rules import proves

pytestmark = proves("TX.18")

_numbers = itertools.count()
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: pathlib.Path = tmp_path_factory.mktemp("brokers")
    with running_cluster(folder, brokers=4, voters=3, settings={"flush.policy": "os"}) as running:
        yield running


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"open-{next(_numbers)}"
    admin.create_topics([NewTopic(name, num_partitions=2)])
    return name


def settings_of(cluster: Cluster, name: str) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}


def visible(cluster: Cluster, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """All that a reader gets now, of both partitions in order."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": isolation}
    partitions = [TopicPartition(topic, number) for number in range(2)]
    with Admin(servers) as admin:
        ends = admin.list_offsets(dict.fromkeys(partitions, "latest"))
    found: list[bytes | None] = []
    with Consumer(servers) as consumer:
        consumer.assign([TopicPartition(topic, each.partition, 0, end) for each, end in ends.items()])
        deadline_s = time.monotonic() + WITHIN_S
        while not consumer.finished():
            assert time.monotonic() < deadline_s
            found += [record.value for record in consumer.poll(timeout=0.5)]
    return sorted(found, key=lambda value: value or b"")


def send(producer: Producer, topic: str, *values: bytes) -> None:
    """To both partitions in turn; all acknowledged."""
    sent = [producer.send(topic, value, partition=number % 2) for number, value in enumerate(values)]
    for each in sent:
        each.result(timeout=WITHIN_S)


def leave_open(cluster: Cluster, topic: str, *values: bytes, timeout_ms: int) -> None:
    """What a task that dies leaves behind: written, kept alive no more, and named by nobody."""
    settings = settings_of(cluster, f"dead-{topic}") | {"transaction.timeout.ms": timeout_ms}
    with Producer(settings) as producer:
        part = producer.participation()
        part.begin(Attempt(f"dead-{topic}", 0, b"attempt", b"run"))
        send(producer, topic, *values)
        part.leave()


@pytest.mark.dear("it kills brokers, and others take over")
def test_all_brokers_are_killed_and_the_transaction_goes_on(cluster: Cluster, topic: str) -> None:
    with Producer(settings_of(cluster, topic)) as producer:
        with producer.transaction():
            send(producer, topic, b"a0", b"a1")
        leave_open(cluster, topic, b"x0", b"x1", b"x2", timeout_ms=4_000)
        with producer.transaction():
            send(producer, topic, b"b0", b"b1")
            cluster.kill(1, 2, 3, 4)
            cluster.start()
            cluster.wait_running()
            assert visible(cluster, topic) == [b"a0", b"a1"]
            send(producer, topic, b"b2", b"b3")
    # Behind what is left open: seen when that has timed out, by a coordinator that is new.
    wait_until(lambda: len(visible(cluster, topic)) > 2)
    wait_until(lambda: visible(cluster, topic) == [b"a0", b"a1", b"b0", b"b1", b"b2", b"b3"])
    assert len(visible(cluster, topic, "read_uncommitted")) == 9
    cluster.kill(1, 2, 3, 4)
    cluster.start()
    cluster.wait_running()
    assert visible(cluster, topic) == [b"a0", b"a1", b"b0", b"b1", b"b2", b"b3"]


def test_a_topic_is_deleted_and_made_again_while_a_transaction_is_open_on_it(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    other = f"{topic}-other"
    admin.create_topics([NewTopic(other, num_partitions=2)])
    with Producer(settings_of(cluster, topic)) as producer, producer.transaction():
        send(producer, topic, b"kept")
        send(producer, other, b"deleted")
        admin.delete_topics([other])
        admin.create_topics([NewTopic(other, num_partitions=2)])
    assert visible(cluster, topic) == [b"kept"]
    assert visible(cluster, other) == []
    with Producer(settings_of(cluster, topic)) as producer, producer.transaction():
        send(producer, other, b"new")
    assert visible(cluster, other) == [b"new"]


def test_partitions_move_to_other_brokers_while_a_transaction_is_open_on_them(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    (described,) = admin.describe_topics([topic])
    wanted = {
        TopicPartition(topic, each.partition): [4, *each.replicas[:1]]
        if 4 not in each.replicas
        else [number for number in (1, 2, 3) if number not in each.replicas] + [4]
        for each in described.partitions
    }
    with Producer(settings_of(cluster, topic)) as producer, producer.transaction():
        send(producer, topic, b"a0", b"a1")
        leave_open(cluster, topic, b"x0", b"x1", timeout_ms=2_000)
        admin.alter_partition_reassignments(wanted)
        wait_until(lambda: not admin.list_partition_reassignments())
        send(producer, topic, b"a2", b"a3")
        assert visible(cluster, topic) == []
    wait_until(lambda: visible(cluster, topic) == [b"a0", b"a1", b"a2", b"a3"])
    for each in admin.describe_topics([topic])[0].partitions:
        assert each.last_stable_offset == each.high_watermark
