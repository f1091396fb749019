"""Settings of compacted topics: their forms, their level, and what a typed topic needs (docs/reference/settings.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import InvalidConfig, InvalidSchema, InvalidTopic, LevelNotReached, MinilogError
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.evolution import drop_column, rename_column, widen_column
from minilog.typed.schema.fields import Primitive
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.wire import schema_to_wire
from minilog.v1 import admin_pb2
from minilog_broker.controller.topic_config import (
    BUILT_IN,
    COMPACTION_NAMES,
    effective_topic_config,
    topic_config_values,
)
from minilog_broker.levels import KEYED_TOPICS_LEVEL
from minilog_broker.replication.partition_state import MAX_INT64, CleanupPolicy
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("MD.59")

KEYED = schema_from_ddl("id int NOT NULL, name string", ["id"], None)
KEYLESS = schema_from_ddl("id int, name string", [], None)
BOTH = CleanupPolicy.COMPACT | CleanupPolicy.DELETE


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.upgrade(KEYED_TOPICS_LEVEL)
    return cluster


def create_typed(cluster: ControllerCluster, schema: TopicSchema, policy: str = "compact") -> MinilogError | None:
    topic = admin_pb2.NewTopic(
        name="t", num_partitions=1, schema=schema_to_wire(schema), configs={"cleanup.policy": policy}
    )
    ticket = cluster.ticket()
    cluster.controller.create_topics(ticket, admin_pb2.CreateTopicsRequest(topics=[topic]))
    return error_of(cluster.answer(ticket, admin_pb2.CreateTopicsResponse).results[0])


def evolve(cluster: ControllerCluster, schema: TopicSchema) -> MinilogError | None:
    alteration = admin_pb2.TopicAlteration(name="t", schema=schema_to_wire(schema))
    ticket = cluster.ticket()
    cluster.controller.alter_topics(ticket, admin_pb2.AlterTopicsRequest(topics=[alteration]))
    return error_of(cluster.answer(ticket, admin_pb2.AlterTopicsResponse).results[0])


# -- forms


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("delete", CleanupPolicy.DELETE),
        ("compact", CleanupPolicy.COMPACT),
        ("compact,delete", BOTH),
        ("delete,compact", BOTH),
        ("delete, compact", BOTH),
    ],
)
def test_the_policy_is_taken_in_kafkas_forms(text: str, policy: CleanupPolicy) -> None:
    config = effective_topic_config({"cleanup.policy": text})
    assert config.cleanup_policy == policy
    assert config.is_compacted == ("compact" in text)
    assert config.is_deleted_by_retention == ("delete" in text)
    assert effective_topic_config(topic_config_values(config)) == config


@pytest.mark.parametrize("text", ["", "Compact", "compacted", "compact,", "compact;delete", "compact,compact", "none"])
def test_another_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="expected delete or compact, or both separated by a comma"):
        effective_topic_config({"cleanup.policy": text})


@pytest.mark.parametrize(
    ("text", "share"), [("0", 0), ("1", 1), ("1.0", 1), (".25", 0.25), ("5e-1", 0.5), ("0.01", 0.01)]
)
def test_the_dirty_ratio_is_a_number_from_0_to_1(text: str, share: float) -> None:
    config = effective_topic_config({"min.cleanable.dirty.ratio": text})
    assert config.min_cleanable_dirty_ratio == share
    assert effective_topic_config(topic_config_values(config)) == config


@pytest.mark.parametrize("text", ["", "-0.1", "1.01", "nan", "inf", "half", "0,5", "50%", "1_0e-2", " 0.5", "\u0661"])
def test_another_dirty_ratio_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="expected a number from 0 to 1"):
        effective_topic_config({"min.cleanable.dirty.ratio": text})


def test_the_lags_and_the_retention_of_deletions_have_kafkas_bounds_and_defaults() -> None:
    assert (BUILT_IN.min_compaction_lag_ms, BUILT_IN.max_compaction_lag_ms) == (0, MAX_INT64)
    assert (BUILT_IN.delete_retention_ms, BUILT_IN.min_cleanable_dirty_ratio) == (86_400_000, 0.5)
    least = {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "1", "delete.retention.ms": "0"}
    config = effective_topic_config(least)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms, config.delete_retention_ms) == (0, 1, 0)
    for name, value in (("min.compaction.lag.ms", "-1"), ("max.compaction.lag.ms", "0"), ("delete.retention.ms", "-1")):
        with pytest.raises(InvalidConfig, match="a whole number of at least"):
            effective_topic_config({name: value})


# -- a topic


def test_a_topic_is_created_compacted_and_altered_back(cluster: ControllerCluster) -> None:
    key = cluster.created("t", cleanup_policy="compact", min_compaction_lag_ms="5")
    config = cluster.image.effective_config(key.topic_id)
    assert (config.is_compacted, config.is_deleted_by_retention, config.min_compaction_lag_ms) == (True, False, 5)
    shown = cluster.image.shown_config(key.topic_id)
    assert (shown["cleanup.policy"], shown["min.compaction.lag.ms"]) == ("compact", "5")
    assert error_of(cluster.alter("t", unset=["cleanup.policy"])) is None
    config = cluster.image.effective_config(key.topic_id)
    assert (config.is_compacted, config.is_deleted_by_retention) == (False, True)
    assert error_of(cluster.alter("t", cleanup_policy="delete,compact")) is None
    assert cluster.image.effective_config(key.topic_id).cleanup_policy == BOTH


def test_the_least_lag_is_at_most_the_most_whichever_of_them_a_request_sets(cluster: ControllerCluster) -> None:
    error = error_of(cluster.create("t", min_compaction_lag_ms="6", max_compaction_lag_ms="5"))
    assert isinstance(error, InvalidConfig)
    assert "expected at most max.compaction.lag.ms, which is 5" in str(error)
    cluster.created("t", min_compaction_lag_ms="5", max_compaction_lag_ms="5")
    records = list(cluster.records)
    for result in (cluster.alter("t", min_compaction_lag_ms="6"), cluster.alter("t", max_compaction_lag_ms="4")):
        assert isinstance(error_of(result), InvalidConfig)
    assert cluster.records == records
    assert error_of(cluster.alter("t", unset=["max.compaction.lag.ms"], min_compaction_lag_ms="6")) is None


def test_internal_topics_are_not_compacted() -> None:
    cluster = ControllerCluster(voters=(1, 2, 3))
    cluster.start_all(3)
    cluster.upgrade(KEYED_TOPICS_LEVEL)
    for name in ("__groups", "__transactions"):
        assert isinstance(error_of(cluster.create(name, cleanup_policy="compact")), InvalidTopic)
        topic_id = cluster.create_internal(name).topic_id
        assert isinstance(error_of(cluster.alter(name, cleanup_policy="compact")), InvalidTopic)
        assert not cluster.image.effective_config(topic_id).is_compacted


# -- levels


def test_below_the_level_nothing_of_compaction_is_taken_and_nothing_is_written() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.upgrade(KEYED_TOPICS_LEVEL - 1)
    cluster.created("old", cleanup_policy="delete")
    topics = [record.topic for record in cluster.records if record.HasField("topic")]
    names = {default.name for topic in topics for default in topic.defaults}
    assert "retention.ms" in names
    assert not names & {*COMPACTION_NAMES, "cleanup.policy"}
    records = list(cluster.records)
    refused = [
        *(cluster.create("t", cleanup_policy=policy) for policy in ("compact", "delete,compact")),
        cluster.alter("old", cleanup_policy="compact"),
        cluster.alter("old", min_cleanable_dirty_ratio="0.5"),
        cluster.alter("old", min_compaction_lag_ms="0"),
        cluster.alter("old", max_compaction_lag_ms="1"),
        cluster.alter("old", delete_retention_ms="1"),
    ]
    for result in refused:
        error = error_of(result)
        assert isinstance(error, LevelNotReached)
        assert "minilog cluster upgrade" in str(error)
    assert cluster.records == records
    assert error_of(cluster.alter("old", unset=["min.compaction.lag.ms", "cleanup.policy"])) is None


def test_a_topic_from_before_the_upgrade_has_what_is_built_in() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    key = cluster.created("old")
    cluster.upgrade(KEYED_TOPICS_LEVEL)
    assert cluster.image.effective_config(key.topic_id) == BUILT_IN
    assert error_of(cluster.alter("old", cleanup_policy="compact")) is None
    cluster.created("new")
    (topic,) = [record.topic for record in cluster.records if record.topic.name == "new"]
    assert {default.name for default in topic.defaults} >= COMPACTION_NAMES


# -- typed topics


def test_a_typed_topic_without_key_columns_is_not_compacted(cluster: ControllerCluster) -> None:
    error = create_typed(cluster, KEYLESS)
    assert isinstance(error, InvalidConfig)
    assert "its schema has no key columns" in str(error)
    assert create_typed(cluster, KEYLESS, "delete") is None
    records = list(cluster.records)
    assert isinstance(error_of(cluster.alter("t", cleanup_policy="compact,delete")), InvalidConfig)
    assert cluster.records == records
    assert error_of(cluster.alter("t", min_compaction_lag_ms="1")) is None


def test_key_columns_of_a_compacted_topic_stay_and_keep_their_type(cluster: ControllerCluster) -> None:
    assert create_typed(cluster, KEYED) is None
    schemas = cluster.image.schemas[cluster.image.topic_ids["t"]]
    latest = schemas.latest
    with pytest.raises(InvalidSchema, match="cannot be dropped"):
        drop_column(latest, "id")
    with pytest.raises(InvalidSchema, match="stays int"):
        widen_column(latest, "id", Primitive("long"))
    key, name = latest.fields
    following = replace(latest, version=2)
    proposals = (
        replace(following, fields=(name,), key_columns=()),
        replace(following, fields=(name,), key_columns=("name",)),
        replace(following, key_columns=("id", "name")),
        replace(following, fields=(replace(key, type=Primitive("long")), name)),
        replace(following, fields=(replace(key, id=3), name), last_field_id=3),
    )
    records = list(cluster.records)
    for proposal in proposals:
        assert isinstance(evolve(cluster, proposal), InvalidSchema), proposal
    assert cluster.records == records


def test_a_renamed_key_column_is_the_same_column(cluster: ControllerCluster) -> None:
    """Compaction knows a key by its bytes, and each batch by its own version of the schema."""
    assert create_typed(cluster, KEYED) is None
    schemas = cluster.image.schemas[cluster.image.topic_ids["t"]]
    assert evolve(cluster, rename_column(schemas.latest, "id", "account")) is None
    first, second = cluster.image.schemas[cluster.image.topic_ids["t"]].versions
    assert (first.key_columns, second.key_columns) == (("id",), ("account",))
    assert first.column("id").id == second.column("account").id
