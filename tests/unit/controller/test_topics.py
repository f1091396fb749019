"""Topics: created, altered, deleted whole or not at all; names and settings (docs/reference/settings.md § Topics)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from minilog.errors import (
    InvalidArgument,
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidTopic,
    MinilogError,
    StaleBrokerEpoch,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import admin_pb2, peer_pb2
from minilog_broker.controller.topic_config import (
    BUILT_IN,
    TOPIC_CONFIG_NAMES,
    effective_topic_config,
    topic_config_values,
)
from minilog_broker.levels import SECURITY_LEVEL
from minilog_broker.replication.partition_state import CleanupPolicy
from minilog_broker.topic_names import check_topic_name
from tests.rules import proves
from tests.unit.controller.cluster import DEFAULTS, ControllerCluster, error_of

pytestmark = proves("MD.60")


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    return cluster


def refused(cluster: ControllerCluster, name: str = "t", **how: object) -> MinilogError:
    before = list(cluster.records)
    error = error_of(cluster.create(name, **how))  # type: ignore[arg-type]
    assert error is not None
    assert cluster.records == before, "a refusal leaves nothing half done"
    return error


# -- names


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a" * 250, "__x", "__cluster_metadata", "a\n"])
def test_names_that_are_none_are_refused(cluster: ControllerCluster, name: str) -> None:
    assert isinstance(refused(cluster, name), InvalidTopic)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "_x", "...", "a" * 249])
def test_names_that_kafka_allows_are_allowed(name: str) -> None:
    check_topic_name(name)


def test_a_name_is_given_once(cluster: ControllerCluster) -> None:
    cluster.created("t")
    assert isinstance(refused(cluster, "t"), TopicAlreadyExists)


# -- creation


def test_a_topic_has_all_its_replicas_in_sync_and_its_leaders_spread(cluster: ControllerCluster) -> None:
    key = cluster.created("t", partitions=6)
    states = cluster.image.partitions_of(key.topic_id)
    assert all(set(state.in_sync_replicas) == {1, 2, 3} for state in states)
    assert Counter(state.leader_id for state in states) == {1: 2, 2: 2, 3: 2}
    assert all(state.leader_broker_epoch == cluster.epoch(state.leader_id) for state in states)


@proves("MD.23")
def test_replicas_are_spread_over_racks_and_then_over_hosts_when_topics_are_made_and_grow() -> None:
    """Racks a and b of two hosts, each with two brokers: a rack has two replicas of four, and a host one."""
    cluster = ControllerCluster()
    cluster.start_all(8)
    cluster.upgrade(SECURITY_LEVEL)
    hosts = dict(zip(range(1, 9), ("a1", "a1", "a2", "a2", "b1", "b1", "b2", "b2"), strict=True))
    for broker_id, host in hosts.items():
        cluster.restart(broker_id, domain=host[0], host_label=host)
    key = cluster.created("t", partitions=8, replication_factor=4)
    cluster.alter("t", partitions=16)
    states = cluster.image.partitions_of(key.topic_id)
    assert len(states) == 16
    assert all({hosts[each] for each in state.replicas} == set(hosts.values()) for state in states)


def test_a_topic_is_one_batch_with_its_partitions_and_settings(cluster: ControllerCluster) -> None:
    before = len(cluster.batches)
    cluster.created("t", partitions=3, retention_ms="1000")
    assert len(cluster.batches) == before + 1


def test_without_a_factor_it_is_three_or_the_number_of_brokers() -> None:
    for brokers, expected in ((1, 1), (2, 2), (4, 3)):
        cluster = ControllerCluster()
        cluster.start_all(brokers)
        result = cluster.create("t", None)
        assert len(cluster.state(PartitionKey(result.topic_id, 0)).replicas) == expected


def test_a_refused_topic_keeps_no_other_of_its_request_back(cluster: ControllerCluster) -> None:
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name) for name in ("a", "a b", "c", "a")])
    cluster.controller.create_topics("ticket", request)
    cluster.commit()
    response = cluster.answers["ticket"]
    assert isinstance(response, admin_pb2.CreateTopicsResponse)
    assert [type(error_of(result)).__name__ for result in response.results] == [
        "NoneType",
        "InvalidTopic",
        "NoneType",
        "TopicAlreadyExists",
    ]
    assert set(cluster.image.topic_ids) == {"a", "c"}


# -- settings


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("min.insync.replicas", "0", "a whole number from 1 to 100"),
        ("min.insync.replicas", "two", "a whole number"),
        ("flush.policy", "never", "fsync or os"),
        ("unclean.leader.election.enable", "yes", "true or false"),
        ("max.message.bytes", "12", "a whole number from 1024"),
        ("segment.bytes", "9" * 30, "a whole number from 1024"),
        ("segment.ms", "0", "a whole number of at least 1"),
        ("retention.ms", "-2", "a whole number of at least -1"),
        ("retention.bytes", "1e9", "a whole number of at least -1"),
        ("cleanup.policy", "compacted", "expected delete or compact"),
    ],
)
def test_a_bad_value_names_the_key_the_value_and_what_would_be_right(
    cluster: ControllerCluster, name: str, value: str, expected: str
) -> None:
    error = refused(cluster, **{name: value})
    assert isinstance(error, InvalidConfig)
    assert f"{name}={value}" in str(error)
    assert expected in str(error)


def test_every_setting_of_a_topic_becomes_its_configuration() -> None:
    values = {
        "min.insync.replicas": "3",
        "flush.policy": "os",
        "unclean.leader.election.enable": "true",
        "max.message.bytes": "2048",
        "segment.bytes": "4096",
        "segment.ms": "5",
        "retention.ms": "-1",
        "retention.bytes": "7",
        "message.timestamp.before.max.ms": "8",
        "message.timestamp.after.max.ms": "9",
        "statistics.columns": "carrier,delay",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "10",
        "max.compaction.lag.ms": "11",
        "delete.retention.ms": "12",
    }
    assert set(values) == set(TOPIC_CONFIG_NAMES)
    config = effective_topic_config(values)
    assert (config.min_in_sync_replicas, config.flush_on_append, config.unclean_leader_election) == (3, False, True)
    assert (config.max_message_bytes, config.segment_bytes, config.segment_ms) == (2048, 4096, 5)
    assert (config.retention_ms, config.retention_bytes) == (-1, 7)
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (8, 9)
    assert (config.cleanup_policy, config.min_cleanable_dirty_ratio) == (CleanupPolicy.COMPACT, 0.25)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms, config.delete_retention_ms) == (10, 11, 12)
    assert effective_topic_config(topic_config_values(config)) == config
    assert effective_topic_config({}) == BUILT_IN


# -- alteration


def test_partitions_are_added_and_those_there_are_keep_their_state(cluster: ControllerCluster) -> None:
    key = cluster.created("t", partitions=2)
    before = cluster.image.partitions_of(key.topic_id)
    assert error_of(cluster.alter("t", partitions=5)) is None
    after = cluster.image.partitions_of(key.topic_id)
    assert after[:2] == before
    assert [state.key.partition for state in after] == [0, 1, 2, 3, 4]


# -- deletion


def test_a_deleted_topic_leaves_nothing_and_its_name_is_another_topic(cluster: ControllerCluster) -> None:
    first = cluster.created("t", partitions=2, retention_ms="5")
    assert error_of(cluster.delete("t")) is None
    assert not cluster.image.partitions
    assert not cluster.image.configs
    second = cluster.created("t")
    assert second.topic_id != first.topic_id
    assert cluster.image.topic_config(second.topic_id) == {}


def test_only_the_topic_of_the_given_id_is_deleted(cluster: ControllerCluster) -> None:
    first = cluster.created("t")
    cluster.delete("t")
    second = cluster.created("t")
    assert isinstance(error_of(cluster.delete("t", first.topic_id)), UnknownTopicId)
    assert isinstance(error_of(cluster.delete(topic_id=first.topic_id)), UnknownTopicId)
    assert error_of(cluster.delete(topic_id=second.topic_id)) is None
    assert isinstance(error_of(cluster.delete("t")), UnknownTopicOrPartition)


# -- the brokers' own topics


def created_internal(cluster: ControllerCluster, name: str = "__groups") -> bytes:
    response = cluster.create_internal(name)
    assert error_of(response) is None, error_of(response)
    return response.topic_id


@proves("CO.1")
def test_an_internal_topic_has_what_makes_its_records_safe_whatever_the_defaults_are() -> None:
    weak = replace(DEFAULTS, min_in_sync_replicas=1, flush_on_append=False, unclean_leader_election=True)
    cluster = ControllerCluster(defaults=weak, voters=(1, 2, 3))
    cluster.start_all(3)
    topic_id = created_internal(cluster)
    topic = cluster.image.topics[topic_id]
    config = cluster.image.effective_config(topic_id)
    assert (topic.name, topic.internal, topic.partition_count) == ("__groups", True, 16)
    assert all(len(state.replicas) == 3 for state in cluster.image.partitions_of(topic_id))
    assert (config.min_in_sync_replicas, config.flush_on_append, config.unclean_leader_election) == (2, True, False)
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)


@proves("CO.1")
def test_an_internal_topic_is_created_once_whoever_asks() -> None:
    cluster = ControllerCluster(voters=(1, 2, 3))
    cluster.start_all(3)
    first = created_internal(cluster)
    assert created_internal(cluster) == first
    assert created_internal(cluster, "__transactions") != first


def test_a_single_voter_makes_internal_topics_of_one_replica() -> None:
    cluster = ControllerCluster(voters=(1,))
    cluster.start_all(1)
    topic_id = created_internal(cluster)
    assert {len(state.replicas) for state in cluster.image.partitions_of(topic_id)} == {1}


def test_a_former_life_of_a_broker_creates_no_internal_topic(cluster: ControllerCluster) -> None:
    request = peer_pb2.CreateInternalTopicRequest(broker_id=1, broker_epoch=cluster.epoch(1) - 1, name="__groups")
    cluster.controller.create_internal_topic("late", request)
    assert isinstance(error_of(cluster.answer("late", peer_pb2.CreateInternalTopicResponse)), StaleBrokerEpoch)


@proves("CO.2")
def test_leaders_and_replicas_of_internal_topics_are_moved_as_those_of_any_topic_but_not_below_two_replicas() -> None:
    cluster = ControllerCluster(voters=(1, 2, 3))
    cluster.start_all(4)
    key = PartitionKey(created_internal(cluster), 0)
    replicas = cluster.state(key).replicas
    (other,) = {1, 2, 3, 4} - set(replicas)
    assert isinstance(error_of(cluster.reassign(key, replicas[:1])), InvalidReplicaAssignment)
    assert error_of(cluster.reassign(key, (other, *replicas[:2]))) is None
    assert cluster.state(key).adding_replicas == (other,)
    assert [each.error.code for each in cluster.elect("__groups", partitions=range(1, 16))] == [0] * 15


def creation(cluster: ControllerCluster, creation_id: bytes, name: str = "t") -> admin_pb2.TopicResult:
    ticket = cluster.ticket()
    topic = admin_pb2.NewTopic(name=name, num_partitions=1, creation_id=creation_id)
    cluster.controller.create_topics(ticket, admin_pb2.CreateTopicsRequest(topics=[topic]))
    return cluster.answer(ticket, admin_pb2.CreateTopicsResponse).results[0]


def test_a_call_whose_answer_was_lost_finds_the_topic_that_it_has_made(cluster: ControllerCluster) -> None:
    """Once: it was told that the topic exists, and could not know whose it is."""
    first = creation(cluster, b"a" * 16)
    cluster.fail_over()
    again = creation(cluster, b"a" * 16)
    assert (error_of(again), again.topic_id) == (None, first.topic_id)
    assert len(cluster.image.topics) == 1


def test_another_call_is_refused_where_there_is_the_topic(cluster: ControllerCluster) -> None:
    creation(cluster, b"a" * 16)
    for creation_id in (b"b" * 16, b""):
        assert isinstance(error_of(creation(cluster, creation_id)), TopicAlreadyExists)
    cluster.create("plain")
    assert isinstance(error_of(creation(cluster, b"a" * 16, "plain")), TopicAlreadyExists)
    assert isinstance(error_of(creation(cluster, b"short", "new")), InvalidArgument)


def test_a_topic_that_was_deleted_meanwhile_is_made_anew_under_another_id(cluster: ControllerCluster) -> None:
    first = creation(cluster, b"a" * 16)
    assert error_of(cluster.delete("t")) is None
    again = creation(cluster, b"a" * 16)
    assert error_of(again) is None
    assert again.topic_id != first.topic_id
