"""`producer.transaction()` against real brokers: all or nothing, with consumed offsets, and one writer at a time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition, aio
from minilog.errors import InvalidTxnState, ProducerFenced, TransactionalIdNotFound
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster
from tests.rules import proves

_numbers = itertools.count()


class _OnPurposeError(Exception):
    """What a program raises in its block."""


cluster = shared_cluster(THREE)


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"totals-{next(_numbers)}"
    admin.create_topics([NewTopic(name, num_partitions=1)])
    return name


@pytest.fixture
def settings(cluster: Cluster, topic: str) -> dict[str, object]:
    """Of a transactional producer, under an id that only this test uses."""
    return {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"program-{topic}"}


def committed_values(cluster: Cluster, topic: str) -> list[bytes | None]:
    """All that is visible now."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        end = admin.list_offsets({TopicPartition(topic, 0): "latest"})[TopicPartition(topic, 0)]
    found: list[bytes | None] = []
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0, end)])
        deadline_s = time.monotonic() + 20.0
        while not consumer.finished():
            assert time.monotonic() < deadline_s
            found += [record.value for record in consumer.poll(timeout=0.5)]
    return found


def test_records_of_a_block_are_visible_at_its_end(cluster: Cluster, topic: str, settings: dict[str, object]) -> None:
    with Producer(settings) as producer:
        for number in range(3):
            with producer.transaction() as transaction:
                producer.send(topic, b"%d" % number).result(timeout=20)
                assert committed_values(cluster, topic) == [b"%d" % each for each in range(number)]
            assert transaction.generation == number
            assert committed_values(cluster, topic) == [b"%d" % each for each in range(number + 1)]


def test_an_exception_aborts_and_the_next_block_goes_on(
    cluster: Cluster, topic: str, settings: dict[str, object]
) -> None:
    with Producer(settings) as producer:
        with contextlib.suppress(_OnPurposeError), producer.transaction():
            producer.send(topic, b"never").result(timeout=20)
            raise _OnPurposeError
        with producer.transaction():
            producer.send(topic, b"seen")
    assert committed_values(cluster, topic) == [b"seen"]


def test_the_same_for_asyncio(cluster: Cluster, topic: str, settings: dict[str, object]) -> None:
    async def work() -> None:
        async with aio.Producer(settings) as producer, producer.transaction():
            await producer.send(topic, b"async")

    asyncio.run(work())
    assert committed_values(cluster, topic) == [b"async"]


def test_outside_of_a_block_nothing_is_taken_and_one_is_open_at_a_time(topic: str, settings: dict[str, object]) -> None:
    with Producer(settings) as producer:
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            producer.send(topic, b"a")
        with producer.transaction(), pytest.raises(InvalidTxnState, match="one at a time"), producer.transaction():
            pass


@proves("SPS.18")
def test_a_block_that_takes_longer_than_the_time_out_is_kept_alive(
    admin: Admin, topic: str, settings: dict[str, object]
) -> None:
    with Producer(settings | {"transaction.timeout.ms": 1_000}) as producer, producer.transaction():
        time.sleep(2.5)
    listed = {each.transactional_id: each for each in admin.list_transactions()}
    assert listed[str(settings["transactional.id"])].last_committed_generation == 0


def test_consumed_offsets_are_the_groups_when_the_transaction_is_committed(
    admin: Admin, topic: str, settings: dict[str, object]
) -> None:
    group, partition = f"group-{topic}", TopicPartition(topic, 0)
    with Producer(settings) as producer:
        with contextlib.suppress(_OnPurposeError), producer.transaction() as transaction:
            transaction.commit_offsets(group, {partition: 7})
            raise _OnPurposeError
        with producer.transaction() as transaction:
            transaction.commit_offsets(group, {partition: 8})
            transaction.commit_offsets(group, {partition: 9})
            assert not admin.describe_group(group).offsets
    assert [each.offset for each in admin.describe_group(group).offsets] == [9]


@proves("TX.19")
def test_a_commit_of_offsets_that_was_given_up_aborts(topic: str, settings: dict[str, object]) -> None:
    """It may have been done: a commit that does not know of it could never become visible."""

    async def work() -> None:
        async with aio.Producer(settings) as producer, producer.transaction() as transaction:
            committing = asyncio.create_task(
                transaction.commit_offsets(f"group-{topic}", {TopicPartition(topic, 0): 7})
            )
            await asyncio.sleep(0.001)
            committing.cancel()

    with pytest.raises(InvalidTxnState, match="cancelled a commit"):
        asyncio.run(work())


@proves("TX.19")
def test_the_end_of_a_block_waits_for_a_commit_of_offsets_and_takes_no_later_one(
    admin: Admin, topic: str, settings: dict[str, object]
) -> None:
    group, partition = f"group-{topic}", TopicPartition(topic, 0)

    async def work() -> None:
        async with aio.Producer(settings) as producer:
            async with producer.transaction() as transaction:
                committing = asyncio.create_task(transaction.commit_offsets(group, {partition: 7}))
                await asyncio.sleep(0.001)
            await committing
            with pytest.raises(InvalidTxnState, match="has ended"):
                await transaction.commit_offsets(group, {partition: 8})

    asyncio.run(work())
    assert [each.offset for each in admin.describe_group(group).offsets] == [7]


def test_people_abort_what_is_open_and_forget_what_has_ended(
    admin: Admin, topic: str, settings: dict[str, object]
) -> None:
    name = str(settings["transactional.id"])
    with Producer(settings) as producer:
        with pytest.raises(ProducerFenced, match="aborted"), producer.transaction():
            assert admin.abort_transaction(name) == 1
        with producer.transaction():
            pass
    admin.forget_transaction(name)
    with pytest.raises(TransactionalIdNotFound):
        admin.describe_transaction(name)
