"""What a client knows never goes back: metadata offsets, leader epochs, "latest" (V8)."""

from __future__ import annotations

import pytest

from minilog.admin.records_deletion import RecordsDeletion
from minilog.errors import (
    InconsistentClusterId,
    InvalidArgument,
    ListenerNotFound,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from minilog.net.metadata_cache import LeaderAndEpoch, MetadataCache
from minilog.net.offsets_query import OffsetsQuery, offset_of
from minilog.partition_key import PartitionKey
from minilog.types import SizesFrom, TopicPartition
from minilog.v1 import common_pb2, metadata_pb2
from tests.rules import proves
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers

pytestmark = proves("MD.24", "SPT.2")

KEY = PartitionKey(TOPIC_ID, 0)
P0 = TopicPartition(TOPIC, 0)
WHO = common_pb2.ClientIdentity(client_id="test")


def known(brokers: Brokers) -> MetadataCache:
    cache = MetadataCache()
    assert cache.apply(brokers.metadata())
    return cache


def test_an_older_answer_of_the_same_cluster_is_refused() -> None:
    brokers = Brokers()
    cache = known(brokers)
    brokers.metadata_offset -= 1
    assert not cache.apply(brokers.metadata())


def test_an_answer_from_before_a_change_of_ones_own_is_refused() -> None:
    brokers = Brokers()
    cache = known(brokers)
    cache.must_show(brokers.metadata_offset + 1)
    cache.must_show(brokers.metadata_offset - 1)  # another change was answered by a controller that told less
    assert not cache.apply(brokers.metadata())
    brokers.metadata_offset += 1
    assert cache.apply(brokers.metadata())


def test_another_cluster_is_an_error_and_nothing_of_it_is_taken_in() -> None:
    """Once: a producer whose bootstrap.servers named two clusters wrote into both."""
    cache = known(Brokers())
    before = (cache.cluster_id, cache.topics, cache.brokers, cache.metadata_offset)
    with pytest.raises(
        InconsistentClusterId, match="of cluster another answered, but this client belongs to cluster model"
    ):
        cache.apply(metadata_pb2.GetMetadataResponse(cluster_id="another", metadata_offset=99, controller_id=-1))
    assert (cache.cluster_id, cache.topics, cache.brokers, cache.metadata_offset) == before


def test_leaders_of_lower_epochs_are_ignored() -> None:
    cache = known(Brokers())
    assert cache.learn_leader(KEY, LeaderAndEpoch(2, 4))
    assert not cache.learn_leader(KEY, LeaderAndEpoch(1, 3))
    assert cache.leader(KEY) == LeaderAndEpoch(2, 4)


def test_a_leader_whose_address_is_not_known_is_none() -> None:
    cache = known(Brokers())
    cache.learn_leader(KEY, LeaderAndEpoch(77, 4))
    assert cache.leader(KEY) is None


def test_partitions_that_do_not_exist_are_named() -> None:
    cache = known(Brokers())
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 0, not 5"):
        cache.key(TopicPartition(TOPIC, 5))


def test_a_deleted_topic_is_forgotten() -> None:
    brokers = Brokers()
    cache = known(brokers)
    answer = brokers.metadata()
    answer.topics[0].Clear()
    answer.topics[0].name = TOPIC
    answer.topics[0].error.code = common_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    cache.apply(answer)
    assert cache.topics == {}


def result(
    epoch: int, high_watermark: int = 7, code: common_pb2.ErrorCode.ValueType = common_pb2.ERROR_CODE_NONE
) -> metadata_pb2.ListOffsetsResponse:
    return metadata_pb2.ListOffsetsResponse(
        results=[
            metadata_pb2.ListOffsetsResult(
                partition_id=common_pb2.PartitionId(topic_id=TOPIC_ID, partition=0),
                error=common_pb2.Error(code=code),
                leader_epoch=epoch,
                log_start_offset=2,
                last_stable_offset=6,
                high_watermark=high_watermark,
            )
        ]
    )


def test_latest_of_a_lower_epoch_than_seen_is_not_believed() -> None:
    cache = known(Brokers())
    cache.see_epoch(KEY, 3)
    query = OffsetsQuery(cache, {P0: "latest"})
    query.answered(result(epoch=2))
    assert query.missing() == [P0]
    query.answered(result(epoch=3))
    assert query.missing() == []


def test_a_leader_that_does_not_know_yet_is_asked_again() -> None:
    query = OffsetsQuery(known(Brokers()), {P0: "latest"})
    assert [broker_id for broker_id, _ in query.requests(WHO)] == [1]
    query.answered(result(0, code=common_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE))
    assert query.missing() == [P0]
    assert [broker_id for broker_id, _ in query.requests(WHO)] == [1]


def test_an_error_that_stays_ends_the_question() -> None:
    query = OffsetsQuery(known(Brokers()), {P0: "latest"})
    query.answered(result(0, code=common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE))
    assert query.missing() == []
    assert isinstance(query.failures[P0], OffsetOutOfRange)


def test_latest_depends_on_the_isolation_level() -> None:
    [answer] = result(0).results
    assert offset_of(answer, "earliest", "read_committed") == 2
    assert offset_of(answer, "latest", "read_committed") == 6
    assert offset_of(answer, "latest", "read_uncommitted") == 7
    assert offset_of(answer, 1_000, "read_committed") is None


def test_timestamps_travel_in_microseconds() -> None:
    [(_, request)] = OffsetsQuery(known(Brokers()), {P0: 1_500}).requests(WHO)
    assert request.entries[0].timestamp_us == 1_500_000


def test_sizes_travel_with_the_question() -> None:
    asked = {P0: SizesFrom(5, [100, 200])}
    [(_, request)] = OffsetsQuery(known(Brokers()), {P0: "latest"}, asked).requests(WHO)
    assert (request.entries[0].from_offset, list(request.entries[0].sizes_bytes)) == (5, [100, 200])


def test_an_answer_of_a_topic_created_again_is_none() -> None:
    brokers = Brokers()
    cache = known(brokers)
    query = OffsetsQuery(cache, {P0: "latest"})
    query.answered(result(0))
    query.forget_outdated()
    assert query.missing() == []
    brokers.told_topic_id, brokers.metadata_offset = bytes(16), 2
    assert cache.apply(brokers.metadata())
    query.forget_outdated()
    assert query.missing() == [P0]


def test_a_topic_that_is_not_seen_any_more_may_be_there() -> None:
    """Once: a reader that had lost its right was told that the topic was deleted."""
    brokers = Brokers()
    cache = known(brokers)
    answer = brokers.metadata()
    answer.topics[0].error.code = common_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    assert cache.apply(answer)
    with pytest.raises(UnknownTopicId, match="was deleted, or this user has lost the right to see it"):
        cache.check_same_topic(TOPIC, TOPIC_ID)
    brokers.told_topic_id = bytes(16)
    assert cache.apply(brokers.metadata())
    with pytest.raises(UnknownTopicId, match="was deleted and created again"):
        cache.check_same_topic(TOPIC, TOPIC_ID)


def test_an_answer_of_a_leader_that_was_deposed_meanwhile_is_none() -> None:
    brokers = Brokers()
    cache = known(brokers)
    query = OffsetsQuery(cache, {P0: "latest"})
    query.answered(result(0))
    brokers.move(2)
    assert cache.apply(brokers.metadata())
    query.forget_outdated()
    assert query.missing() == [P0]


@pytest.mark.parametrize("spec", ["newest", -1, True, 1.5, 10**17])
def test_other_questions_are_refused(spec: object) -> None:
    with pytest.raises(InvalidArgument, match="no offset to ask for"):
        OffsetsQuery(known(Brokers()), {P0: spec})  # type: ignore[dict-item]


def test_a_broker_that_knows_no_cluster_yet_is_not_believed() -> None:
    """Found by killing all brokers: a starting one emptied the producer's metadata for good."""
    cache = MetadataCache()
    assert cache.apply(metadata_pb2.GetMetadataResponse(cluster_id="c", metadata_offset=7))
    assert not cache.apply(metadata_pb2.GetMetadataResponse(cluster_id="", metadata_offset=0))
    assert (cache.cluster_id, cache.metadata_offset) == ("c", 7)


def outside(*unreachable: int, listener: str = "outside") -> Brokers:
    """Brokers 1 and 2, of which 1 leads, as a client is told that came by this listener."""
    brokers = Brokers()
    brokers.listener, brokers.unreachable = listener, set(unreachable)
    return brokers


def test_a_leader_without_the_listener_that_was_asked_is_none_and_what_is_missing_is_said() -> None:
    brokers = outside(1)
    cache = known(brokers)
    assert cache.leader(KEY) is None
    assert list(cache.brokers) == [2]
    missing = cache.why_no_leader(KEY)
    assert isinstance(missing, ListenerNotFound)
    assert missing.retriable
    assert str(missing).startswith("broker 1 has no listener 'outside', by which this client came: give it one")
    query = OffsetsQuery(cache, {P0: "latest"})
    assert query.requests(WHO) == []
    assert isinstance(query.last_errors[P0], ListenerNotFound)
    deletion = RecordsDeletion(cache, {P0: 5})
    assert deletion.requests(WHO, 1_000) == []
    assert "no listener 'outside'" in str(deletion.error())
    brokers.unreachable.clear()  # it was given one
    assert cache.apply(brokers.metadata())
    assert (cache.leader(KEY), cache.why_no_leader(KEY)) == (LeaderAndEpoch(1, 0), None)


def test_a_broker_without_the_default_listener_is_named_with_its_option() -> None:
    assert "no listener without a name (--listen)" in str(known(outside(1, listener="")).why_unreachable(1))


def test_a_partition_that_nobody_leads_misses_no_listener() -> None:
    cache = known(outside(2))
    assert cache.why_no_leader(KEY) is None
    cache.learn_leader(KEY, LeaderAndEpoch(-1, 9))
    assert cache.why_no_leader(KEY) is None
