"""Deleting records up to an offset on real brokers: done is done, whoever is killed then; readers and words."""

from __future__ import annotations

import json
import pathlib
from functools import partial

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.errors import InvalidTopic, OffsetOutOfRange, UnknownTopicOrPartition
from tests.cluster import Cluster, running_cluster
from tests.integration.commands import minilog
from tests.integration.moving import admin as admin_of
from tests.integration.moving import leaders, wait_in_sync, wait_until
from tests.pool import MORTAL, shared_cluster

RECORDS = 100


cluster = shared_cluster(MORTAL)


def filled(cluster: Cluster, admin: Admin, topic: str, partitions: int = 1) -> list[TopicPartition]:
    """A topic whose partitions have RECORDS records, the values their offsets, in batches of several."""
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=3)])
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 50}) as producer:
        for number in range(RECORDS):
            for partition in range(partitions):
                producer.send(topic, value=b"%d" % number, partition=partition)
    return [TopicPartition(topic, partition) for partition in range(partitions)]


def starts(admin: Admin, partitions: list[TopicPartition]) -> list[int | None]:
    return list(admin.list_offsets(dict.fromkeys(partitions, "earliest")).values())


def led_by_another(cluster: Cluster, topic: str, gone: int) -> bool:
    return leaders(cluster, topic)[0] not in (None, gone)


def test_trimmed_is_trimmed_when_the_leader_is_killed_at_once(cluster: Cluster, admin: Admin) -> None:
    (partition,) = filled(cluster, admin, "killed")
    for offset in (37, 60, RECORDS):
        leader = admin.describe_topics(["killed"])[0].partitions[0].leader
        assert leader is not None
        assert admin.delete_records({partition: offset}) == {partition: offset}
        cluster.kill(leader)
        wait_until(partial(led_by_another, cluster, "killed", leader))
        assert starts(admin, [partition]) == [offset]
        cluster.start(leader)
        cluster.wait_running()
        wait_in_sync(cluster, "killed")


def test_asked_while_the_leader_is_killed_it_is_asked_of_the_next(cluster: Cluster, admin: Admin) -> None:
    partitions = filled(cluster, admin, "next", partitions=3)
    leader = admin.describe_topics(["next"])[0].partitions[0].leader
    assert leader is not None
    cluster.kill(leader)
    assert admin.delete_records(dict.fromkeys(partitions, 55)) == dict.fromkeys(partitions, 55)
    assert starts(admin, partitions) == [55] * 3
    cluster.start(leader)
    cluster.wait_running()
    wait_in_sync(cluster, "next")
    assert starts(admin, partitions) == [55] * 3


def test_the_command_line_trims_and_consume_begins_there(cluster: Cluster, admin: Admin) -> None:
    filled(cluster, admin, "words", partitions=2)
    done = minilog(cluster, "topic", "trim", "words", "--to", "0:42", "--to", "1:end", "--json")
    assert json.loads(done.stdout) == [
        {"topic": "words", "partition": 0, "low_watermark": 42},
        {"topic": "words", "partition": 1, "low_watermark": RECORDS},
    ]
    again = minilog(cluster, "topic", "trim", "words", "--to", "0:42")
    assert (again.returncode, again.stdout) == (0, "partition 0 of words: starts at 42\n")
    read = minilog(cluster, "consume", "words", "-o", "start", "--exit-at-end", "--json")
    offsets = [(each["partition"], each["offset"]) for each in map(json.loads, read.stdout.splitlines())]
    assert offsets == [(0, offset) for offset in range(42, RECORDS)]


def test_a_refused_trim_is_one_line(cluster: Cluster, admin: Admin) -> None:
    (partition,) = filled(cluster, admin, "refused")
    with pytest.raises(OffsetOutOfRange, match=f"offset 101 is above the high watermark {RECORDS}"):
        admin.delete_records({partition: RECORDS + 1})
    with pytest.raises(UnknownTopicOrPartition):
        admin.delete_records({TopicPartition("refused", 7): 1})
    told = minilog(cluster, "topic", "trim", "refused", "--to", "0:101")
    assert told.returncode == 1
    assert len(told.stderr.strip().splitlines()) == 1
    assert starts(admin, [partition]) == [0]
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}) as consumer:
        consumer.assign([TopicPartition("refused", 0, 0)])
        consumer.poll(timeout=5)
        consumer.commit()
    with pytest.raises(InvalidTopic, match="only brokers write to it"):
        admin.delete_records({TopicPartition("__groups", 0): 0})


def poll_some(consumer: Consumer) -> list[int]:
    for _ in range(100):
        if found := consumer.poll(timeout=0.2):
            return [record.offset for record in found]
    raise AssertionError("nothing came")


@pytest.mark.long
def test_a_replica_on_an_emptied_disk_begins_inside_a_batch_that_was_cut(tmp_path: pathlib.Path) -> None:
    """KAFKA-6975: whoever starts anew there fetches the whole batch, and starts where the others do."""
    with running_cluster(tmp_path, brokers=4, voters=3) as cluster, admin_of(cluster) as admin:
        (partition,) = filled(cluster, admin, "moved")
        replicas = admin.describe_topics(["moved"])[0].partitions[0].replicas
        (other,) = {1, 2, 3, 4} - set(replicas)
        admin.delete_records({partition: 33})
        admin.alter_partition_reassignments({partition: [other]})
        wait_until(lambda: admin.describe_topics(["moved"])[0].partitions[0].replicas == [other])
        assert starts(admin, [partition]) == [33]
        with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
            consumer.assign([TopicPartition("moved", 0, 33)])
            assert poll_some(consumer)[0] == 33
