"""Producing to a topic that is deleted, created again, or not told of for a while."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from minilog.errors import UnknownOutcome, UnknownTopicId
from minilog.producer import sender
from minilog.producer.partitioner import partition_for_key
from minilog.record_batch.header import decode_header
from minilog.record_batch.reader import read_records
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import RecordMetadata
from minilog.v1 import common_pb2
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.producing import Producing
from tests.unit.client.test_sender import proven, values


def producer_ids(brokers: Brokers) -> list[int]:
    """Of the batches that are written."""
    return [decode_header(batch).producer_id for _, _, batch in brokers.log().batches]


ANOTHER = b"y" * 16


def create_again(cluster: Producing, partitions: int = 1) -> None:
    """The topic is deleted and created again; the cache hears of it."""
    cluster.brokers.create_again(ANOTHER, partitions)
    hear(cluster)


def delete(cluster: Producing, *, tells_topic: bool = False) -> None:
    """The topic is deleted, or may not be seen any more; the cache hears of it."""
    cluster.brokers.metadata_offset += 1
    cluster.brokers.tells_topic = tells_topic
    hear(cluster)


def be_seen_again(cluster: Producing) -> None:
    """The topic had been there all the time: who asks was not allowed to see it."""
    delete(cluster, tells_topic=True)


def hear(cluster: Producing) -> None:
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.sender.metadata_changed(cluster.now)


def written_again(cluster: Producing) -> list[bytes | None]:
    """Into the topic of the same name that was created again."""
    run = b"".join(batch for _, _, batch in cluster.brokers.logs[(ANOTHER, 0)].batches)
    return [value for rows in read_records(run, ANOTHER, 0) for value in rows.column("value").to_pylist()]


def test_a_record_for_a_topic_created_again_goes_to_the_new_one_as_with_kafka() -> None:
    """Once: the first `send` after a topic was deleted and made anew failed."""
    cluster = proven()
    cluster.brokers.create_again(ANOTHER)
    first, second = cluster.send(b"a"), cluster.send(b"b")  # by the id that is known: they are refused
    cluster.run(2_000)
    third = cluster.send(b"c")
    cluster.run(2_000)
    assert [future.result(timeout=0).offset for future in (first, second, third)] == [0, 1, 2]
    assert written_again(cluster) == [b"a", b"b", b"c"]
    assert values(cluster.brokers) == [b"first"]
    assert cluster.accumulator.used_bytes() == 0


def test_a_record_without_a_partition_in_a_topic_created_again_is_refused() -> None:
    cluster = Producing(Brokers(partitions=2))
    cluster.run()
    future: Future[RecordMetadata] = Future()
    cluster.brokers.script.extend([common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID] * 2)
    cluster.accumulator.append(cluster.cache.topics[TOPIC], 1, None, b"a", None, 7_000, future, cluster.now)
    cluster.step()
    create_again(cluster)
    cluster.run(1_000)
    with pytest.raises(UnknownTopicId, match="was deleted or created again"):
        future.result(timeout=0)


@pytest.mark.parametrize(("partitions", "is_written"), [(1, True), (7, False)])
def test_records_of_one_key_stay_in_one_partition_of_the_new_topic(partitions: int, is_written: bool) -> None:
    cluster = proven()
    key = next(key for key in (str(number).encode() for number in range(99)) if partition_for_key(key, 7) != 0)
    cluster.brokers.create_again(ANOTHER, partitions)
    future = cluster.send(b"a", key=key)
    cluster.run(2_000)
    if is_written:
        assert future.result(timeout=0).partition == 0
    else:
        with pytest.raises(UnknownTopicId, match="was deleted or created again"):
            future.result(timeout=0)


def test_rows_of_a_schema_are_not_taken_to_a_topic_created_again() -> None:
    """It has columns of its own, or none."""
    cluster = Producing(Brokers())
    cluster.brokers.schemas = TopicSchemas((first_version(parse_ddl("a int")),))
    cluster.brokers.metadata_offset += 1
    cluster.cache.apply(cluster.brokers.metadata())
    known = cluster.cache.topics[TOPIC]
    schema = first_version(parse_ddl("a int"))
    future: Future[RecordMetadata] = Future()
    cluster.accumulator.append(known, 0, None, (1,), None, 7_000, future, cluster.now, schema, 8)
    create_again(cluster)
    cluster.run(1_000)
    with pytest.raises(UnknownTopicId, match="was deleted or created again"):
        future.result(timeout=0)


def test_a_record_that_waits_for_a_deleted_topic_is_refused_at_once() -> None:
    cluster = Producing(Brokers())
    cluster.brokers.script.extend([common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID] * 50)
    sent, lingering = cluster.send(b"a"), cluster.append(b"b")
    cluster.step()
    delete(cluster)
    cluster.step()
    for future in (sent, lingering):
        with pytest.raises(UnknownTopicId, match="was deleted or created again"):
            future.result(timeout=0)
    assert cluster.accumulator.used_bytes() == 0


def test_a_batch_that_was_out_when_a_topic_went_is_refused_with_its_answer() -> None:
    cluster = proven()
    cluster.hold = True
    future = cluster.send(b"a")
    cluster.run()
    delete(cluster)
    cluster.run(100)
    cluster.brokers.script.extend([common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID] * 50)
    cluster.release()
    cluster.run(1_000)
    with pytest.raises(UnknownTopicId, match="was deleted or created again"):
        future.result(timeout=0)


def test_a_record_added_after_a_topic_went_is_refused() -> None:
    """Who waited for room in the buffer has looked the topic up before."""
    cluster = proven()
    before = cluster.cache.topics[TOPIC]
    delete(cluster)
    cluster.run(100)
    future: Future[RecordMetadata] = Future()
    cluster.accumulator.append(before, 0, None, b"a", None, 7_000, future, cluster.now)
    cluster.run(1_000)
    with pytest.raises(UnknownTopicId, match="was deleted or created again"):
        future.result(timeout=0)
    assert cluster.accumulator.used_bytes() == 0


def test_a_topic_that_was_not_seen_for_a_while_has_the_sequences_that_it_had() -> None:
    """Found by the simulator (201 of the theme users): sequences began at 0 again under the same producer id, so that
    the leader took a new record for the first one, and acknowledged what it did not write."""
    cluster = proven()
    delete(cluster)
    cluster.run(100)
    be_seen_again(cluster)
    future = cluster.send(b"new")
    cluster.run(1_000)
    assert future.result(timeout=0).offset == 1
    assert values(cluster.brokers) == [b"first", b"new"]
    assert len(set(producer_ids(cluster.brokers))) == 1


def test_a_failure_while_a_topic_is_not_seen_is_followed_by_another_producer_id() -> None:
    cluster = proven()
    cluster.brokers.script.extend([common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID] * 2)
    failed = cluster.send(b"failed")
    cluster.step()
    delete(cluster)
    cluster.run(100)
    with pytest.raises(UnknownTopicId):
        failed.result(timeout=0)
    be_seen_again(cluster)
    cluster.brokers.script.clear()
    future = cluster.send(b"new")
    cluster.run(1_000)
    assert future.result(timeout=0).offset == 1
    assert values(cluster.brokers) == [b"first", b"new"]
    assert len(set(producer_ids(cluster.brokers))) == 2


def test_topics_that_come_and_go_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MOST_LANES_GONE", 0)
    cluster = proven()
    delete(cluster)
    cluster.run(1_000)
    assert not cluster.sender._lanes
    be_seen_again(cluster)
    future = cluster.send(b"new")
    cluster.run(1_000)
    assert future.result(timeout=0).offset == 1
    assert values(cluster.brokers) == [b"first", b"new"]


def test_a_batch_perhaps_written_before_a_topic_went_has_an_unknown_outcome() -> None:
    cluster = Producing(Brokers())
    cluster.run()
    cluster.mute = True
    future = cluster.send(b"a")
    cluster.run(20)
    cluster.lose_connection(1)
    delete(cluster)
    cluster.step()
    with pytest.raises(UnknownOutcome):
        future.result(timeout=0)


def test_a_batch_that_is_out_when_a_topic_goes_is_told_as_it_is_answered() -> None:
    cluster = Producing(Brokers())
    cluster.run()
    cluster.hold = True
    future = cluster.send(b"a")
    cluster.run(20)
    delete(cluster)
    cluster.step()
    assert not future.done()
    cluster.release()
    cluster.step()
    assert future.result(timeout=0) is not None
