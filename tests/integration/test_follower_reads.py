"""A consumer with client.rack against real brokers: who it reads from, and what it does when that one dies or hangs.

Broker n is in rack n. Each test makes a topic of its own, and reads it from the rack of a broker that does not lead it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.types import PartitionDescription
from tests.cluster import Cluster, broker_name, running_cluster
from tests.proxy import CLIENT, CUT
from tests.rules import proves

pytestmark = proves("HW.10")

RECORDS = 3_000
VALUE = b"x" * 1_000
NEVER_STILL_S = 2.5  # a stream of five silent keep-alives, the time to open another, and a busy machine


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    racks = {each: ("--rack", f"r{each}") for each in (1, 2, 3)}
    settings = {"flush.policy": "os"}  # who is read from is the question here, and a flush costs
    directory = tmp_path_factory.mktemp("racks")
    with running_cluster(directory, settings=settings, arguments=racks, proxied=True) as running:
        yield running


@dataclass
class Reading:
    """A topic, its partition 0 as it was made, and a follower of it; what was read of it."""

    cluster: Cluster
    admin: Admin
    """The one that made the topic: another may ask a broker that has not heard of it yet."""
    topic: str
    leader: int
    follower: int
    offsets: list[int] = field(default_factory=list)
    longest_s: float = 0.0  # between two polls that brought something

    def consumer(self, **settings: object) -> Consumer:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = Consumer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "client.rack": f"r{self.follower}"} | given
        )
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        return consumer

    def read(self, consumer: Consumer, up_to: int, timeout_s: float = 20.0) -> None:
        """Until `up_to` records were read in all."""
        deadline_s = last_s = time.monotonic()
        deadline_s += timeout_s
        while len(self.offsets) < up_to:
            for batch in consumer.poll_arrow(timeout=0.1):
                self.offsets += batch.column("offset").to_pylist()
                now_s = time.monotonic()
                self.longest_s, last_s = max(self.longest_s, now_s - last_s), now_s
            assert time.monotonic() < deadline_s, f"{len(self.offsets)} of {up_to} after {timeout_s} s"

    def write(self, count: int) -> None:
        with Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "batch.size": 10_000}) as producer:
            for _ in range(count):
                producer.send(self.topic, VALUE, partition=0)
            producer.flush(timeout=30.0)

    def described(self) -> PartitionDescription:
        return self.admin.describe_topics([self.topic])[0].partitions[0]

    def check(self, count: int) -> None:
        assert self.offsets == list(range(count)), "a gap or a repeat"


def sent_by(consumer: Consumer) -> dict[int, int]:
    """Bytes of batches that came to this consumer, by the broker they came from."""
    return dict(consumer._shell.core.received_bytes)


def in_sync(reading: Reading, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while len(reading.described().isr) < 3:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.fixture
def reading(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Reading]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        made = make_topic(cluster, admin, request.node.name.replace("_", "-"))
        made.write(RECORDS)
        yield made
    assert cluster.proxy is not None
    cluster.proxy.heal()
    cluster.resume(*cluster.processes)
    missing = [each for each in (1, 2, 3) if each not in cluster.processes]
    if missing:
        cluster.start(*missing)
    cluster.wait_running()


def known_controller(admin: Admin, timeout_s: float = 30.0) -> int:
    """The test before may have taken the controller away: until another is elected there is none."""
    deadline_s = time.monotonic() + timeout_s
    while (controller := admin.describe_cluster().controller) is None:
        assert time.monotonic() < deadline_s, "no controller"
        time.sleep(0.05)
    return controller


def make_topic(cluster: Cluster, admin: Admin, name: str) -> Reading:
    """A topic whose leader and follower are not the controller's broker: losing that is another test's subject."""
    controller = known_controller(admin)
    for attempt in range(10):
        topic = f"{name}-{attempt}"
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=3)])
        made = Reading(cluster, admin, topic, -1, -1)
        in_sync(made)
        leader = made.described().leader
        if leader is not None and leader != controller:
            made.leader = leader
            [made.follower] = {1, 2, 3} - {leader, controller}
            return made
    raise AssertionError("the controller's broker leads every topic")


def test_a_consumer_reads_from_the_replica_of_its_rack_and_from_no_other(reading: Reading) -> None:
    with reading.consumer() as consumer:
        reading.read(consumer, RECORDS)
        reading.write(500)
        reading.read(consumer, RECORDS + 500)
        assert list(sent_by(consumer)) == [reading.follower]
        assert sent_by(consumer)[reading.follower] > len(VALUE) * RECORDS
        assert consumer._shell._streams.broker_ids == [reading.follower]
    reading.check(RECORDS + 500)


@pytest.mark.dear("it kills brokers, and others take over")
def test_a_follower_that_is_killed_is_left_at_once(reading: Reading) -> None:
    with reading.consumer(fetch_max_bytes=100_000) as consumer:
        reading.read(consumer, RECORDS // 3)
        reading.cluster.kill(reading.follower)
        reading.read(consumer, RECORDS)
        assert set(sent_by(consumer)) == {reading.follower, reading.leader}
        assert reading.longest_s < NEVER_STILL_S
        reading.cluster.start(reading.follower)
        in_sync(reading)
        before = sent_by(consumer)[reading.follower]
        deadline_s = time.monotonic() + 15.0
        count = RECORDS
        while sent_by(consumer)[reading.follower] == before:  # it is in the ISR again: it is turned to again
            assert time.monotonic() < deadline_s
            reading.write(100)
            count += 100
            reading.read(consumer, count)
    reading.check(count)


def test_a_follower_that_hangs_is_left_when_it_is_silent(reading: Reading) -> None:
    with reading.consumer(fetch_max_bytes=100_000) as consumer:
        reading.read(consumer, RECORDS // 3)
        reading.cluster.pause(reading.follower)
        reading.read(consumer, RECORDS)
        assert set(sent_by(consumer)) == {reading.follower, reading.leader}
        assert reading.longest_s < NEVER_STILL_S
        reading.cluster.resume(reading.follower)
    reading.check(RECORDS)


def test_a_leader_that_is_killed_under_a_reader_of_its_follower(reading: Reading) -> None:
    with reading.consumer(fetch_max_bytes=100_000) as consumer:
        reading.read(consumer, RECORDS // 3)
        reading.cluster.kill(reading.leader)
        reading.write(500)
        reading.read(consumer, RECORDS + 500)
        reading.cluster.start(reading.leader)
        in_sync(reading)
        reading.write(500)
        reading.read(consumer, RECORDS + 1_000)
    reading.check(RECORDS + 1_000)


def cut(reading: Reading, one: str, *others: str) -> None:
    assert reading.cluster.proxy is not None
    for other in others:
        reading.cluster.proxy.set_rule_both_ways(one, other, CUT)


def test_a_consumer_that_cannot_reach_the_leader_reads_what_is_committed(reading: Reading) -> None:
    cut(reading, CLIENT, broker_name(reading.leader))
    with reading.consumer() as consumer:
        reading.read(consumer, RECORDS)
        assert list(sent_by(consumer)) == [reading.follower]
    reading.check(RECORDS)


@pytest.mark.dear("it kills brokers, and others take over")
def test_a_follower_cut_off_from_all_others_sends_its_readers_to_the_leader(reading: Reading) -> None:
    others = [broker_name(each) for each in (1, 2, 3) if each != reading.follower]
    with reading.consumer() as consumer:
        reading.read(consumer, RECORDS)
        cut(reading, broker_name(reading.follower), *others)
        reading.write(500)  # committed when the ISR is without it
        reading.read(consumer, RECORDS + 500)
        assert reading.leader in sent_by(consumer)
    reading.check(RECORDS + 500)
