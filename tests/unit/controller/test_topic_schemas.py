"""Schemas in the metadata log: given by the controller, evolved one version at a time, kept in every image."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import (
    CorruptMessage,
    InvalidConfig,
    InvalidPartitions,
    InvalidSchema,
    InvalidUpdateVersion,
    LevelNotReached,
    MinilogError,
)
from minilog.partition_key import PartitionKey
from minilog.typed.schema import topic_schemas
from minilog.typed.schema.ddl import parse_ddl, schema_from_ddl
from minilog.typed.schema.evolution import add_column, drop_column, loosen_column, rename_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema, give_ids
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.typed.schema.wire import schema_to_wire
from minilog.v1 import admin_pb2, records_pb2, typed_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_record
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import COLUMN_COMMENTS_LEVEL, TYPED_TOPICS_LEVEL
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("MD.25")

FLIGHTS = schema_from_ddl(
    "carrier string NOT NULL, delay int, at timestamp, stops array<struct<airport: string>>", ["carrier"], "at"
)


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    upgrade(cluster)
    return cluster


def upgrade(cluster: ControllerCluster, level: int = TYPED_TOPICS_LEVEL) -> None:
    ticket = cluster.ticket()
    cluster.controller.upgrade_level(ticket, admin_pb2.UpgradeLevelRequest(level=level))
    assert error_of(cluster.answer(ticket, admin_pb2.UpgradeLevelResponse)) is None


def create(
    cluster: ControllerCluster,
    schema: TopicSchema | typed_pb2.TopicSchema = FLIGHTS,
    name: str = "t",
    *,
    validate_only: bool = False,
) -> admin_pb2.TopicResult:
    told = schema if isinstance(schema, typed_pb2.TopicSchema) else schema_to_wire(schema)
    topic = admin_pb2.NewTopic(name=name, num_partitions=1, schema=told, configs={"retention.ms": "5"})
    ticket = cluster.ticket()
    cluster.controller.create_topics(ticket, admin_pb2.CreateTopicsRequest(topics=[topic], validate_only=validate_only))
    return cluster.answer(ticket, admin_pb2.CreateTopicsResponse).results[0]


def created(cluster: ControllerCluster, schema: TopicSchema = FLIGHTS, name: str = "t") -> PartitionKey:
    result = create(cluster, schema, name)
    assert error_of(result) is None, error_of(result)
    return PartitionKey(result.topic_id, 0)


def evolve(cluster: ControllerCluster, schema: TopicSchema, name: str = "t", **how: object) -> MinilogError | None:
    alteration = admin_pb2.TopicAlteration(name=name, schema=schema_to_wire(schema), **how)  # type: ignore[arg-type]
    ticket = cluster.ticket()
    cluster.controller.alter_topics(ticket, admin_pb2.AlterTopicsRequest(topics=[alteration]))
    return error_of(cluster.answer(ticket, admin_pb2.AlterTopicsResponse).results[0])


def refused(cluster: ControllerCluster, schema: TopicSchema, name: str = "t", **how: object) -> MinilogError:
    before = list(cluster.records)
    error = evolve(cluster, schema, name, **how)
    assert error is not None
    assert cluster.records == before, "a refusal leaves nothing half done"
    return error


def schemas_of(cluster: ControllerCluster, name: str = "t") -> TopicSchemas:
    return cluster.image.schemas[cluster.image.topic_ids[name]]


def with_gate(schema: TopicSchema) -> TopicSchema:
    return add_column(schema, Field("gate", Primitive("string")))


# -- create


def test_a_typed_topic_is_one_decision_with_the_schema_behind_the_topic(cluster: ControllerCluster) -> None:
    batches, records = len(cluster.batches), len(cluster.records)
    created(cluster)
    assert len(cluster.batches) == batches + 1
    kinds = [record.WhichOneof("record") for record in cluster.records[records:]]
    assert kinds == ["topic", "topic_schema", "topic_config", "partition"]
    assert schemas_of(cluster) == TopicSchemas((FLIGHTS,))


def test_ids_are_given_by_the_controller_whatever_was_proposed(cluster: ControllerCluster) -> None:
    """The ids of a proposal only say which columns the key and the time stamp are."""
    told = schema_to_wire(FLIGHTS)
    for each, proposed in zip(told.fields, (40, 30, 20, 10), strict=True):
        each.id = proposed
    told.key_field_ids[:], told.timestamp_field_id, told.last_field_id = [40], 20, 0
    assert error_of(create(cluster, told)) is None
    assert schemas_of(cluster).latest == FLIGHTS


def test_a_schema_without_any_ids_is_a_proposal_too(cluster: ControllerCluster) -> None:
    told = typed_pb2.TopicSchema(fields=[typed_pb2.SchemaField(name="n", primitive="long", nullable=True)])
    assert error_of(create(cluster, told)) is None
    assert schemas_of(cluster).latest == schema_from_ddl("n long")


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        (typed_pb2.TopicSchema(), "at least one column"),
        (typed_pb2.TopicSchema(fields=[typed_pb2.SchemaField(name="n", primitive="uint")]), "unknown type 'uint'"),
        (typed_pb2.TopicSchema(fields=[typed_pb2.SchemaField(name="n")]), "no type that this version knows"),
        (
            typed_pb2.TopicSchema(fields=[typed_pb2.SchemaField(name="n", primitive="long")], key_field_ids=[0]),
            "field 0, and 1 columns",
        ),
        (
            typed_pb2.TopicSchema(
                fields=[typed_pb2.SchemaField(id=1, name=name, primitive="long") for name in "ab"], key_field_ids=[1]
            ),
            "2 columns have that id",
        ),
        (typed_pb2.TopicSchema(fields=[typed_pb2.SchemaField(name="n", primitive="long")], version=2), "begins with"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_an_impossible_schema_creates_no_topic(
    cluster: ControllerCluster, told: typed_pb2.TopicSchema, complaint: str, validate_only: bool
) -> None:
    before = list(cluster.records)
    error = error_of(create(cluster, told, validate_only=validate_only))
    assert isinstance(error, InvalidSchema)
    with pytest.raises(InvalidSchema, match=complaint):
        raise error
    assert cluster.records == before


def test_validate_only_writes_nothing(cluster: ControllerCluster) -> None:
    before = list(cluster.records)
    assert error_of(create(cluster, validate_only=True)) is None
    assert cluster.records == before


@pytest.mark.parametrize("validate_only", [False, True])
def test_below_level_2_there_are_no_typed_topics(validate_only: bool) -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    before = list(cluster.records)
    error = error_of(create(cluster, validate_only=validate_only))
    assert isinstance(error, LevelNotReached)
    assert "run `minilog cluster upgrade`" in str(error)
    assert cluster.records == before
    cluster.created("plain")
    upgrade(cluster)
    created(cluster)


def test_below_their_level_comments_are_refused_and_then_an_earlier_client_loses_none(
    cluster: ControllerCluster,
) -> None:
    commented = schema_from_ddl("a int COMMENT 'x', b int")
    error = error_of(create(cluster, commented))
    assert isinstance(error, LevelNotReached)
    assert "columns of topic t cannot have comments" in str(error)
    plain = created(cluster, schema_from_ddl("a int"), "plain")
    more = add_column(cluster.image.schemas[plain.topic_id].latest, Field("b", Primitive("int"), comment="x"))
    assert isinstance(evolve(cluster, more, "plain"), LevelNotReached)
    upgrade(cluster, COLUMN_COMMENTS_LEVEL)
    topic_id = created(cluster, commented).topic_id
    latest = cluster.image.schemas[topic_id].latest
    assert [field.comment for field in latest.fields] == ["x", ""]
    forgetful = rename_column(
        replace(latest, fields=tuple(replace(each, comment="") for each in latest.fields)), "a", "z"
    )
    for _ in range(2):  # the second is the repeat after a lost answer
        assert evolve(cluster, forgetful) is None
    assert [(each.name, each.comment) for each in cluster.image.schemas[topic_id].latest.fields] == [
        ("z", "x"),
        ("b", ""),
    ]


def test_topics_without_a_schema_have_none(cluster: ControllerCluster) -> None:
    key = cluster.created("plain")
    internal = cluster.create_internal("__groups")
    assert cluster.image.schemas == {}
    assert [cluster.image.effective_config(each).schemas for each in (key.topic_id, internal.topic_id)] == [None, None]


# -- evolve


def test_a_schema_evolves_by_versions(cluster: ControllerCluster) -> None:
    created(cluster)
    second = with_gate(FLIGHTS)
    third = rename_column(second, "delay", "late")
    assert [evolve(cluster, each) for each in (second, third)] == [None, None]
    assert schemas_of(cluster).versions == (FLIGHTS, second, third)
    assert third.column("gate").id == FLIGHTS.last_field_id + 1


def test_of_two_who_evolve_at_once_one_is_refused(cluster: ControllerCluster) -> None:
    created(cluster)
    mine, other = with_gate(FLIGHTS), drop_column(FLIGHTS, "delay")
    assert evolve(cluster, mine) is None
    error = refused(cluster, other)
    assert isinstance(error, InvalidUpdateVersion)
    assert "another client evolved it meanwhile" in str(error)
    assert evolve(cluster, drop_column(mine, "delay")) is None


def test_a_version_that_is_there_already_is_done(cluster: ControllerCluster) -> None:
    """The answer was lost, and somebody else evolved it further."""
    created(cluster)
    second = with_gate(FLIGHTS)
    for schema in (second, second, rename_column(second, "delay", "late"), second, FLIGHTS):
        assert evolve(cluster, schema) is None
    assert len(schemas_of(cluster).versions) == 3


def test_versions_are_not_left_out(cluster: ControllerCluster) -> None:
    created(cluster)
    assert isinstance(refused(cluster, replace(with_gate(FLIGHTS), version=3)), InvalidUpdateVersion)


@pytest.mark.parametrize(
    "proposed",
    [
        replace(with_gate(FLIGHTS), last_field_id=9),
        replace(
            give_ids(replace(FLIGHTS, fields=(*FLIGHTS.fields, *parse_ddl("a int, b int")), version=2)),
            fields=(
                *FLIGHTS.fields,
                Field("b", Primitive("int"), id=8),
            ),
        ),
        replace(FLIGHTS, version=2, last_field_id=2**31 - 1),
        replace(FLIGHTS, version=2, fields=FLIGHTS.fields[1:], key_columns=()),
        replace(FLIGHTS, version=2, fields=(*FLIGHTS.fields, Field("g", Primitive("int"), False, 7)), last_field_id=7),
    ],
    ids=["a later last id", "an id left out", "all ids used up", "another key", "a new column that is not nullable"],
)
def test_a_change_that_breaks_a_rule_is_refused(cluster: ControllerCluster, proposed: TopicSchema) -> None:
    created(cluster)
    assert isinstance(refused(cluster, proposed), InvalidSchema)


def test_a_topic_without_a_schema_is_given_none(cluster: ControllerCluster) -> None:
    cluster.created("plain")
    error = refused(cluster, FLIGHTS, "plain")
    assert isinstance(error, InvalidSchema)
    assert "plain has no schema" in str(error)


def test_an_alteration_is_done_whole_or_not_at_all(cluster: ControllerCluster) -> None:
    key = created(cluster)
    second = with_gate(FLIGHTS)
    bad = replace(second, version=5)
    assert isinstance(refused(cluster, bad, set_configs={"retention.ms": "9"}), InvalidUpdateVersion)
    assert isinstance(refused(cluster, second, set_configs={"retention.ms": "x"}), InvalidConfig)
    assert isinstance(refused(cluster, second, num_partitions=0), InvalidPartitions)
    batches = len(cluster.batches)
    assert evolve(cluster, second, set_configs={"retention.ms": "9"}, num_partitions=2) is None
    assert len(cluster.batches) == batches + 1
    image = cluster.image
    assert (image.topics[key.topic_id].partition_count, image.topic_config(key.topic_id)) == (2, {"retention.ms": "9"})
    assert schemas_of(cluster).latest == second


def test_a_topic_has_so_many_versions_and_fields_and_no_more(
    cluster: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(cluster)
    monkeypatch.setattr(topic_schemas, "MAX_FIELDS_OF_VERSIONS", 13)
    second = with_gate(FLIGHTS)
    assert evolve(cluster, second) is None
    assert "more than 13 fields together" in str(refused(cluster, drop_column(second, "gate")))
    monkeypatch.setattr(topic_schemas, "MAX_FIELDS_OF_VERSIONS", 100)
    monkeypatch.setattr(topic_schemas, "MAX_VERSIONS", 2)
    assert "at most 2 of them" in str(refused(cluster, drop_column(second, "gate")))


# -- the image


def test_a_topic_created_again_has_another_schema(cluster: ControllerCluster) -> None:
    former = created(cluster)
    evolve(cluster, with_gate(FLIGHTS))
    cluster.delete("t")
    assert cluster.image.schemas == {}
    other = schema_from_ddl("carrier string, gate string")
    key = created(cluster, other)
    assert key.topic_id != former.topic_id
    assert schemas_of(cluster) == TopicSchemas((other,))
    assert schemas_of(cluster).latest.column("gate").id == 2
    assert isinstance(refused(cluster, rename_column(with_gate(FLIGHTS), "delay", "late")), InvalidUpdateVersion)


def test_replicas_get_a_schema_with_the_configuration(cluster: ControllerCluster) -> None:
    key = created(cluster)
    assert cluster.image.effective_config(key.topic_id).schemas == TopicSchemas((FLIGHTS,))
    cluster.image.take_changes()
    evolve(cluster, with_gate(FLIGHTS))
    assert cluster.image.take_changes().configs == {key.topic_id}
    schemas = cluster.image.effective_config(key.topic_id).schemas
    assert schemas is not None
    assert schemas.latest == with_gate(FLIGHTS)


def test_a_snapshot_has_all_versions(cluster: ControllerCluster) -> None:
    created(cluster)
    evolve(cluster, with_gate(FLIGHTS))
    loaded = decode_snapshot(encode_snapshot(cluster.image, 1), SnapshotId(cluster.image.end_offset, 1))
    assert loaded == cluster.image
    assert loaded.schemas == cluster.image.schemas
    other = MetadataImage()
    other.become(loaded)
    assert other == cluster.image
    assert other.take_changes().configs == cluster.image.schemas.keys()


def test_an_image_that_becomes_a_snapshot_forgets_the_schemas_that_it_gave_out(cluster: ControllerCluster) -> None:
    key = created(cluster)
    twin = cluster.image.copy()
    evolve(cluster, with_gate(FLIGHTS))
    twin.take_changes()
    twin.effective_config(key.topic_id)
    twin.become(cluster.image.copy())
    assert twin.take_changes().configs == {key.topic_id}
    assert twin.effective_config(key.topic_id) == cluster.image.effective_config(key.topic_id)


def test_a_copy_does_not_evolve_with_its_original(cluster: ControllerCluster) -> None:
    created(cluster)
    twin = cluster.image.copy()
    assert twin == cluster.image
    evolve(cluster, loosen_column(FLIGHTS, "carrier"))
    assert twin != cluster.image
    assert twin.schemas[cluster.image.topic_ids["t"]] == TopicSchemas((FLIGHTS,))


def test_a_new_controller_knows_the_schemas(cluster: ControllerCluster) -> None:
    created(cluster)
    cluster.fail_over()
    assert evolve(cluster, with_gate(FLIGHTS)) is None
    assert len(schemas_of(cluster).versions) == 2


@pytest.mark.parametrize(
    "schema",
    [typed_pb2.TopicSchema(version=1), schema_to_wire(replace(FLIGHTS, version=3)), schema_to_wire(FLIGHTS)],
    ids=["no columns", "a version left out", "a version twice"],
)
def test_a_stored_schema_that_cannot_be_is_damage(cluster: ControllerCluster, schema: typed_pb2.TopicSchema) -> None:
    key = created(cluster)
    record = records_pb2.TopicSchemaRecord(topic_id=key.topic_id, schema=schema)
    with pytest.raises(CorruptMessage, match="an invalid schema of topic t"):
        apply_record(cluster.image.copy(), 99, records_pb2.MetadataRecord(topic_schema=record))
