"""Versions of a schema that wait for the commit of a write, and go with it if it fails."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from minilog.errors import InvalidSchema, InvalidUpdateVersion
from minilog.partition_key import PartitionKey
from minilog.typed.schema.evolution import (
    add_column,
    as_next_version,
    drop_column,
    merged,
    proposal,
    rejoined,
    widen_column,
)
from minilog.typed.schema.fields import Field, Primitive, Struct
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import admin_pb2
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import PENDING_SCHEMAS_LEVEL
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.unit.controller.cluster import ControllerCluster
from tests.unit.controller.test_topic_schemas import FLIGHTS, created, evolve, upgrade

PENDING, WITHDRAWN = admin_pb2.SCHEMA_STEP_PENDING, admin_pb2.SCHEMA_STEP_WITHDRAWN
TYPO, GATE = Field("coment", Primitive("string")), Field("gate", Primitive("int"))


def cluster_at(level: int) -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    upgrade(cluster, level)
    return cluster


@pytest.fixture
def newest() -> ControllerCluster:
    return cluster_at(PENDING_SCHEMAS_LEVEL)


def image_schemas(cluster: ControllerCluster, key: PartitionKey) -> TopicSchemas:
    """What the image has, which a snapshot has too."""
    found = cluster.image.schemas[key.topic_id]
    loaded = decode_snapshot(encode_snapshot(cluster.image, 1), SnapshotId(cluster.image.end_offset, 1))
    assert loaded.schemas[key.topic_id] == found
    return found


def test_a_pending_version_is_not_the_latest_until_it_is_confirmed(newest: ControllerCluster) -> None:
    key = created(newest)
    first = image_schemas(newest, key).latest
    second = add_column(first, TYPO)
    for _ in range(2):  # the second is the repeat after a lost answer
        assert evolve(newest, second, schema_step=PENDING) is None
        found = image_schemas(newest, key)
        assert (found.latest, found.pending, found.version(2)) == (first, second, second)
    for _ in range(2):
        assert evolve(newest, second) is None
        assert (image_schemas(newest, key).latest, image_schemas(newest, key).pending) == (second, None)
    before = list(newest.records)
    assert evolve(newest, second, schema_step=WITHDRAWN) is None
    assert newest.records == before, "what was the latest once stays"


def test_a_withdrawn_version_leaves_neither_columns_nor_types_and_its_ids_are_not_given_again(
    newest: ControllerCluster,
) -> None:
    key = created(newest)
    first = image_schemas(newest, key).latest
    second = add_column(widen_column(first, "delay", Primitive("long")), TYPO)
    second = as_next_version(first, second)
    assert evolve(newest, second, schema_step=PENDING) is None
    for _ in range(2):
        assert evolve(newest, second, schema_step=WITHDRAWN) is None
    found = image_schemas(newest, key)
    assert (found.latest, found.versions) == (first, (first, second))
    third = proposal(found, lambda base: add_column(base, GATE))
    assert evolve(newest, third) is None
    found = image_schemas(newest, key)
    assert str(found.latest) == f"{first}, gate int"
    assert (found.latest.version, found.latest.column("gate").id) == (3, second.last_field_id + 1)
    assert isinstance(evolve(newest, second), InvalidUpdateVersion), "a write that still wants it is refused"
    assert evolve(newest, second, schema_step=WITHDRAWN) is None
    fourth = add_column(found.latest, TYPO)
    assert evolve(newest, fourth) is None
    assert fourth.column("coment").id > second.column("coment").id


def test_a_write_that_runs_again_wants_the_version_of_its_first_run(newest: ControllerCluster) -> None:
    key = created(newest)

    def change(base: TopicSchema) -> TopicSchema:
        return merged(base, (TYPO,))

    for run in range(3):
        proposed = proposal(image_schemas(newest, key), change)
        assert proposed.version == 2
        assert evolve(newest, proposed, schema_step=PENDING) is None
        assert image_schemas(newest, key).withdrawn == frozenset()
        if run < 2:
            assert evolve(newest, proposed, schema_step=WITHDRAWN) is None
    assert evolve(newest, proposed) is None
    assert image_schemas(newest, key) == TopicSchemas((FLIGHTS, proposed))
    assert proposal(image_schemas(newest, key), change) is image_schemas(newest, key).latest


def confirm(cluster: ControllerCluster, key: PartitionKey, number: int) -> None:
    """As a driver does right before its commit."""
    schemas = image_schemas(cluster, key)
    newest = schemas.versions[-1].version
    wanted = schemas.version(number) if number == newest else proposal(schemas, rejoined(schemas, number))
    assert evolve(cluster, wanted) is None


def test_a_change_of_somebody_else_has_nothing_of_a_pending_version(newest: ControllerCluster) -> None:
    """Its driver may have been killed: then its columns would stay for ever."""
    key = created(newest)
    second = proposal(image_schemas(newest, key), lambda base: merged(base, (TYPO, Field("delay", Primitive("long")))))
    assert evolve(newest, second, schema_step=PENDING) is None
    third = proposal(image_schemas(newest, key), lambda base: add_column(base, GATE))
    assert evolve(newest, third) is None
    found = image_schemas(newest, key)
    assert str(found.latest) == f"{FLIGHTS}, gate int"
    assert (found.latest.version, set(found.withdrawn), found.pending) == (3, {2}, None)


@pytest.mark.parametrize("order", [(2, 3), (3, 2)])
@pytest.mark.parametrize("wanted", [(TYPO, GATE), (GATE, TYPO), (GATE, Field("delay", Primitive("long")))])
def test_two_writers_at_once_both_bring_in_their_columns(
    newest: ControllerCluster, wanted: tuple[Field, Field], order: tuple[int, int]
) -> None:
    key = created(newest)
    of_writers: list[tuple[Field, ...]] = [wanted[:1], wanted]  # the second one wants the column of the first, too
    for fields in of_writers:
        made = proposal(image_schemas(newest, key), partial(merged, wanted=fields))
        assert evolve(newest, made, schema_step=PENDING) is None
    written = {number: image_schemas(newest, key).version(number) for number in (2, 3)}
    assert image_schemas(newest, key).latest.version == 1
    for number in order:
        confirm(newest, key, number)
        latest = image_schemas(newest, key).latest
        assert all(latest.by_id[field_id].name == field.name for field_id, field in written[number].by_id.items())
    latest = image_schemas(newest, key).latest
    assert {field.name for field in latest.fields} == {field.name for field in written[3].fields}
    assert latest.column("delay").type == written[3].column("delay").type


def test_a_column_that_somebody_else_has_made_of_another_type_cannot_come_back(newest: ControllerCluster) -> None:
    key = created(newest)
    second = proposal(image_schemas(newest, key), lambda base: merged(base, (GATE,)))
    assert evolve(newest, second, schema_step=PENDING) is None
    third = proposal(image_schemas(newest, key), lambda base: merged(base, (Field("gate", Primitive("string")),)))
    assert evolve(newest, third) is None
    with pytest.raises(InvalidSchema, match="gate"):
        confirm(newest, key, 2)


def test_neither_does_a_new_field_of_a_struct(newest: ControllerCluster) -> None:
    key = created(newest)
    place = Field("place", Struct((Field("x", Primitive("int")),)))
    assert evolve(newest, add_column(image_schemas(newest, key).latest, place)) is None
    wider = Field("place", Struct((Field("x", Primitive("int")), Field("y", Primitive("int")))))
    third = proposal(image_schemas(newest, key), lambda base: merged(base, (wider,)))
    assert evolve(newest, third, schema_step=PENDING) is None
    assert evolve(newest, add_column(image_schemas(newest, key).base, GATE)) is None
    with pytest.raises(InvalidSchema, match=r"column 'place\.y' of it cannot come back: write again"):
        confirm(newest, key, 3)


def test_no_column_comes_back_that_was_dropped(newest: ControllerCluster) -> None:
    key = created(newest)
    assert evolve(newest, add_column(image_schemas(newest, key).latest, GATE)) is None
    second = image_schemas(newest, key).latest
    third = proposal(image_schemas(newest, key), lambda base: merged(base, (TYPO,)))
    assert evolve(newest, third, schema_step=PENDING) is None
    assert evolve(newest, third, schema_step=WITHDRAWN) is None
    fourth = proposal(image_schemas(newest, key), lambda base: drop_column(base, "gate"))
    assert evolve(newest, fourth) is None
    wrong = replace(fourth, version=5, fields=(*fourth.fields, second.column("gate")))
    assert isinstance(evolve(newest, wrong), InvalidSchema)
    confirm(newest, key, 3)
    assert str(image_schemas(newest, key).latest) == f"{FLIGHTS}, coment string"


def test_below_its_level_a_pending_version_counts_at_once() -> None:
    cluster = cluster_at(PENDING_SCHEMAS_LEVEL - 1)
    key = created(cluster)
    second = add_column(image_schemas(cluster, key).latest, TYPO)
    assert evolve(cluster, second, schema_step=PENDING) is None
    assert evolve(cluster, second, schema_step=WITHDRAWN) is None
    assert image_schemas(cluster, key) == TopicSchemas((FLIGHTS, second))
