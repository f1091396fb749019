"""Queues against real brokers: each message goes to one worker, and comes again if that worker does not settle it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import pathlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from minilog import Admin, NewTopic, Producer, QueueConsumer, TopicPartition, aio
from minilog.errors import (
    InvalidConfig,
    InvalidRecordState,
    MinilogError,
    NonEmptyQueue,
    ResourceNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from minilog.queues.message import Message
from tests import programs
from tests.cluster import Cluster
from tests.integration.moving import wait_until
from tests.pool import MORTAL, shared_cluster

WITHIN_S = 30.0
LOCK = "group.share.record.lock.duration.ms"
_numbers = itertools.count()


cluster = shared_cluster(MORTAL)


@pytest.fixture
def name(admin: Admin) -> str:
    """A topic with three partitions, and a queue of that name."""
    name = f"jobs-{next(_numbers)}"
    admin.create_topics([NewTopic(name, num_partitions=3)])
    return name


def settings(cluster: Cluster, queue: str, **others: object) -> dict[str, object]:
    more = {name.replace("_", "."): value for name, value in others.items()}
    return {"bootstrap.servers": cluster.bootstrap_servers, "queue": queue, **more}


@contextlib.contextmanager
def worker(cluster: Cluster, name: str, **others: object) -> Iterator[QueueConsumer]:
    with QueueConsumer(settings(cluster, name, **others)) as consumer:
        consumer.subscribe([name])
        yield consumer


def write(cluster: Cluster, topic: str, count: int, **others: object) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **others}) as producer:
        for future in [producer.send(topic, b"%d" % number, partition=number % 3) for number in range(count)]:
            future.result(timeout=WITHIN_S)


def messages(consumer: QueueConsumer, count: int, within_s: float = WITHIN_S) -> list[Message]:
    """As many messages, or more."""
    came: list[Message] = []
    deadline_s = time.monotonic() + within_s
    while len(came) < count:
        assert time.monotonic() < deadline_s, f"{len(came)} of {count} came"
        came += consumer.poll(timeout=0.5)
    return came


def values(came: Sequence[Message]) -> list[int]:
    return sorted(int(message.value or b"") for message in came)


def unsettled(admin: Admin, queue: str) -> int:
    positions = admin.describe_queue(queue).partitions
    return sum((position.backlog or 0) + sum(part.count for part in position.ranges) for position in positions)


def test_each_message_goes_to_one_of_three_workers(cluster: Cluster, admin: Admin, name: str) -> None:
    write(cluster, name, 1_000)
    shares: list[Counter[int]] = [Counter() for _ in range(3)]
    left = threading.Semaphore(0)

    def work(share: Counter[int]) -> None:
        with worker(cluster, name, max_poll_records=50) as consumer:
            while sum(map(len, shares)) < 1_000:
                for message in consumer.poll(timeout=0.2):
                    share[int(message.value or b"")] += 1
                    assert message.delivery_count == 1
                    message.accept()
            consumer.flush()
            left.release()

    threads = [threading.Thread(target=work, args=(share,)) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
        assert left.acquire(timeout=0.1)
    assert all(shares)
    assert sum(shares, Counter[int]()) == Counter(range(1_000))
    assert unsettled(admin, name) == 0


def test_a_released_message_comes_again_at_once_or_later(cluster: Cluster, name: str) -> None:
    write(cluster, name, 3)
    with worker(cluster, name) as consumer:
        first = messages(consumer, 3)
        assert {message.delivery_count for message in first} == {1}
        for message in first:
            message.release()
        again = messages(consumer, 3)
        assert values(again) == [0, 1, 2]
        assert {message.delivery_count for message in again} == {2}
        for message in again[:2]:
            message.accept()
        again[2].release(delay=2.0)
        released_s = time.monotonic()
        (message,) = messages(consumer, 1)
        assert time.monotonic() - released_s >= 1.9
        message.accept()


def test_a_message_that_is_rejected_or_released_too_often_is_dead(cluster: Cluster, admin: Admin, name: str) -> None:
    admin.alter_queue(name, set={"group.share.delivery.count.limit": "2"})
    write(cluster, name, 3)
    with worker(cluster, name) as consumer:
        first, *others = messages(consumer, 3)
        first.release()
        for message in others:
            message.reject("no JSON")
        (again,) = messages(consumer, 1)
        assert again.delivery_count == 2
        again.release()
        assert consumer.poll(timeout=1.0) == []
    with worker(cluster, name) as other:
        assert other.poll(timeout=1.0) == []
    assert sum(position.dead_count for position in admin.describe_queue(name).partitions) == 3
    assert unsettled(admin, name) == 0


def test_the_messages_of_a_killed_worker_come_to_another(
    cluster: Cluster, admin: Admin, name: str, tmp_path: pathlib.Path
) -> None:
    admin.alter_queue(name, set={LOCK: "1000"})
    write(cluster, name, 3)
    printed = tmp_path / "printed"
    with open(os.devnull, "r+b") as nothing, printed.open("wb") as output:
        process = programs.start(
            [cluster.bootstrap_servers, name, name],
            [nothing.fileno(), output.fileno(), nothing.fileno()],
            module="tests.integration.queue_worker",
        )
    wait_until(lambda: printed.read_bytes().endswith(b"\n"))
    process.kill()
    with worker(cluster, name) as consumer:
        came = messages(consumer, 3)
        assert values(came) == [0, 1, 2]
        # A worker that is killed before its first renewal has not named the lease: its delivery is not counted.
        assert max(message.delivery_count for message in came) in (1, 2)
        for message in came:
            message.accept()
        consumer.flush()
    assert unsettled(admin, name) == 0


def test_a_closed_worker_gives_back_at_once_what_it_has_not_settled(cluster: Cluster, name: str) -> None:
    write(cluster, name, 10)
    with worker(cluster, name) as consumer:
        came = messages(consumer, 10)
        came[0].accept()
    with pytest.raises(InvalidRecordState, match="closed"):
        came[1].accept()
    with worker(cluster, name) as other:  # long before the lock ends
        again = messages(other, 9, within_s=10.0)
        assert values(again) == sorted(set(range(10)) - {int(came[0].value or b"")})


def test_a_program_that_hangs_loses_its_locks(cluster: Cluster, admin: Admin, name: str) -> None:
    admin.alter_queue(name, set={LOCK: "1000"})
    write(cluster, name, 3)
    with worker(cluster, name, max_poll_interval_ms=500) as consumer, worker(cluster, name) as other:
        came = messages(consumer, 3)
        again = messages(other, 3)  # meanwhile the first does not poll
        assert {message.delivery_count for message in again} == {2}
        with pytest.raises(InvalidRecordState, match="lock"):
            came[0].accept()
        for message in again:
            message.accept()


def test_a_worker_iterates(cluster: Cluster, name: str) -> None:
    write(cluster, name, 100)
    came: list[Message] = []
    with worker(cluster, name, max_poll_records=7) as consumer:
        for message in consumer:
            message.accept()
            came.append(message)
            if len(came) == 100:
                consumer.wakeup()
        consumer.flush()
    assert values(came) == list(range(100))


def test_aborted_records_and_markers_come_to_nobody(cluster: Cluster, admin: Admin, name: str) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}) as producer:
        for number in range(6):
            with contextlib.suppress(ZeroDivisionError), producer.transaction():
                producer.send(name, b"%d" % number, partition=0)
                if number % 2:
                    raise ZeroDivisionError
    with worker(cluster, name) as consumer:
        came = messages(consumer, 3)
        assert values(came) == [0, 2, 4]
        for message in came:
            message.accept()
        assert consumer.poll(timeout=1.0) == []
        consumer.flush()
    wait_until(lambda: unsettled(admin, name) == 0)


def test_workers_go_on_when_the_coordinator_is_killed(cluster: Cluster, admin: Admin, name: str) -> None:
    write(cluster, name, 300)
    done: Counter[int] = Counter()
    with worker(cluster, name, max_poll_records=10) as consumer:
        deadline_s = time.monotonic() + 2 * WITHIN_S
        killed = 0
        while len(done) < 300:
            assert time.monotonic() < deadline_s, len(done)
            with contextlib.suppress(InvalidRecordState):
                for message in consumer.poll(timeout=0.5):
                    done[int(message.value or b"")] += 1
                    with contextlib.suppress(InvalidRecordState):  # then it comes again
                        message.accept()
            if len(done) >= 50 and not killed:
                killed = 1
                cluster.kill(killed)
                cluster.start(killed)
        with contextlib.suppress(InvalidRecordState):
            consumer.flush()
    cluster.wait_running()
    assert set(done) == set(range(300))


def test_an_asyncio_worker_polls_and_iterates(cluster: Cluster, name: str) -> None:
    write(cluster, name, 60)

    async def work() -> list[int]:
        came: list[int] = []
        async with aio.QueueConsumer(settings(cluster, name, max_poll_records=20)) as consumer:
            await consumer.subscribe([name])
            for message in await consumer.poll(timeout=10.0):
                message.accept()
                came.append(int(message.value or b""))
            async for message in consumer:
                message.accept()
                came.append(int(message.value or b""))
                if len(came) == 60:
                    break
            await consumer.flush()
        return came

    assert sorted(asyncio.run(work())) == list(range(60))


@pytest.mark.dear("it waits for a time-out of the product")
def test_a_subscription_names_topics_that_are_there(cluster: Cluster, admin: Admin, name: str) -> None:
    with QueueConsumer(settings(cluster, name, metadata_max_age_ms=500)) as consumer:
        with pytest.raises(UnknownTopicOrPartition):
            consumer.subscribe(["no-such-topic"])
        consumer.subscribe([name])
        assert consumer.poll(timeout=0.5) == []
        admin.delete_topics([name])
        with pytest.raises(UnknownTopicId, match="subscribe anew"):
            messages(consumer, 1)
        admin.create_topics([NewTopic(name, num_partitions=3)])
        consumer.subscribe([name])
        write(cluster, name, 3)
        assert values(messages(consumer, 3)) == [0, 1, 2]


def test_an_admin_describes_alters_and_deletes_a_queue(cluster: Cluster, admin: Admin, name: str) -> None:
    with pytest.raises(ResourceNotFound):
        admin.describe_queue(name)
    with pytest.raises(InvalidConfig):
        admin.alter_queue(name, set={"no.such.setting": "1"})
    admin.alter_queue(name, set={LOCK: "20000", "share.auto.offset.reset": "earliest"})
    admin.alter_queue(name, unset=["share.auto.offset.reset"])
    assert admin.describe_queue(name).settings == {LOCK: "20000"}
    write(cluster, name, 10)
    with worker(cluster, name, client_id="shipper") as consumer:
        came = messages(consumer, 10)
        assert name in {listing.queue for listing in admin.list_queues()}
        ranges = [part for position in admin.describe_queue(name).partitions for part in position.ranges]
        assert sum(part.count for part in ranges) == 10
        assert {part.state for part in ranges} == {"leased"}
        assert all(part.worker_id.startswith("shipper-") and 0 < part.remaining_ms <= 20_000 for part in ranges)
        with pytest.raises(NonEmptyQueue):
            admin.delete_queue(name)
        for message in came:
            message.accept()
    admin.delete_queue(name)
    with pytest.raises(ResourceNotFound):
        admin.describe_queue(name)


def test_the_command_line_consumes_describes_and_deletes_a_queue(cluster: Cluster, admin: Admin, name: str) -> None:
    write(cluster, name, 10)
    servers = ("-b", cluster.bootstrap_servers)
    assert programs.run("queue", "alter", name, "--set", f"{LOCK}=5000", *servers).returncode == 0
    ended = programs.run("consume", name, "--queue", name, "-n", "4", *servers)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.split()) == 4
    rest = programs.run("consume", name, "--queue", name, "-n", "6", "--json", *servers)
    printed = [json.loads(line)["value"] for line in rest.stdout.splitlines()]
    assert sorted(map(int, [*ended.stdout.split(), *printed])) == list(range(10))
    shown = json.loads(programs.run("queue", "describe", name, "--json", *servers).stdout)
    assert shown["settings"] == {LOCK: "5000"}
    assert sum(position["settled_to"] for position in shown["partitions"]) == 10
    assert name in programs.run("queue", "list", *servers).stdout
    assert programs.run("queue", "describe", name, *servers).returncode == 0
    assert programs.run("queue", "delete", name, *servers).returncode == 0
    with pytest.raises(MinilogError):
        admin.describe_queue(name)


def peeked(cluster: Cluster, *arguments: str) -> list[dict[str, Any]]:
    ended = programs.run("queue", "peek", *arguments, "--json", "-b", cluster.bootstrap_servers)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.dear("it waits for locks of messages")
def test_the_command_line_shows_what_is_not_settled_and_leases_nothing(
    cluster: Cluster, admin: Admin, name: str
) -> None:
    writer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    with contextlib.suppress(ZeroDivisionError), writer, writer.transaction():
        writer.send(name, b"aborted", partition=0).result()
        raise ZeroDivisionError
    write(cluster, name, 30)
    with worker(cluster, name, max_poll_records=6, client_id="shipper") as consumer:
        came = messages(consumer, 6)[:6]
        for message in came[:2]:
            message.accept()
        for message in came[2:4]:
            message.release(delay=60.0)
        consumer.flush()
        before = admin.describe_queue(name)
        leased = peeked(cluster, name, "--state", "leased", "-n", "100")
        assert {int(line["value"]) for line in leased} >= {int(message.value or b"") for message in came[4:]}
        assert all(line["worker_id"].startswith("shipper-") and line["delivery_count"] == 1 for line in leased)
        ready = peeked(cluster, name, "--state", "ready")
        assert sorted(int(line["value"]) for line in ready) == values(came[2:4])
        assert {line["state"] for line in ready} == {"ready"}
        every = peeked(cluster, name, "-n", "100")
        assert sorted(int(line["value"]) for line in every) == sorted(set(range(30)) - set(values(came[:2])))
        fresh = peeked(cluster, name, "--state", "fresh", "-n", "100")
        assert {(line["state"], line["delivery_count"]) for line in fresh} == {("fresh", 0)}
        assert len(fresh) + len(leased) + len(ready) == 28
        assert len(peeked(cluster, name)) == 10
        after = admin.describe_queue(name)
        counts = [(part.next_offset, part.count("leased"), part.count("ready")) for part in before.partitions]
        assert counts == [(part.next_offset, part.count("leased"), part.count("ready")) for part in after.partitions]
    write(cluster, name, 3)  # nobody waits for records now, so the coordinator does not hear of these
    write(cluster, name, 3)
    assert len(peeked(cluster, name, "-n", "100")) == 34
    shown = programs.run("queue", "peek", name, "--state", "ready", "-b", cluster.bootstrap_servers)
    state, deliveries, topic = shown.stdout.splitlines()[0].split("\t")[:3]
    assert (state, topic) == ("ready", name)
    assert deliveries in ("0", "1"), "released, or returned by a worker that had not handed it out"
    unknown = programs.run("queue", "peek", "no-such-queue", "-b", cluster.bootstrap_servers)
    assert (unknown.returncode, unknown.stdout) == (1, "")


def test_a_peek_leaves_out_records_that_retention_took(cluster: Cluster, admin: Admin, name: str) -> None:
    write(cluster, name, 30)
    with worker(cluster, name, max_poll_records=6) as consumer:
        for message in messages(consumer, 30):
            message.release(delay=60.0)
        consumer.flush()
        admin.delete_records({TopicPartition(name, 0): 4, TopicPartition(name, 1): 10})
        assert len(peeked(cluster, name, "-n", "100")) == 16


@pytest.mark.dear("it waits for locks of messages")
def test_a_worker_without_work_subscribes_anew_and_closes_at_once(cluster: Cluster, admin: Admin, name: str) -> None:
    """Its request for records waits for seconds by then."""
    other = f"{name}-other"
    admin.create_topics([NewTopic(other, num_partitions=3)])
    write(cluster, other, 3)
    with worker(cluster, name) as consumer:
        assert consumer.poll(timeout=2.0) == []
        consumer.subscribe([other])
        began_s = time.monotonic()
        came = messages(consumer, 3)
        assert time.monotonic() - began_s < 3.0
        for message in came:
            message.accept()
        assert consumer.poll(timeout=2.0) == []
        closed_s = time.monotonic()
    assert time.monotonic() - closed_s < 2.0
