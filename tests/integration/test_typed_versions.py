"""Rows of typed topics by a version that the user names, as Spark's tasks do: read by it, and written by it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition, TopicSchema, schema_from_ddl
from minilog.errors import InvalidRecord, NarrowSchemaVersion
from minilog.typed.schema.evolution import add_column, rename_column, widen_column
from minilog.typed.schema.fields import Field, Primitive
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster
from tests.rules import proves

FLIGHTS = schema_from_ddl("carrier string NOT NULL, delay int", ["carrier"])


cluster = shared_cluster(THREE)


def made(admin: Admin, name: str) -> TopicSchema:
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=3, schema=FLIGHTS)])
    found = admin.describe_topics([name])[0].schema
    assert found is not None
    return found


def rows(number: int, **more: Any) -> pa.Table:
    return pa.table({"carrier": [f"c{number}"], "delay": pa.array([number], pa.int64()), **more})


def read(
    cluster: Cluster, name: str, count: int, schemas: Mapping[str, TopicSchema] | None, **wanted: Any
) -> list[dict[str, Any]]:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        found: list[dict[str, Any]] = []
        end_s = time.monotonic() + 30
        while len(found) < count and time.monotonic() < end_s:
            found += [row for each in consumer.poll_arrow(1.0, schemas=schemas, **wanted) for row in each.to_pylist()]
        return found


def test_a_topic_is_read_by_the_version_that_is_named(cluster: Cluster, admin: Admin) -> None:
    first = made(admin, "named")
    second = admin.evolve_schema("named", lambda schema: rename_column(schema, "delay", "minutes"))
    third = admin.evolve_schema("named", lambda schema: add_column(schema, Field("gate", Primitive("string"))))
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send_batch("named", rows(1), schema=first).result(timeout=30)
        newest = pa.table({"carrier": ["c2"], "minutes": [2], "gate": ["B4"]})
        producer.send_batch("named", newest).result(timeout=30)
        with pytest.raises(InvalidRecord, match="no column 'delay'"):
            producer.send_batch("named", rows(3), schema=second)
    assert read(cluster, "named", 2, {"named": first}) == [{"carrier": f"c{n}", "delay": n} for n in (1, 2)]
    assert read(cluster, "named", 1, {"named": first}, where="delay > 1", columns=["delay"]) == [{"delay": 2}]
    assert read(cluster, "named", 2, {"named": second})[1] == {"carrier": "c2", "minutes": 2}
    assert read(cluster, "named", 2, {"other": first}) == read(cluster, "named", 2, {"named": third})


@proves("SPT.11")
def test_a_value_that_the_version_cannot_hold_is_an_error_at_once(cluster: Cluster, admin: Admin) -> None:
    first = made(admin, "wide")
    admin.evolve_schema("wide", lambda schema: widen_column(schema, "delay", Primitive("long")))
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send_batch("wide", rows(1)).result(timeout=30)
        producer.send_batch("wide", rows(2**40)).result(timeout=30)
    began_s = time.monotonic()
    with pytest.raises(NarrowSchemaVersion, match="column 'delay' is long now, but this reader knows it as int"):
        read(cluster, "wide", 2, {"wide": first})
    assert time.monotonic() - began_s < 20
    assert read(cluster, "wide", 2, {"wide": first}, columns=["carrier"]) == [{"carrier": f"c{n}"} for n in (1, 2**40)]


@proves("SPY.4")
def test_rows_are_written_by_a_version_that_the_producer_has_not_heard_of(cluster: Cluster, admin: Admin) -> None:
    made(admin, "ahead")
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send_batch("ahead", rows(1)).result(timeout=30)
        newest = admin.evolve_schema("ahead", lambda schema: add_column(schema, Field("gate", Primitive("string"))))
        producer.send_batch("ahead", rows(2, gate=["B4"]), schema=newest).result(timeout=30)
    assert [row["gate"] for row in read(cluster, "ahead", 2, None)] == [None, "B4"]
