"""The newest row of each key as a DataFrame: the option view=latest, beside the same by Spark's own means."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.window import Window

import pyspark_minilog
from minilog import Producer, TopicPartition, schema_from_ddl
from tests.rules import proves
from tests.spark.kit import WAIT_S, Kit, finish
from tests.spark.typed_kit import send_rows, texts, typed_topic

ACCOUNTS = schema_from_ddl("id int, name string, balance double", ["id"])


def by_window(frame: DataFrame, *keys: str) -> DataFrame:
    """The newest row of each key of a DataFrame with metadata, as Spark has always done it."""
    newest = Window.partitionBy(*keys).orderBy(f.desc("_offset"))
    return frame.withColumn("n", f.row_number().over(newest)).where("n = 1").drop("n")


def accounts(kit: Kit, rounds: int = 3, count: int = 300) -> str:
    topic = typed_topic(kit, ACCOUNTS)
    with Producer({"bootstrap.servers": kit.servers, "batch.size": 2_000}) as producer:
        for change in range(rounds):
            rows = [{"id": number, "name": f"n{number}", "balance": float(change)} for number in range(count)]
            producer.send_many(topic, rows).result(WAIT_S)
    return topic


@proves("SPT.3")
def test_a_table_has_the_newest_row_of_each_key(kit: Kit) -> None:
    topic = accounts(kit)
    table = pyspark_minilog.read(kit.spark, topic, view="latest", bootstrap_servers=kit.servers)
    assert table.schema == kit.read(subscribe=topic).schema
    assert table.rdd.getNumPartitions() == 2
    assert table.count() == 300
    rows = kit.read(subscribe=topic, metadata=True)
    newest = by_window(rows, "id").select("id", "name", "balance")
    assert texts(table) == texts(newest)
    few = kit.read(subscribe=topic, view="latest", columns="balance,id", where="id < 5", metadata=True)
    assert few.columns == ["balance", "id", "_topic", "_partition", "_offset", "_timestamp", "_key"]
    assert sorted((row.id, row.balance) for row in few.collect()) == [(number, 2.0) for number in range(5)]
    assert kit.read(subscribe=topic, view="latest", where="balance < 2").count() == 0


@proves("SPT.3")
def test_a_table_is_as_of_a_time(kit: Kit) -> None:
    topic = typed_topic(kit, schema_from_ddl("id int, at timestamp", ["id"], "at"), partitions=1)
    noon = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    for minute in range(3):
        at = noon + datetime.timedelta(minutes=minute)
        rows = {"id": pa.array([1, 2], pa.int32()), "at": pa.array([at, at], pa.timestamp("us", "UTC"))}
        send_rows(kit, topic, pa.table(rows))
    second_ms = int(noon.timestamp() * 1000) + 60_000
    table = kit.read(subscribe=topic, view="latest", endingTimestamp=second_ms, metadata=True)
    assert sorted(row._offset for row in table.collect()) == [0, 1]
    table = kit.read(subscribe=topic, view="latest", endingTimestamp=second_ms + 1, metadata=True)
    assert sorted(row._offset for row in table.collect()) == [2, 3]


@proves("SPT.3")
def test_a_topic_without_a_schema_has_the_newest_record_of_each_key(kit: Kit) -> None:
    topic = kit.topic(partitions=2)
    entries: list[tuple[bytes | None, bytes | None]] = [
        (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (None, b"4"), (b"c", b"5")
    ]  # fmt: skip
    with Producer({"bootstrap.servers": kit.servers}) as producer:
        for key, value in entries:
            producer.send(topic, value, key=key, headers={"h": b"x"}).result(WAIT_S)
    table = kit.read(subscribe=topic, view="latest", includeHeaders=True)
    assert table.schema == kit.read(subscribe=topic, includeHeaders=True).schema
    found = sorted(table.collect(), key=lambda row: bytes(row.key))
    assert [(bytes(row.key), bytes(row.value), row.topic) for row in found] == [
        (b"a", b"3", topic),
        (b"c", b"5", topic),
    ]
    whole = kit.read(subscribe=topic, includeHeaders=True)
    assert texts(table) == texts(whole.where("string(value) in ('3', '5')"))


@proves("SPT.4")
def test_a_table_of_the_catalog_shows_the_newest_rows_of_now(kit: Kit) -> None:
    topic = accounts(kit, rounds=1, count=5)
    table = topic.replace("-", "_")
    options = f"OPTIONS (`bootstrap.servers` '{kit.servers}', subscribe '{topic}', view 'latest')"
    kit.spark.sql(f"CREATE TABLE {table} USING minilog {options}")
    query = f"SELECT sum(balance) AS total, count(*) AS n FROM {table}"
    assert [tuple(row) for row in kit.spark.sql(query).collect()] == [(0.0, 5)]
    with Producer({"bootstrap.servers": kit.servers}) as producer:
        producer.send_many(topic, [{"id": 1, "name": "one", "balance": 7.0}]).result(WAIT_S)
    assert [tuple(row) for row in kit.spark.sql(query).collect()] == [(7.0, 5)]
    assert [tuple(row) for row in kit.spark.sql(f"SELECT name FROM {table} WHERE id = 1").collect()] == [("one",)]
    kit.spark.sql(f"DROP TABLE {table}")


@proves("SPT.4")
def test_a_stream_of_it_is_refused_and_names_what_to_do(kit: Kit, tmp_path: Any) -> None:
    topic = accounts(kit, rounds=1, count=5)
    frame = kit.read_stream(subscribe=topic, view="latest")
    with pytest.raises(PySparkException, match="read rows and deletions with deletes=true"):
        finish(frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start())


@proves("SPT.4")
def test_a_range_that_retention_took_is_data_loss(kit: Kit) -> None:
    topic = accounts(kit, rounds=2, count=50)
    start = kit.read(subscribe=topic, view="latest", startingOffsets=f'{{"{topic}":{{"0":0,"1":0}}}}')
    assert start.count() == 50  # its offsets are fixed now
    kit.admin.delete_records({TopicPartition(topic, 0): 10})
    with pytest.raises(PySparkException, match=r"offsets 0 to 10 of partition .* are not there any more"):
        start.collect()
