"""Rows of typed topics that delete their key, through real brokers: written by every producer, read by every reader."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import time
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import minilog
from minilog import Admin, Consumer, NewTopic, Producer, Record, TopicPartition, schema_from_ddl
from minilog.errors import InvalidArgument, InvalidRecord
from minilog.polars import scan_minilog
from minilog.types import RowDeletion
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

ACCOUNTS = schema_from_ddl("id int NOT NULL, name string NOT NULL, balance long, at timestamp NOT NULL", ["id"], "at")
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


cluster = shared_cluster(THREE)


def made(admin: Admin, name: str, **options: Any) -> None:
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=3, **options)])


def account(number: int, balance: int | None = None) -> dict[str, Any]:
    return {"id": number, "name": f"name {number}", "balance": balance, "at": NOON}


def settings(cluster: Cluster, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest", **more}


def polled(cluster: Cluster, name: str, count: int) -> list[Record]:
    with Consumer(settings(cluster)) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        records, end_s = list[Record](), time.monotonic() + 30
        while len(records) < count and time.monotonic() < end_s:
            records += consumer.poll(1.0)
        return records


def arrow(cluster: Cluster, name: str, count: int, **wanted: Any) -> list[dict[str, Any]]:
    with Consumer(settings(cluster)) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        rows, end_s = list[dict[str, Any]](), time.monotonic() + 30
        while len(rows) < count and time.monotonic() < end_s:
            rows += [row for batch in consumer.poll_arrow(1.0, **wanted) for row in batch.to_pylist()]
        return rows


def test_a_deletion_is_seen_by_who_asks_for_it_and_by_records(cluster: Cluster, admin: Admin) -> None:
    made(admin, "accounts", schema=ACCOUNTS)
    with Producer(settings(cluster)) as producer:
        producer.send("accounts", account(1, 5)).result(timeout=30)
        place = producer.delete("accounts", {"id": 1, "at": NOON}).result(timeout=30)
        producer.send("accounts", account(2, 7)).result(timeout=30)
        producer.send("accounts", {"id": 3, "_deleted": True}, headers=[("why", b"left")]).result(timeout=30)
        producer.send_many("accounts", [account(4), {"id": 2, "_deleted": True}]).result(timeout=30)
    assert (place.offset, place.timestamp) == (1, int(NOON.timestamp() * 1000))
    records = polled(cluster, "accounts", 6)
    assert [record.is_deletion for record in records] == [False, True, False, True, False, True]
    deletion, with_header = records[1], records[3]
    assert isinstance(deletion, RowDeletion)
    assert (deletion.value, deletion.key, deletion.key_columns) == (None, records[0].key, b'{"id":1}')
    assert with_header.headers == [("why", b"left")]
    assert json.loads(records[2].value or b"")["balance"] == 7
    assert [row["id"] for row in arrow(cluster, "accounts", 3)] == [1, 2, 4]
    rows = arrow(cluster, "accounts", 6, columns=["id", "balance"], deletes=True)
    assert [(row["id"], row["_deleted"]) for row in rows] == [
        (1, False),
        (1, True),
        (2, False),
        (3, True),
        (4, False),
        (2, True),
    ]
    where = arrow(cluster, "accounts", 4, where="balance > 6", metadata=True, deletes=True)
    assert [(row["_offset"], row["_deleted"]) for row in where] == [(1, True), (2, False), (3, True), (5, True)]
    assert where[0]["name"] is None


def test_a_scan_leaves_deletions_out_or_marks_them(cluster: Cluster, admin: Admin) -> None:
    made(admin, "scanned", schema=ACCOUNTS)
    with Producer(settings(cluster)) as producer:
        table = pa.table(
            {
                "id": pa.arange(0, 100),
                "name": [None if number % 4 == 0 else "n" for number in range(100)],
                "at": pa.array([None if number % 4 == 0 else NOON for number in range(100)], pa.timestamp("us", "UTC")),
                "_deleted": [number % 4 == 0 for number in range(100)],
            }
        )
        producer.send_batch("scanned", table).result(timeout=30)
        for number in range(3):
            producer.delete("scanned", {"id": number}).result(timeout=30)
    config = settings(cluster)
    plain, marked = minilog.scan("scanned", config=config), minilog.scan("scanned", deletes=True, config=config)
    assert (plain.count(), marked.count()) == (75, 103)
    assert plain.schema.names == list(ACCOUNTS.names)
    assert plain.to_arrow()["id"].to_pylist() == [number for number in range(100) if number % 4]
    rows = marked.to_arrow()
    assert rows.schema.equals(marked.schema)
    assert rows.filter(rows["_deleted"])["id"].to_pylist() == [*range(0, 100, 4), 0, 1, 2]
    few = minilog.scan("scanned", ["_offset", "id"], "id = 7", deletes=True, config=config)
    assert (few.count(), few.to_arrow().filter(pa.compute.invert(few.to_arrow()["_deleted"])).num_rows) == (29, 1)
    frame, eager = scan_minilog("scanned", deletes=True, config=config), marked.to_polars()
    for predicate in (pl.col("_deleted"), pl.col("name").is_null(), ~pl.col("_deleted") & (pl.col("id") > 50)):
        assert_frame_equal(frame.filter(predicate).collect(), eager.filter(predicate))
    assert frame.select("_deleted").collect()["_deleted"].sum() == 28
    assert minilog.scan("scanned", where="id = 8 or name is null", config=config).count() == 0
    assert "left out" in str(plain.explain(analyze=True))


def test_asyncio_and_transactions_delete_too(cluster: Cluster, admin: Admin) -> None:
    made(admin, "moved", schema=ACCOUNTS)

    async def delete() -> int:
        async with minilog.aio.Producer(settings(cluster)) as producer:
            future = await producer.delete("moved", {"id": 9})
            return (await future).offset

    assert asyncio.run(delete()) == 0
    with Producer(settings(cluster, **{"transactional.id": "mover"})) as producer:
        with producer.transaction():
            producer.send("moved", account(1))
            producer.delete("moved", {"id": 1})
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.delete("moved", {"id": 2})
            raise ZeroDivisionError
    rows = minilog.scan("moved", ["id"], deletes=True, config=settings(cluster)).to_arrow().to_pylist()
    assert rows == [{"id": 9, "_deleted": True}, {"id": 1, "_deleted": False}, {"id": 1, "_deleted": True}]


def test_an_untyped_deletion_is_a_record_without_a_value(cluster: Cluster, admin: Admin) -> None:
    made(admin, "plain")
    with Producer(settings(cluster)) as producer:
        producer.send("plain", b"v", key=b"k").result(timeout=30)
        producer.delete("plain", key=b"k").result(timeout=30)
        with pytest.raises(InvalidRecord, match="give bytes"):
            producer.delete("plain", {"id": 5})
        with pytest.raises(InvalidRecord, match="give a dict of its key columns: id"):
            producer.delete("accounts", b"k")
        with pytest.raises(InvalidRecord, match="no value for key column 'id'"):
            producer.delete("accounts", {"name": "x"})
    records = polled(cluster, "plain", 2)
    assert [(record.key, record.value, record.is_deletion) for record in records] == [
        (b"k", b"v", False),
        (b"k", None, True),
    ]
    with pytest.raises(InvalidArgument, match="has no schema"):
        minilog.scan("plain", deletes=True, config=settings(cluster)).count()
    with pytest.raises(InvalidArgument, match="has no schema"):
        arrow(cluster, "plain", 1, deletes=True)
