"""Deletions of typed topics at a leader: from level 6 of the cluster on, and only rows that are right."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from minilog.errors import InvalidRecord, LevelNotReached
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog_broker.levels import KEYED_TOPICS_LEVEL
from tests.unit.replication.cluster import KEY, NOW_US, TOPIC_ID, ReplicaCluster, quick_settings

SCHEMA = first_version(parse_ddl("id int NOT NULL, n int NOT NULL"), ["id"])


def leader(level: int) -> ReplicaCluster:
    cluster = ReplicaCluster(brokers=1, min_in_sync=1, leader_id=None, settings=quick_settings())
    cluster[1].level.reach(level)
    cluster.config = cluster[1].config = replace(cluster.config, schemas=TopicSchemas((SCHEMA,)))
    cluster.controller.create(KEY, (1,), 1)
    cluster.settle()
    return cluster


def deletion(n: int | None = None) -> bytes:
    columns = [pa.array([5], pa.int32()), pa.array([n], pa.int32())]
    rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)
    return build_typed_batch(TOPIC_ID, 0, TypedRows(SCHEMA, rows, deletions=pa.array([True])), timestamp_us=NOW_US)


def test_a_deletion_waits_for_its_level() -> None:
    cluster = leader(KEYED_TOPICS_LEVEL - 1)
    refused = cluster.produce(1, deletion())
    with pytest.raises(LevelNotReached, match=r"attributes 0x280, and the cluster is at level 5"):
        raise cluster[1].answers[refused].error or AssertionError
    cluster[1].level.reach(KEYED_TOPICS_LEVEL)
    taken = cluster.produce(1, deletion())
    cluster.settle()
    assert (cluster[1].answers[taken].error, cluster[1].answers[taken].base_offset) == (None, 0)


def test_a_row_that_is_no_deletion_is_refused_with_its_number() -> None:
    cluster = leader(KEYED_TOPICS_LEVEL)
    refused = cluster.produce(1, deletion(7))
    with pytest.raises(InvalidRecord, match="row 0 deletes its key and has a value in column 'n'"):
        raise cluster[1].answers[refused].error or AssertionError
