"""Pause, seek to the ends of the log, subscribe by a pattern, and records one by one (docs/spec/replication.md)."""

from __future__ import annotations

import re

import pytest

from minilog.consumer.decode import decode, records
from minilog.consumer.iterated import Iterated
from minilog.consumer.subscription import Subscription
from minilog.errors import InvalidArgument, OffsetOutOfRange
from minilog.net.metadata_cache import CachedTopic
from minilog.types import Record, TopicPartition
from minilog.v1.metadata_pb2 import TopicMetadata
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.consuming import Consuming, fill, two_partitions

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def iterated(cluster: Consuming) -> list[Record]:
    """What one poll of a program that iterates takes."""
    found = [
        record
        for run in cluster.core.take(1 << 30)
        for rows in decode(run, 1 << 30).rows
        for record in records(run, rows)
    ]
    cluster.core.iterated.put(found)
    return found


# -- pause and resume


def test_a_paused_partition_hands_out_nothing_and_keeps_its_position() -> None:
    cluster = two_partitions(3)
    cluster.core.steering.pause([P0])
    cluster.run()
    cluster.push()
    assert cluster.read() == [(1, 0), (1, 1), (1, 2)]
    assert cluster.core.position(P0) == 0
    assert cluster.core.steering.paused() == [P0]


def test_a_paused_partition_is_forgotten_by_its_broker() -> None:
    cluster = two_partitions(3)
    cluster.core.steering.pause([P0])
    cluster.run()
    assert sorted(partition for _, partition in cluster.positions) == [1]


def test_a_partition_goes_on_where_it_was_when_it_is_resumed() -> None:
    cluster = two_partitions(3, 2)
    cluster.push()
    assert len(cluster.core.take(1)) == 1  # of one of the two
    cluster.core.steering.pause(None)
    cluster.run()
    cluster.push()
    assert cluster.read() == []
    cluster.core.steering.resume(None)
    cluster.run()
    cluster.push()
    assert len(cluster.read()) == 5


def test_the_buffer_of_a_paused_partition_gives_its_credit_back() -> None:
    cluster = two_partitions(3)
    cluster.push()
    sessions = [cluster.core._sessions.get(broker) for broker in {broker for broker, _ in cluster.requests}]
    cluster.core.steering.pause(None)
    assert [each.given_back_bytes == each.received_bytes for each in sessions if each is not None] == [True] * len(
        sessions
    )


def test_a_run_on_its_way_when_a_partition_is_paused_is_dropped() -> None:
    cluster = two_partitions(3)
    cluster.core.steering.pause([P0])
    cluster.push()  # the broker has not heard of it yet
    assert [partition for partition, _ in cluster.read()] == [1, 1, 1]
    cluster.run()
    cluster.core.steering.resume([P0])
    cluster.run()
    cluster.push()
    assert cluster.read() == [(0, 0), (0, 1), (0, 2)]


def test_a_partition_that_is_paused_before_its_start_is_known_begins_there_when_it_is_resumed() -> None:
    cluster = Consuming(Brokers(), auto_offset_reset="earliest")
    fill(cluster.brokers, 2)
    cluster.core.assign([P0])
    cluster.core.steering.pause([P0])
    cluster.run(for_ms=100.0)
    assert cluster.core.position(P0) == 0
    assert not cluster.push()
    cluster.core.steering.resume([P0])
    cluster.run()
    cluster.push()
    assert [offset for _, offset in cluster.read()] == [0, 1]


def test_the_error_of_a_paused_partition_waits_until_it_is_resumed() -> None:
    cluster = two_partitions(3, auto_offset_reset="error")
    cluster.core.steering.pause([P1])
    cluster.run()
    cluster.core.seek(P1, 99)
    cluster.run()
    assert cluster.read() == []
    cluster.core.steering.resume([P1])
    cluster.run()
    cluster.push()
    with pytest.raises(OffsetOutOfRange):
        cluster.read()


def test_a_poll_that_gathers_bytes_does_not_wait_for_paused_partitions() -> None:
    cluster = two_partitions(3, fetch_min_bytes=1 << 20)
    assert not cluster.core.is_complete()
    cluster.core.steering.pause(None)
    assert cluster.core.is_complete()


def test_a_partition_that_is_assigned_anew_is_not_paused() -> None:
    cluster = two_partitions(3)
    cluster.core.steering.pause(None)
    cluster.core.assign({P0: 0})
    assert cluster.core.steering.paused() == []


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_partition_alone_or_one_that_is_not_assigned_is_refused(word: str) -> None:
    cluster = two_partitions(3)
    with pytest.raises(InvalidArgument, match="is not a list: give a list"):
        getattr(cluster.core.steering, word)(P0)
    with pytest.raises(InvalidArgument, match="is not assigned"):
        getattr(cluster.core.steering, word)([TopicPartition("other", 0)])


def test_a_word_that_is_refused_changes_nothing() -> None:
    cluster = two_partitions(3)
    with pytest.raises(InvalidArgument):
        cluster.core.steering.pause([P0, TopicPartition("other", 0)])
    assert cluster.core.steering.paused() == []


# -- seek


def test_a_consumer_goes_back_to_the_start_of_the_log_and_forth_to_its_end() -> None:
    cluster = two_partitions(3)
    cluster.push()
    assert len(cluster.read()) == 6
    cluster.core.steering.seek_to("earliest", [P0])
    cluster.run()
    cluster.push()
    assert cluster.read() == [(0, 0), (0, 1), (0, 2)]
    cluster.core.seek(P1, 0)
    cluster.core.steering.seek_to("latest", None)
    cluster.run()
    cluster.push()
    assert cluster.read() == []
    assert [cluster.core.position(each) for each in (P0, P1)] == [3, 3]


def test_a_seek_to_the_start_gets_over_an_error() -> None:
    cluster = two_partitions(3, auto_offset_reset="error")
    cluster.core.seek(P0, 99)
    cluster.run()
    cluster.push()
    cluster.core.take(1 << 30)
    with pytest.raises(OffsetOutOfRange):
        cluster.core.take(1 << 30)
    cluster.core.steering.seek_to("earliest", [P0])
    cluster.run()
    cluster.push()
    assert cluster.read() == [(0, 0), (0, 1), (0, 2)]


# -- records one by one


def test_the_position_is_behind_the_record_that_the_program_got_last() -> None:
    cluster = two_partitions(3)
    cluster.push()
    assert len(iterated(cluster)) == 6
    first = cluster.core.iterated.next()
    here, other = TopicPartition(TOPIC, first.partition), P1 if first.partition == 0 else P0
    assert cluster.core.position(here) == 1
    assert cluster.core.position(other) == 0
    committed = {key.partition: each.offset for key, each in cluster.core.consumed().items()}
    assert committed == {here.partition: 1, other.partition: 0}


def test_a_partition_is_not_finished_while_records_wait() -> None:
    cluster = Consuming(Brokers())
    fill(cluster.brokers, 2)
    cluster.core.assign([TopicPartition(TOPIC, 0, 0, 2)])
    cluster.run()
    cluster.push()
    assert len(iterated(cluster)) == 2
    assert not cluster.core.finished()
    cluster.core.iterated.take_all()
    assert cluster.core.finished()
    assert cluster.core.has_ended()


def test_records_that_wait_and_belong_to_a_poll_that_never_returned_are_given_back() -> None:
    cluster = two_partitions(3)
    cluster.push()
    iterated(cluster)
    cluster.core.give_back()
    assert not cluster.core.iterated
    assert len(cluster.read()) == 6


def test_a_seek_lets_the_records_of_its_partition_go() -> None:
    cluster = two_partitions(3)
    cluster.push()
    iterated(cluster)
    cluster.core.seek(P0, 1)
    assert {record.partition for record in cluster.core.iterated.take_all()} == {1}
    cluster.run()
    cluster.push()
    assert cluster.read() == [(0, 1), (0, 2)]


def test_a_pause_keeps_the_records_that_the_program_did_not_get_for_later() -> None:
    cluster = two_partitions(3)
    cluster.push()
    iterated(cluster)
    got = cluster.core.iterated.next()
    partition = TopicPartition(TOPIC, got.partition)
    cluster.core.steering.pause([partition])
    assert {record.partition for record in cluster.core.iterated.take_all()} == {1 - got.partition}
    cluster.core.steering.resume(None)
    cluster.run()
    cluster.push()
    assert cluster.read() == [(got.partition, 1), (got.partition, 2)]


def test_records_that_wait_are_read_anew_by_another_kind_of_poll() -> None:
    cluster = two_partitions(3)
    cluster.push()
    iterated(cluster)
    got = cluster.core.iterated.next()
    cluster.core.steering.put_iterated_back()
    assert not cluster.core.iterated
    cluster.run()
    cluster.push()
    assert sorted(cluster.read()) == sorted({(p, o) for p in (0, 1) for o in range(3)} - {(got.partition, got.offset)})


def test_an_iteration_of_nothing_is_refused() -> None:
    cluster = Consuming(Brokers())
    with pytest.raises(InvalidArgument, match="subscribe first"):
        cluster.core.has_ended()
    cluster.core.subscribe(["t"])
    assert not cluster.core.has_ended()


def test_places_are_the_first_offsets_of_each_partition() -> None:
    waiting = Iterated()
    waiting.put(Record("t", p, o, 0, None, b"", []) for p, o in [(0, 5), (1, 7), (0, 6)])
    assert waiting.places() == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
    waiting.let_go([TopicPartition("t", 0)])
    assert waiting.places() == {TopicPartition("t", 1): 7}


# -- subscriptions


def test_a_pattern_is_for_the_whole_name() -> None:
    found = Subscription.to(re.compile("flights-.*"))
    assert found.names_listed(["flights-2", "flights-1", "my-flights-3", "flights"]) == []
    assert found.names == ["flights-1", "flights-2"]


def test_a_topic_that_matches_no_more_is_let_go() -> None:
    found = Subscription.to(re.compile("a.*"))
    found.names_listed(["a1", "a2"])
    assert found.names_listed(["a2", "a3"]) == ["a1"]
    assert found.names == ["a2", "a3"]


def test_the_first_look_decides_which_partitions_came_later() -> None:
    def topic(name: str, topic_id: bytes, partitions: int) -> CachedTopic:
        return CachedTopic(name, topic_id, partitions, None, TopicMetadata())

    subscribed, first = Subscription.to(["a1", "a2"]), topic("a1", b"1" * 16, 2)
    assert not subscribed.came_later(first, 0)  # it has not begun
    subscribed.look({"a1": first, "other": topic("other", b"2" * 16, 1)})
    subscribed.look({"a1": topic("a1", b"1" * 16, 9)})
    assert [subscribed.came_later(first, number) for number in range(4)] == [False, False, True, True]
    assert subscribed.came_later(topic("a2", b"3" * 16, 1), 0)
    assert subscribed.came_later(topic("a1", b"4" * 16, 1), 0)  # another topic of its name


@pytest.mark.parametrize(("topics", "word"), [("a", r"give \['a'\]"), (["^a"], r"give a pattern as re.compile")])
def test_a_name_alone_and_a_pattern_as_text_are_refused(topics: object, word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        Subscription.to(topics)  # type: ignore[arg-type]


def test_a_pattern_reads_new_topics_from_their_start_and_lets_go_of_deleted_ones() -> None:
    cluster = Consuming(Brokers(partitions=2), auto_offset_reset="latest")
    fill(cluster.brokers, 3)
    cluster.core.subscribe(re.compile(f"{TOPIC[:2]}.*"))
    cluster.core.topics_listed([])
    cluster.run()
    assert cluster.core.assignment() == []
    cluster.core.topics_listed([TOPIC, "other"])
    cluster.core.metadata_changed(cluster.now)
    cluster.run()
    cluster.push()
    assert cluster.core.assignment() == [P0, P1]
    assert [offset for _, offset in cluster.read()] == [0, 1, 2]
    cluster.core.topics_listed(["other"])
    cluster.core.metadata_changed(cluster.now)
    cluster.run()
    assert cluster.core.assignment() == []
    assert not cluster.positions
    cluster.core.take(1 << 30)  # and no error is left of them


def test_the_leader_of_a_resumed_partition_is_asked_as_of_the_epoch_that_was_read() -> None:
    cluster = two_partitions(3)
    cluster.push()
    assert len(cluster.read()) == 6
    cluster.core.steering.pause([P0])
    cluster.run()
    cluster.core.steering.resume([P0])
    cluster.run()
    position = next(each for (_, partition), each in cluster.positions.items() if partition == 0)
    assert position.HasField("last_fetched_epoch")
