"""acks=0 with real brokers: nobody answers, and what was sent to a healthy cluster is there all the same."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition, aio
from tests import programs
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

RECORDS = 10_000
WITHIN_S = 30.0


cluster = shared_cluster(THREE)


def created(cluster: Cluster, topic: str) -> dict[str, str]:
    """The configuration of a producer under acks=0, whose topic has two partitions."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=2)])
    return {"bootstrap.servers": cluster.bootstrap_servers, "acks": "0"}


def values(cluster: Cluster, topic: str) -> list[int]:
    """The records of the topic, sorted: as many as were sent, or what is there after a while."""
    found: list[int] = []
    deadline_s = time.monotonic() + WITHIN_S
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        while len(found) < RECORDS and time.monotonic() < deadline_s:
            found += [int(record.value) for record in consumer.poll(0.5) if record.value is not None]
    return sorted(found)


def test_lines_of_the_command_line_arrive(cluster: Cluster) -> None:
    """Once: every one of them was lost."""
    created(cluster, "lines")
    lines = "".join(f"{number}\n" for number in range(RECORDS))
    ended = programs.run("produce", "lines", "--acks", "0", "-b", cluster.bootstrap_servers, stdin=lines)
    assert (ended.returncode, ended.stderr) == (0, f"{RECORDS} records acknowledged\n")
    assert values(cluster, "lines") == list(range(RECORDS))


def test_records_of_an_asyncio_program_arrive_when_its_producer_closes(cluster: Cluster) -> None:
    async def send() -> None:
        async with aio.Producer(settings) as producer:
            for number in range(RECORDS):
                await producer.send("looped", b"%d" % number)

    settings = created(cluster, "looped")
    asyncio.run(send())
    assert values(cluster, "looped") == list(range(RECORDS))


def test_flushed_records_have_left_the_process(cluster: Cluster) -> None:
    """A program that is killed behind its flush has sent what it flushed."""
    settings = created(cluster, "flushed")
    program = (
        "import os, signal\nfrom minilog import Producer\n"
        f"producer = Producer({settings!r})\n"
        f"[producer.send('flushed', b'%d' % number) for number in range({RECORDS})]\n"
        "producer.flush()\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program], timeout=WITHIN_S, check=False)
    assert values(cluster, "flushed") == list(range(RECORDS))


def test_a_leader_that_moves_costs_no_seconds_of_records(cluster: Cluster) -> None:
    """The producer hears of its first refusal: it went on for metadata.max.age.ms, 5 s, and lost all of it."""
    settings = created(cluster, "moved")
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin, Producer(settings) as producer:
        place = TopicPartition("moved", 0)
        for number in range(100):
            producer.send("moved", b"%d" % number, partition=0)
        producer.flush()
        (described,) = admin.describe_topics(["moved"])
        leader, *others = described.partitions[0].replicas
        admin.alter_partition_reassignments({place: [*others, leader]})
        deadline_s = time.monotonic() + WITHIN_S
        while admin.describe_topics(["moved"])[0].partitions[0].leader != others[0] and time.monotonic() < deadline_s:
            admin.elect_leaders([place])
            time.sleep(0.1)
        producer.send("moved", b"refused", partition=0)
        producer.flush()
        time.sleep(0.5)
        for number in range(100, 200):
            producer.send("moved", b"%d" % number, partition=0)
        producer.flush()
        while (admin.list_offsets({place: "latest"})[place] or 0) < 200 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert (admin.list_offsets({place: "latest"})[place] or 0) >= 200
