"""Producing to a topic that is deleted, created again, or not told of for a while."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from minilog.errors import UnknownOutcome, UnknownTopicId
from minilog.producer import sender
from minilog.record_batch.header import decode_header
from minilog.types import RecordMetadata
from minilog.v1 import common_pb2
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.producing import Producing
from tests.unit.client.test_sender import proven, values


def producer_ids(brokers: Brokers) -> list[int]:
    """Of the batches that are written."""
    return [decode_header(batch).producer_id for _, _, batch in brokers.log().batches]


def create_again(cluster: Producing) -> None:
    """The topic is deleted and created again; the cache hears of it."""
    cluster.brokers.metadata_offset += 1
    cluster.brokers.told_topic_id = bytes(16)
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.sender.metadata_changed(cluster.now)


def test_what_waits_for_a_topic_created_again_is_refused_at_once() -> None:
    cluster = Producing(Brokers())
    cluster.brokers.script.extend([common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID] * 50)
    sent, lingering = cluster.send(b"a"), cluster.append(b"b")
    cluster.step()
    create_again(cluster)
    cluster.step()
    for future in (sent, lingering):
        with pytest.raises(UnknownTopicId, match="was deleted or created again"):
            future.result(timeout=0)
    assert cluster.accumulator.used_bytes() == 0


def test_what_was_out_when_a_topic_went_is_refused_with_its_answer() -> None:
    cluster = proven()
    cluster.hold = True
    future = cluster.send(b"a")
    cluster.run()
    create_again(cluster)
    cluster.run(100)
    cluster.brokers.script.extend([common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID] * 50)
    cluster.release()
    cluster.run(1_000)
    with pytest.raises(UnknownTopicId, match="was deleted or created again"):
        future.result(timeout=0)


def test_what_is_added_after_a_topic_went_is_refused_too() -> None:
    """Who waited for room in the buffer has looked the topic up before."""
    cluster = proven()
    before = cluster.cache.topics[TOPIC]
    create_again(cluster)
    cluster.run(100)
    future: Future[RecordMetadata] = Future()
    cluster.accumulator.append(before, 0, None, b"a", None, 7_000, future, cluster.now)
    cluster.run(1_000)
    with pytest.raises(UnknownTopicId, match="was deleted or created again"):
        future.result(timeout=0)
    assert cluster.accumulator.used_bytes() == 0


def be_seen_again(cluster: Producing, topic_id: bytes) -> None:
    """The topic had been there all the time: who asks was not allowed to see it."""
    cluster.brokers.metadata_offset += 1
    cluster.brokers.told_topic_id = topic_id
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.sender.metadata_changed(cluster.now)


def test_a_topic_that_was_not_seen_for_a_while_has_the_sequences_that_it_had() -> None:
    """Found by the simulator (201 of the theme users): sequences began at 0 again under the same producer id, so that
    the leader took a new record for the first one, and acknowledged what it did not write."""
    cluster = proven()
    topic_id = cluster.cache.topics[TOPIC].topic_id
    create_again(cluster)
    cluster.run(100)
    be_seen_again(cluster, topic_id)
    future = cluster.send(b"new")
    cluster.run(1_000)
    assert future.result(timeout=0).offset == 1
    assert values(cluster.brokers) == [b"first", b"new"]
    assert len(set(producer_ids(cluster.brokers))) == 1


def test_what_fails_while_a_topic_is_not_seen_is_followed_under_another_producer_id() -> None:
    cluster = proven()
    topic_id = cluster.cache.topics[TOPIC].topic_id
    cluster.brokers.script.extend([common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID] * 2)
    failed = cluster.send(b"failed")
    cluster.step()
    create_again(cluster)
    cluster.run(100)
    with pytest.raises(UnknownTopicId):
        failed.result(timeout=0)
    be_seen_again(cluster, topic_id)
    cluster.brokers.script.clear()
    future = cluster.send(b"new")
    cluster.run(1_000)
    assert future.result(timeout=0).offset == 1
    assert values(cluster.brokers) == [b"first", b"new"]
    assert len(set(producer_ids(cluster.brokers))) == 2


def test_topics_that_come_and_go_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MOST_LANES_GONE", 0)
    cluster = proven()
    topic_id = cluster.cache.topics[TOPIC].topic_id
    create_again(cluster)
    cluster.run(1_000)
    assert not cluster.sender._lanes
    be_seen_again(cluster, topic_id)
    future = cluster.send(b"new")
    cluster.run(1_000)
    assert future.result(timeout=0).offset == 1
    assert values(cluster.brokers) == [b"first", b"new"]


def test_what_may_have_been_written_before_a_topic_went_is_unknown() -> None:
    cluster = Producing(Brokers())
    cluster.run()
    cluster.mute = True
    future = cluster.send(b"a")
    cluster.run(20)
    cluster.lose_connection(1)
    create_again(cluster)
    cluster.step()
    with pytest.raises(UnknownOutcome):
        future.result(timeout=0)


def test_what_is_out_when_a_topic_goes_is_told_as_it_is_answered() -> None:
    cluster = Producing(Brokers())
    cluster.run()
    cluster.hold = True
    future = cluster.send(b"a")
    cluster.run(20)
    create_again(cluster)
    cluster.step()
    assert not future.done()
    cluster.release()
    cluster.step()
    assert future.result(timeout=0) is not None
