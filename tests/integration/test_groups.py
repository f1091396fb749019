"""Groups against real brokers: offsets that are committed stay so, whoever dies; people and programs see the same."""

from __future__ import annotations

import json
import time

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.errors import GroupIdNotFound, InvalidArgument, InvalidTopic
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, coordinator_partition
from minilog_broker.coordinators.places import SLACK_RECORDS
from tests import programs
from tests.cluster import Cluster
from tests.integration.commands import done
from tests.pool import MORTAL, shared_cluster
from tests.rules import proves

TOPIC = "groups"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


shared = shared_cluster(MORTAL)


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    with Admin({"bootstrap.servers": shared.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=3)])
    with Producer({"bootstrap.servers": shared.bootstrap_servers}) as producer:
        sent = [producer.send(TOPIC, b"%d" % number, partition=number % 2) for number in range(20)]
        for future in sent:
            future.result(timeout=20.0)
    return shared


def consumer_of(cluster: Cluster, group: str, **settings: object) -> Consumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    servers = cluster.bootstrap_servers
    return Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", **named})


def read(consumer: Consumer, count: int, *, within_s: float = 20.0) -> list[bytes]:
    """The next `count` values, sorted by number."""
    found: list[bytes] = []
    deadline_s = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < deadline_s:
        found += [record.value or b"" for record in consumer.poll(timeout=0.5)]
    return sorted(found, key=int)


def test_a_group_goes_on_where_it_committed(cluster: Cluster) -> None:
    with consumer_of(cluster, "goes-on") as consumer:
        consumer.subscribe([TOPIC])
        assert len(read(consumer, 20)) == 20
        consumer.commit({P0: 4, P1: 9})
        assert consumer.committed([P0, P1]) == {P0: 4, P1: 9}
    with consumer_of(cluster, "goes-on") as consumer:
        consumer.subscribe([TOPIC])
        # of partition 0 the values 8, 10, ... 18; of partition 1 the last, 19
        assert read(consumer, 7) == [b"8", b"10", b"12", b"14", b"16", b"18", b"19"]
        consumer.commit()
        assert consumer.committed([P0, P1]) == {P0: 10, P1: 10}
    with consumer_of(cluster, "another") as consumer:
        assert consumer.committed([P0]) == {P0: None}


@proves("CO.16")
def test_committed_offsets_survive_their_coordinator_and_a_restart_of_all(cluster: Cluster) -> None:
    group = "survives"
    with consumer_of(cluster, group) as consumer, Admin(cluster.client) as admin:
        for offset in range(10):
            consumer.commit({P0: offset})
        leader = coordinator_of(admin, group)
        cluster.kill(leader)
        assert consumer.committed([P0, P1]) == {P0: 9, P1: None}
        consumer.commit({P1: 5})
        assert set(cluster.stop().values()) == {0}
        cluster.start()
        cluster.wait_running()
        assert consumer.committed([P0, P1]) == {P0: 9, P1: 5}


def coordinator_of(admin: Admin, group: str) -> int:
    (described,) = admin.describe_topics([GROUPS_TOPIC_NAME])
    leader = described.partitions[coordinator_partition(group)].leader
    assert leader is not None
    return leader


@proves("CO.2")
def test_an_internal_topic_is_moved_as_any_and_is_nobodys_to_write_or_delete(cluster: Cluster) -> None:
    with consumer_of(cluster, "moved") as consumer, Admin(cluster.client) as admin:
        consumer.commit({P0: 5})
        assert GROUPS_TOPIC_NAME not in admin.list_topics()
        assert GROUPS_TOPIC_NAME in admin.list_topics(internal=True)
        with pytest.raises(InvalidTopic):
            admin.delete_topics([GROUPS_TOPIC_NAME])
        ended = programs.run("produce", GROUPS_TOPIC_NAME, "-b", cluster.bootstrap_servers, stdin="x\n")
        assert ended.returncode == 1
        assert "only brokers write to it" in ended.stderr
        others = sorted(set(cluster.ports) - {coordinator_of(admin, "moved")})
        partition = TopicPartition(GROUPS_TOPIC_NAME, coordinator_partition("moved"))
        admin.alter_partition_reassignments({partition: others})
        deadline_s = time.monotonic() + 20.0
        while coordinator_of(admin, "moved") not in others:
            assert time.monotonic() < deadline_s, "the leader was not moved"
            time.sleep(0.05)
        assert consumer.committed([P0]) == {P0: 5}


@pytest.mark.long
def test_a_group_that_commits_for_ever_has_a_short_log_that_outlives_its_coordinator(
    cluster: Cluster,
) -> None:
    busy, idle = (
        "busy",
        next(name for name in map(str, range(1000)) if coordinator_partition(name) == coordinator_partition("busy")),
    )
    log = TopicPartition(GROUPS_TOPIC_NAME, coordinator_partition(busy))
    with consumer_of(cluster, idle) as consumer:
        consumer.commit({P0: 2, P1: 3})
    with consumer_of(cluster, busy) as consumer, Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for number in range(SLACK_RECORDS * 2 // 3):
            consumer.commit({P0: number % 10, P1: (number + 1) % 10})
        start, end = (admin.list_offsets({log: where})[log] or 0 for where in ("earliest", "latest"))
        assert start > 0
        assert end - start < SLACK_RECORDS
        leader = admin.describe_topics([GROUPS_TOPIC_NAME])[0].partitions[log.partition].leader
        assert leader is not None
        cluster.kill(leader)
        try:
            assert consumer.committed([P0, P1]) == {P0: number % 10, P1: (number + 1) % 10}
            with consumer_of(cluster, idle) as other:
                assert other.committed([P0, P1]) == {P0: 2, P1: 3}
        finally:
            cluster.start(leader)
            cluster.wait_running()


def test_an_admin_sees_how_far_a_group_is_behind_and_moves_it(cluster: Cluster) -> None:
    with consumer_of(cluster, "seen") as consumer, Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        consumer.commit({P0: 4, P1: 10})
        assert "seen" in [each.group_id for each in admin.list_groups()]
        behind, done = admin.describe_group("seen").offsets
        assert (behind.offset, behind.end_offset, behind.lag_records) == (4, 10, 6)
        assert behind.lag_seconds is not None
        assert 0.0 < behind.lag_seconds < 600.0
        assert (done.lag_records, done.lag_seconds) == (0, 0.0)
        assert admin.seek_group("seen", {P0: "earliest", P1: 7}) == {P0: 0, P1: 7}
        assert admin.seek_group("seen", {P0: "latest", P1: "@0"}) == {P0: 10, P1: 0}
        assert consumer.committed([P0, P1]) == {P0: 10, P1: 0}
        with pytest.raises(InvalidArgument, match="its log goes from 0 to 10"):
            admin.seek_group("seen", {P0: 11})
        admin.delete_group("seen")
        with pytest.raises(GroupIdNotFound):
            admin.describe_group("seen")
        assert consumer.committed([P0]) == {P0: None}


def test_the_command_line_commits_what_it_printed(cluster: Cluster) -> None:
    consume = ("consume", TOPIC, "-p", "0", "-g", "printed", "--exit-at-end")
    assert done(cluster, *consume, "-n", "3").split() == ["0", "2", "4"]
    assert done(cluster, *consume).split() == ["6", "8", "10", "12", "14", "16", "18"]
    assert done(cluster, *consume).split() == []
    [offset] = json.loads(done(cluster, "group", "describe", "printed", "--json"))["offsets"]
    assert (offset["topic"], offset["partition"], offset["offset"], offset["lag_records"]) == (TOPIC, 0, 10, 0)
    listed = json.loads(done(cluster, "group", "list", "--json"))
    assert {"group_id": "printed", "partitions": 1, "members": 0} in listed
    moved = json.loads(done(cluster, "group", "seek", "printed", "-o", "-2", "--json"))
    assert moved == [{"topic": TOPIC, "partition": 0, "offset": 8}]
    assert done(cluster, *consume).split() == ["16", "18"]
    assert "printed" in done(cluster, "group", "describe", "printed")
    assert "deleted" in done(cluster, "group", "delete", "printed")
