"""Versions of a schema that wait for the commit of a write, and go with it if it fails."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidUpdateVersion
from minilog.partition_key import PartitionKey
from minilog.typed.evolution import add_column, as_next_version, merged, proposal, widen_column
from minilog.typed.fields import Field, Primitive
from minilog.typed.topic_schema import TopicSchema
from minilog.typed.topic_schemas import TopicSchemas
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


def test_two_writers_at_once_build_on_each_other(newest: ControllerCluster) -> None:
    key = created(newest)
    second = proposal(image_schemas(newest, key), lambda base: merged(base, (TYPO,)))
    assert evolve(newest, second, schema_step=PENDING) is None
    assert proposal(image_schemas(newest, key), lambda base: merged(base, (TYPO,))) == second, "both want the same"
    third = proposal(image_schemas(newest, key), lambda base: merged(base, (GATE,)))
    assert evolve(newest, third, schema_step=PENDING) is None
    assert image_schemas(newest, key).latest == second, "two writes want it, so it stays"
    assert evolve(newest, second) is None
    assert evolve(newest, second, schema_step=WITHDRAWN) is None
    assert evolve(newest, third) is None
    assert str(image_schemas(newest, key).latest) == f"{FLIGHTS}, coment string, gate int"


def test_below_its_level_a_pending_version_counts_at_once() -> None:
    cluster = cluster_at(PENDING_SCHEMAS_LEVEL - 1)
    key = created(cluster)
    second = add_column(image_schemas(cluster, key).latest, TYPO)
    assert evolve(cluster, second, schema_step=PENDING) is None
    assert evolve(cluster, second, schema_step=WITHDRAWN) is None
    assert image_schemas(cluster, key) == TopicSchemas((FLIGHTS, second))
