"""What is sent is split by the limits of brokers: whoever asks for many partitions or topics never meets one."""

from __future__ import annotations

import random

from minilog.admin.messages import parts_of_topics
from minilog.admin.records_deletion import RecordsDeletion
from minilog.config import parse_config
from minilog.consumer.consumer_effects import SendFetch
from minilog.consumer.sessions import FetchSessions
from minilog.limits import (
    MAX_ADMIN_TOPICS,
    MAX_CONDITION_TERMS,
    MAX_DELETION_ENTRIES,
    MAX_NEW_PARTITIONS,
    MAX_OFFSETS_ENTRIES,
    MAX_POSITIONS,
    MAX_PRODUCE_ENTRIES,
    MAX_SELECTION_TERMS,
    MAX_SETTLED_PARTITIONS,
    MAX_SETTLEMENTS,
    parts_of,
    settlement_parts,
)
from minilog.net.metadata_cache import MetadataCache
from minilog.net.offsets_query import OffsetsQuery
from minilog.partition_key import PartitionKey
from minilog.producer.producer_effects import messages
from minilog.types import TopicPartition
from minilog.v1 import admin_pb2, common_pb2, data_pb2, metadata_pb2, typed_pb2
from tests.rules import proves

pytestmark = proves("SE.19")

WHO = common_pb2.ClientIdentity(client_id="test")
TOPIC, TOPIC_ID = "wide", b"w" * 16
PARTITIONS = 2_500
EVERY = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


def wide() -> MetadataCache:
    """Two brokers lead the partitions of a topic by turns."""
    told = metadata_pb2.TopicMetadata(name=TOPIC, topic_id=TOPIC_ID)
    for number in range(PARTITIONS):
        told.partitions.add(partition=number, leader_id=1 + number % 2)
    brokers = [metadata_pb2.BrokerMetadata(broker_id=each, host="h", port=each) for each in (1, 2)]
    cache = MetadataCache()
    assert cache.apply(metadata_pb2.GetMetadataResponse(cluster_id="c", brokers=brokers, topics=[told]))
    return cache


def test_parts_are_in_order_and_all_is_in_one() -> None:
    assert [list(part) for part in parts_of(range(5), 2)] == [[0, 1], [2, 3], [4]]
    assert list(parts_of([], 2)) == []


def test_produce_messages_have_no_more_entries_than_one_may() -> None:
    entries = [(data_pb2.ProduceEntry(correlation_id=number), b"") for number in range(2 * MAX_PRODUCE_ENTRIES + 1)]
    sent = list(messages(entries))
    assert [len(each) for each in sent] == [MAX_PRODUCE_ENTRIES, MAX_PRODUCE_ENTRIES, 1]
    assert [entry for each in sent for entry in each] == entries


def test_questions_for_offsets_and_deletions_are_split_by_leader_and_count() -> None:
    cache = wide()
    query = OffsetsQuery(cache, dict.fromkeys(EVERY, "latest"))
    asked = query.requests(WHO)
    assert [(broker_id, len(request.entries)) for broker_id, request in asked] == [
        (1, MAX_OFFSETS_ENTRIES),
        (1, PARTITIONS // 2 - MAX_OFFSETS_ENTRIES),
        (2, MAX_OFFSETS_ENTRIES),
        (2, PARTITIONS // 2 - MAX_OFFSETS_ENTRIES),
    ]
    deletion = RecordsDeletion(cache, dict.fromkeys(EVERY, 0))
    counts = [len(request.entries) for _, request in deletion.requests(WHO, 1_000)]
    assert (max(counts), sum(counts)) == (MAX_DELETION_ENTRIES, PARTITIONS)


def test_positions_and_what_is_forgotten_are_split_and_the_first_message_says_who_asks() -> None:
    sessions = FetchSessions(parse_config({"bootstrap.servers": "h:1"}), random.Random(0))
    sessions.open(1, 0.0)
    sessions.opened(1)
    session = sessions.get(1)
    assert session is not None
    session.forgotten = [PartitionKey(b"f" * 16, number) for number in range(MAX_POSITIONS + 1)]
    positions = [data_pb2.FetchPosition(position_number=number) for number in range(PARTITIONS)]
    sent = [effect.request for effect in sessions.messages({1: positions}) if isinstance(effect, SendFetch)]
    assert [(len(each.positions), len(each.forgotten)) for each in sent] == [(1_000, 1_000), (1_000, 1), (500, 0)]
    assert [position for each in sent for position in each.positions] == positions
    assert [each.HasField("client") for each in sent] == [True, False, False]


def test_positions_with_long_conditions_are_split_so_that_no_reader_meets_a_limit() -> None:
    """A thousand positions with a hundred terms each were refused."""
    sessions = FetchSessions(parse_config({"bootstrap.servers": "h:1"}), random.Random(0))
    sessions.open(1, 0.0)
    sessions.opened(1)
    term = typed_pb2.Predicate(is_null=1)
    for terms in (1, 100, MAX_CONDITION_TERMS - 1):
        where = typed_pb2.Predicate(any_of=typed_pb2.Predicates(parts=[term] * terms))
        selection = typed_pb2.Selection(schema_version=1, where=where)
        positions = [data_pb2.FetchPosition(position_number=each, selection=selection) for each in range(300)]
        sent = [effect.request for effect in sessions.messages({1: positions}) if isinstance(effect, SendFetch)]
        assert [position for each in sent for position in each.positions] == positions
        for each in sent:
            told = [position.selection.where for position in each.positions]
            assert sum(len(where.any_of.parts) for where in told) <= MAX_SELECTION_TERMS
        assert len(sent) == 1 or terms > 1


def test_settlements_are_split_by_their_number_and_by_their_partitions() -> None:
    of_one = [(0, offset) for offset in range(MAX_SETTLEMENTS + 1)]
    assert [len(part) for part in settlement_parts(of_one, lambda each: each[0])] == [MAX_SETTLEMENTS, 1]
    of_many = [(number // 2, number) for number in range(2 * MAX_SETTLED_PARTITIONS + 2)]
    parts = list(settlement_parts(of_many, lambda each: each[0]))
    assert [len(part) for part in parts] == [2 * MAX_SETTLED_PARTITIONS, 2]
    assert [each for part in parts for each in part] == of_many
    assert list(settlement_parts([], lambda each: each)) == []


def test_topics_are_created_as_many_at_a_time_as_their_partitions_allow() -> None:
    small = [admin_pb2.NewTopic(name=str(number)) for number in range(MAX_ADMIN_TOPICS + 1)]
    assert [len(part) for part in parts_of_topics(small)] == [MAX_ADMIN_TOPICS, 1]
    wide_topics = [admin_pb2.NewTopic(num_partitions=each) for each in (4_000, 6_000, 1, MAX_NEW_PARTITIONS, 3)]
    assert [[each.num_partitions for each in part] for part in parts_of_topics(wide_topics)] == [
        [4_000, 6_000],
        [1],
        [MAX_NEW_PARTITIONS],
        [3],
    ]
