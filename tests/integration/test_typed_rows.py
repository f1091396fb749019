"""Rows of typed topics through real brokers: written, pruned and filtered where they lie, and read by every version."""

from __future__ import annotations

import datetime
import json
import time
from typing import Any

import pyarrow as pa
import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition, TopicSchema, schema_from_ddl
from minilog.errors import InvalidRecord
from minilog.typed.schema.evolution import add_column, drop_column, rename_column, widen_column
from minilog.typed.schema.fields import Field, Primitive
from tests.cluster import Cluster
from tests.integration.rounds import admin_of
from tests.pool import MORTAL, THREE, shared_cluster

FLIGHTS = schema_from_ddl("carrier string NOT NULL, delay int, at timestamp, note string", ["carrier"], "at")
ROWS = 2_000
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


cluster = shared_cluster(THREE)
mortal = shared_cluster(MORTAL)


def flights(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "carrier": [("UA", "AA", "DL")[number % 3] for number in numbers],
            "delay": [None if number % 7 == 0 else number for number in numbers],
            "at": pa.array(
                [NOON + datetime.timedelta(seconds=number) for number in numbers], pa.timestamp("us", "UTC")
            ),
            "note": [f"note {number} " + "x" * 200 for number in numbers],
        },
        FLIGHTS.arrow_schema,
    )


def made(admin: Admin, name: str, partitions: int = 2) -> None:
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=3, schema=FLIGHTS)])


def written(cluster: Cluster, name: str, *tables: Any) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for table in tables:
            producer.send_batch(name, table).result(timeout=30)


def read(cluster: Cluster, name: str, count: int, partitions: int = 2, **wanted: Any) -> tuple[pa.Table, int]:
    """So many rows, and how many bytes of batches came."""
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.poll_arrow(0.0, **wanted)  # a consumer fetches as soon as it is assigned, by what the last poll named
        consumer.assign([TopicPartition(name, number) for number in range(partitions)])
        found: list[pa.RecordBatch] = []
        end_s = time.monotonic() + 30
        while sum(each.num_rows for each in found) < count and time.monotonic() < end_s:
            found += consumer.poll_arrow(1.0, **wanted)
        return pa.Table.from_batches(found), sum(consumer._shell.core.received_bytes.values())


def test_columns_and_rows_come_as_they_were_written_and_only_those_that_were_asked_for(
    cluster: Cluster, admin: Admin
) -> None:
    made(admin, "flights")
    given = flights(0, ROWS)
    written(cluster, "flights", given.slice(0, 700), given.slice(700).to_batches()[0])
    whole, whole_bytes = read(cluster, "flights", ROWS)
    assert whole.schema.names == ["carrier", "delay", "at", "note"]
    assert whole.sort_by("at").equals(given)
    some, some_bytes = read(cluster, "flights", ROWS, columns=["delay", "carrier"])
    assert some.schema.names == ["delay", "carrier"]
    assert sorted(map(str, some.to_pylist())) == sorted(map(str, given.select(["delay", "carrier"]).to_pylist()))
    assert some_bytes < whole_bytes / 8


def test_rows_one_by_one_and_their_keys(cluster: Cluster, admin: Admin) -> None:
    made(admin, "ones")
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        told = [
            producer.send("ones", {"carrier": carrier, "delay": 3, "at": NOON}).result(timeout=30)
            for carrier in ("UA", "AA", "UA")
        ]
        with pytest.raises(InvalidRecord, match=r"topic 'ones': column 'delay' is int, and 'late' is none that fits"):
            producer.send("ones", {"carrier": "UA", "delay": "late"})
        with pytest.raises(InvalidRecord, match="column 'carrier' may not be null"):
            producer.send("ones", {"delay": 1})
        with pytest.raises(InvalidRecord, match="has a schema, and the value is bytes"):
            producer.send("ones", b"{}")
        with pytest.raises(InvalidRecord, match=r"column 'delay' is int, and 3.5 in row 1 does not fit"):
            producer.send_batch("ones", pa.table({"carrier": ["UA", "UA"], "delay": [1.0, 3.5]}))
    assert {each.timestamp for each in told} == {int(NOON.timestamp() * 1000)}
    assert told[0].partition == told[2].partition
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["ones"])
        records: list[Any] = []
        end_s = time.monotonic() + 30
        while len(records) < 3 and time.monotonic() < end_s:
            records += consumer.poll(1.0)
    assert sorted(each.key for each in records) == [b"AA", b"UA", b"UA"]
    assert {json.loads(each.value)["at"] for each in records} == {"2024-05-01T12:00:00+00:00"}


def test_readers_and_writers_go_on_while_the_schema_evolves(cluster: Cluster, admin: Admin) -> None:
    made(admin, "evolving", partitions=1)
    with (
        Producer({"bootstrap.servers": cluster.bootstrap_servers}) as old,
        Consumer({"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}) as reader,
    ):
        old.send_batch("evolving", flights(0, 10)).result(timeout=30)
        reader.assign([TopicPartition("evolving", 0)])
        rows = [row for batch in reader.poll_arrow(10.0) for row in batch.to_pylist()]
        admin.evolve_schema("evolving", lambda schema: rename_column(schema, "note", "remark"))
        admin.evolve_schema("evolving", lambda schema: add_column(schema, Field("gate", Primitive("string"))))
        admin.evolve_schema("evolving", lambda schema: widen_column(schema, "delay", Primitive("long")))
        old.send_batch("evolving", flights(10, 10)).result(timeout=30)  # it knows the first version
        newest = pa.table({"carrier": ["UA"], "delay": [2**40], "gate": ["B4"], "remark": ["late"]})
        written(cluster, "evolving", newest)
        end_s = time.monotonic() + 30
        while len(rows) < 21 and time.monotonic() < end_s:
            rows += [row for batch in reader.poll_arrow(1.0) for row in batch.to_pylist()]
    assert [row["delay"] for row in rows] == [*flights(0, 20).column("delay").to_pylist(), 2**40]
    assert rows[-1]["note"] == "late", "the types are wider, since a long is no int; the names are those that it knows"
    found, _ = read(cluster, "evolving", 21, partitions=1, columns=["gate", "remark"])
    assert found.column("gate").to_pylist() == [None] * 20 + ["B4"]
    assert found.column("remark").to_pylist() == [*flights(0, 20).column("note").to_pylist(), "late"]


def test_rows_survive_a_restart_of_all_brokers(mortal: Cluster) -> None:
    with admin_of(mortal) as admin:
        made(admin, "kept")
    written(mortal, "kept", flights(0, 500))
    mortal.kill(*mortal.ports)
    mortal.start()
    mortal.wait_running()
    found, _ = read(mortal, "kept", 500, columns=["at"])
    assert sorted(found.column("at").to_pylist()) == flights(0, 500).column("at").to_pylist()


def test_all_partitions_go_on_by_one_version_whichever_hears_of_it_first(cluster: Cluster, admin: Admin) -> None:
    """Found by the simulator (seed 1201703): one partition met a version that was not known here, and was read by the
    newest from then on. A where means the column that had its name when the reader began, in all partitions: the column
    is gone, and its name is another one's by now."""
    schema = schema_from_ddl("id long NOT NULL, note string", [])
    admin.create_topics([NewTopic("renamed", num_partitions=2, replication_factor=3, schema=schema)])
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "metadata.max.age.ms": 300_000}
    with Producer(settings) as producer, Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:

        def write(number: int, partition: int, version: TopicSchema | None = None) -> None:
            rows = pa.table({"id": [number], "note": [f"n{number}"]})
            producer.send_batch("renamed", rows, partition=partition, schema=version).result(timeout=30)

        consumer.assign([TopicPartition("renamed", 0), TopicPartition("renamed", 1)])
        found: list[int] = []

        def read_until(count: int) -> None:
            end_s = time.monotonic() + 20
            while len(found) < count and time.monotonic() < end_s:
                for each in consumer.poll_arrow(0.2, where="note is null or id < 2"):
                    found.extend(each.column("id").to_pylist())

        write(0, 0)
        write(1, 1)
        read_until(2)
        assert sorted(found) == [0, 1]
        admin.evolve_schema("renamed", lambda schema: drop_column(schema, "note"))
        newest = admin.evolve_schema("renamed", lambda schema: add_column(schema, Field("note", Primitive("string"))))
        write(2, 0, newest)
        read_until(3)
        write(3, 1, newest)
        read_until(4)
        assert found[2:] == [2, 3]
