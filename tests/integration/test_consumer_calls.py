"""What a user of Kafka's Python clients looks for in a consumer, against a real broker: blocking and for asyncio."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import pytest

from minilog import Admin, Consumer, InvalidArgument, NewTopic, Producer, Record, TopicPartition, aio
from minilog.errors import UnknownTopicOrPartition
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

TOPIC = "calls"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
RECORDS = 10  # of each partition
TIME_MS = 1_700_000_000_000


shared = shared_cluster(THREE)


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    with Admin(shared.client) as admin:
        admin.create_topics([NewTopic(TOPIC, 2)])
    with Producer(shared.client) as producer:
        for number in range(RECORDS):
            for partition in (0, 1):
                producer.send(TOPIC, b"%d" % number, partition=partition, timestamp=TIME_MS + number)
    return shared


def consumer_of(cluster: Cluster, **settings: object) -> Consumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer({**cluster.client, "auto.offset.reset": "earliest", **named})


def bounded() -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number, 0, RECORDS) for number in (0, 1)]


def test_a_program_iterates_over_records_to_the_end(cluster: Cluster) -> None:
    with consumer_of(cluster) as consumer:
        consumer.assign(bounded())
        found = [(record.partition, record.offset) for record in consumer]
        assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]
        assert list(consumer) == []


def test_a_commit_in_the_loop_commits_what_the_program_has_got(cluster: Cluster) -> None:
    with consumer_of(cluster, group_id="loop") as consumer:
        consumer.assign(bounded())
        got: list[Record] = []
        for record in consumer:
            got.append(record)
            if len(got) == 7:
                break
        consumer.commit()
        counted = {each: sum(record.partition == each.partition for record in got) for each in (P0, P1)}
        assert consumer.committed([P0, P1]) == counted
        assert {each: consumer.position(each) for each in (P0, P1)} == counted
        rest = consumer.poll(5.0)  # the rest comes first, and nothing twice
        seen = {(record.partition, record.offset) for record in [*got, *rest]}
        assert len(seen) == len(got) + len(rest)


def test_arrow_goes_on_behind_the_record_that_the_loop_got_last(cluster: Cluster) -> None:
    with consumer_of(cluster) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0, RECORDS)])
        assert next(iter(consumer)).offset == 0
        found: list[int] = []
        while not consumer.finished():
            found += [offset for rows in consumer.poll_arrow(5.0) for offset in rows.column("offset").to_pylist()]
        assert found == list(range(1, RECORDS))


def test_a_paused_partition_waits_until_it_is_resumed(cluster: Cluster) -> None:
    with consumer_of(cluster) as consumer:
        consumer.assign(bounded())
        consumer.pause([P0])
        assert consumer.paused() == [P0]
        found: list[Record] = []
        deadline_s = time.monotonic() + 10.0
        while len(found) < RECORDS and time.monotonic() < deadline_s:
            found += consumer.poll(0.5)
        assert {record.partition for record in found} == {1}
        assert consumer.poll(0.3) == []
        consumer.resume()
        assert {record.partition for record in consumer} == {0}


def test_offsets_are_found_without_an_assignment(cluster: Cluster) -> None:
    with consumer_of(cluster) as consumer:
        assert consumer.partitions_for(TOPIC) == [P0, P1]
        assert TOPIC in consumer.list_topics()
        assert consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
        assert consumer.end_offsets([P0]) == {P0: RECORDS}
        assert consumer.offsets_for_times({P0: TIME_MS + 4, P1: TIME_MS + 1_000}) == {P0: 4, P1: None}
        with Admin(cluster.client) as admin:
            assert admin.list_offsets({P1: TIME_MS + 1_000, P0: TIME_MS + 4}) == {P1: None, P0: 4}
        with pytest.raises(InvalidArgument, match="is no time"):
            consumer.offsets_for_times({P0: "earliest"})  # type: ignore[dict-item]
        with pytest.raises(UnknownTopicOrPartition):
            consumer.partitions_for("nothing")


def test_a_consumer_goes_to_the_ends_of_the_log_and_knows_its_lag(cluster: Cluster) -> None:
    with consumer_of(cluster) as consumer:
        consumer.assign({P0: 3, P1: 0})
        assert consumer.lag() == {P0: RECORDS - 3, P1: RECORDS}
        consumer.seek_to_end()
        assert consumer.poll(0.3) == []
        assert consumer.lag([P0]) == {P0: 0}
        consumer.seek_to_beginning([P1])
        found: list[Record] = []
        while len(found) < RECORDS:
            found += consumer.poll(5.0)
        assert [record.offset for record in found] == list(range(RECORDS))
        with pytest.raises(InvalidArgument, match="is not assigned"):
            consumer.lag([TopicPartition("other", 0)])


def test_a_pattern_takes_up_topics_that_come_later(cluster: Cluster) -> None:
    latest = {"metadata_max_age_ms": 100, "auto_offset_reset": "latest"}
    with Admin(cluster.client) as admin, Producer(cluster.client) as producer:  # noqa: SIM117
        with consumer_of(cluster, **latest) as consumer:
            consumer.subscribe(re.compile("later-.*"))
            assert consumer.poll(0.3) == []
            admin.create_topics([NewTopic("later-1", 1), NewTopic("not-later-1", 1)])
            producer.send("later-1", b"first").result(10)
            producer.send("not-later-1", b"other").result(10)
            assert next(iter(consumer)).value == b"first"
            assert consumer.assignment() == [TopicPartition("later-1", 0)]
            admin.delete_topics(["later-1"])
            deadline_s = time.monotonic() + 10.0
            while consumer.assignment() and time.monotonic() < deadline_s:
                consumer.poll(0.1)
            assert consumer.assignment() == []


def test_another_thread_wakes_a_poll_and_ends_a_loop(cluster: Cluster) -> None:
    with consumer_of(cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([P0, P1])
        began_s = time.monotonic()
        threading.Timer(0.2, consumer.wakeup).start()
        assert consumer.poll(30.0) == []
        threading.Timer(0.2, consumer.wakeup).start()
        assert list(consumer) == []
        assert time.monotonic() - began_s < 10.0
        consumer.wakeup()  # before: the next poll is woken, and only that one
        assert consumer.poll(30.0) == []


def test_a_loop_that_was_woken_loses_no_record(cluster: Cluster) -> None:
    with consumer_of(cluster) as consumer:
        consumer.assign(bounded())
        found = []
        for record in consumer:
            found.append((record.partition, record.offset))
            if len(found) % 3 == 0:
                consumer.wakeup()
        assert len(found) == 3
        for _ in range(2 * RECORDS):
            for record in consumer:
                found.append((record.partition, record.offset))
                if len(found) % 3 == 0:
                    consumer.wakeup()
        assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]


def test_the_consumer_for_asyncio_has_the_same(cluster: Cluster) -> None:
    async def work() -> None:
        async with aio.Consumer({**cluster.client, "group.id": "aio", "auto.offset.reset": "earliest"}) as consumer:
            await consumer.assign(bounded())
            found: list[Record] = []
            async for record in consumer:
                found.append(record)
                if len(found) == 5:
                    break
            await consumer.commit()
            assert sum(offset or 0 for offset in (await consumer.committed([P0, P1])).values()) == 5
            found += [record async for record in consumer]
            assert len({(record.partition, record.offset) for record in found}) == len(found) == 2 * RECORDS
            await consumer.seek_to_beginning()
            await consumer.pause([P0])
            assert consumer.paused() == [P0]
            assert {record.partition for record in await consumer.poll(10.0)} == {1}
            await consumer.resume()
            assert await consumer.lag([P1]) == {P1: 0}
            await consumer.seek_to_end()
            assert await consumer.end_offsets([P1]) == {P1: RECORDS}
            assert await consumer.beginning_offsets([P1]) == {P1: 0}
            assert await consumer.offsets_for_times({P0: TIME_MS + 4}) == {P0: 4}
            assert await consumer.partitions_for(TOPIC) == [P0, P1]
            assert TOPIC in await consumer.list_topics()
            await consumer.assign([TopicPartition(TOPIC, 0, RECORDS)])
            asyncio.get_running_loop().call_later(0.2, consumer.wakeup)
            assert await consumer.poll(30.0) == []
            threading.Timer(0.2, consumer.wakeup).start()
            assert [record async for record in consumer] == []

    asyncio.run(work())
