"""spark.read and df.write: all columns there and back, and the offsets that options name."""

from __future__ import annotations

import datetime
import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.functions import col, lit

from tests.rules import proves
from tests.spark.kit import Kit, values

WHEN = datetime.datetime(2024, 5, 1, 12, 30, 0, 123456)


@proves("SPO.11", "SPO.20", "SPS.2", "SPK.4")
def test_all_columns_go_there_and_back(kit: Kit) -> None:
    topic = kit.topic(partitions=3)
    rows = [
        Row(
            key=b"k1",
            value=b"v1",
            partition=2,
            timestamp=WHEN,
            headers=[Row(key="h", value=b"x"), Row(key="h", value=None)],
        ),
        Row(key=None, value=None, partition=0, timestamp=WHEN, headers=None),
    ]
    schema = (
        "key binary, value binary, partition int, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    )
    frame = kit.spark.createDataFrame(rows, schema)
    frame.write.format("minilog").option("bootstrap.servers", kit.servers).option("topic", topic).mode("append").save()

    found = kit.read(subscribe=topic, includeHeaders="true")
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    tombstone, full = found.orderBy("partition").collect()
    assert (bytes(full.key), bytes(full.value), full.topic, full.partition, full.offset) == (b"k1", b"v1", topic, 2, 0)
    assert (full.timestamp, full.timestampType) == (WHEN, 0)
    assert [(h.key, h.value and bytes(h.value)) for h in full.headers] == [("h", b"x"), ("h", None)]
    assert (tombstone.key, tombstone.value, tombstone.partition, tombstone.headers) == (None, None, 0, None)


@proves("SPS.2")
def test_text_is_written_and_time_is_given(kit: Kit) -> None:
    topic = kit.topic()
    before = datetime.datetime.now() - datetime.timedelta(hours=1)
    frame = kit.spark.range(10).select(col("id").cast("string").alias("value"), lit("k").alias("key"))
    frame.write.format("minilog").option("kafka.bootstrap.servers", kit.servers).option("topic", topic).mode(
        "append"
    ).save()
    found = kit.read(subscribe=topic)
    assert values(found) == sorted(map(str, range(10)))
    assert {bytes(row.key) for row in found.collect()} == {b"k"}
    assert all(row.timestamp > before for row in found.collect())


@proves("SPS.3")
def test_topic_and_partition_columns_place_the_rows(kit: Kit) -> None:
    one, other = kit.topic(partitions=2), kit.topic(partitions=2)
    rows = [(one, 0, "a"), (one, 1, "b"), (other, 1, "c"), (other, 1, "d"), (one, None, "e")]
    frame = kit.spark.createDataFrame(rows, "topic string, partition int, value string")
    frame.write.format("minilog").option("bootstrap.servers", kit.servers).mode("append").save()
    placed = {
        (row.topic, bytes(row.value).decode()): row.partition for row in kit.read(subscribe=f"{one},{other}").collect()
    }
    assert {key: partition for key, partition in placed.items() if key != (one, "e")} == {
        (one, "a"): 0,
        (one, "b"): 1,
        (other, "c"): 1,
        (other, "d"): 1,
    }
    assert (one, "e") in placed


@proves("SPS.4")
def test_the_topic_option_wins_over_the_column(kit: Kit) -> None:
    topic = kit.topic()
    frame = kit.spark.createDataFrame([("nowhere", "a")], "topic string, value string")
    frame.write.format("minilog").option("bootstrap.servers", kit.servers).option("topic", topic).mode("append").save()
    assert values(kit.read(subscribe=topic)) == ["a"]


@proves("SPO.2", "SPO.3")
def test_offsets_as_json_bound_a_batch(kit: Kit) -> None:
    topic = kit.topic(partitions=2)
    kit.send(topic, [f"a{n}" for n in range(10)], partition=0)
    kit.send(topic, [f"b{n}" for n in range(10)], partition=1)
    starting = json.dumps({topic: {"0": 3, "1": -2}})
    ending = json.dumps({topic: {"0": 6, "1": -1}})
    found = kit.read(subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    assert values(found) == ["a3", "a4", "a5", *(f"b{n}" for n in range(10))]
    per_topic = kit.read(subscribe=topic, startingOffsets=json.dumps({topic: "earliest"}), endingOffsets=ending)
    assert per_topic.count() == 16
    assigned = kit.read(assign=json.dumps({topic: [1]}), startingOffsets=json.dumps({topic: {"1": 8}}))
    assert values(assigned) == ["b8", "b9"]


def test_a_start_outside_the_log_is_data_loss(kit: Kit) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    starting = json.dumps({topic: {"0": 7}})
    with pytest.raises(
        PySparkException, match=f"startingOffsets of partition {topic}-0 was 7, but its log holds offsets 0 to 3"
    ):
        kit.read(subscribe=topic, startingOffsets=starting).count()
    assert kit.read(subscribe=topic, startingOffsets=starting, failOnDataLoss="false").count() == 0


@proves("SPB.4")
def test_a_union_reads_a_range_twice(kit: Kit) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    frame = kit.read(subscribe=topic)
    assert values(frame.union(frame)) == ["a", "a", "b", "b"]


def test_a_limit_ends_a_read_early_and_the_next_read_is_whole(kit: Kit) -> None:
    topic = kit.topic()
    kit.send(topic, map(str, range(2000)))
    frame = kit.read(subscribe=topic)
    assert len(frame.limit(3).collect()) == 3
    assert frame.count() == 2000


@proves("SPO.2")
def test_a_pattern_reads_the_topics_that_match(kit: Kit) -> None:
    prefix = kit.topic()
    for suffix in ("a", "b"):
        kit.send(kit.topic(name=f"{prefix}.{suffix}"), [suffix])
    assert values(kit.read(subscribePattern=rf"\Q{prefix}.\E\p{{Lower}}")) == ["a", "b"]
