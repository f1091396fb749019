"""Each refusal as the user sees it: where Spark lets us say it, in one sentence. Some need no broker."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.rules import proves
from tests.spark.kit import Kit, finish

pytestmark = proves("SPO.17")

NOWHERE = "127.0.0.1:1"


def load(spark: SparkSession, **options: str) -> DataFrame:
    reader = spark.read.format("minilog").option("bootstrap.servers", NOWHERE)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


@proves("SPF.9", "SPO.7")
def test_source_options_are_refused_at_load(spark: SparkSession) -> None:
    """Each of them: tests/unit/spark_connector/test_options.py."""
    with pytest.raises(PySparkException) as refusal:
        load(spark, subscribe="t", minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    assert "option 'minOffsetsPerTrigger' is '6': it is above maxOffsetsPerTrigger, which is 5." in str(refusal.value)


def refused(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as refusal:
        action()
    return str(refusal.value)


@proves("SPF.9")
def test_a_schema_does_not_go_around_the_checks(kit: Kit) -> None:
    reader = kit.spark.read.format("minilog").schema("value string").option("bootstrap.servers", kit.servers)
    topic = kit.topic()
    assert "the columns of a topic without a schema are fixed" in refused(
        lambda: reader.option("subscribe", topic).load().collect()
    )
    assert "option 'minPartitions' is 'x'" in refused(
        lambda: reader.option("subscribe", topic).option("minPartitions", "x").load().collect()
    )


@proves("SPO.5")
def test_a_stream_has_no_end(kit: Kit, tmp_path: pathlib.Path) -> None:
    def run() -> None:
        frame = kit.read_stream(subscribe=kit.topic(), endingTimestamp="5")
        query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        finish(query)

    assert "option 'endingTimestamp' is '5': a stream has no end" in refused(run)


@proves("SPS.1", "SPS.5")
@pytest.mark.parametrize(
    ("select", "options", "mode", "message"),
    [
        ("id as value", {"topic": "t"}, "append", "column 'value' is of type 'bigint': cast it to binary or string"),
        ("string(id) as value", {"topic": "t"}, "overwrite", "writers can only append to a log"),
    ],
)
def test_writes_are_refused_before_anything_is_written(
    kit: Kit, select: str, options: dict[str, str], mode: str, message: str
) -> None:
    frame = kit.spark.range(3).selectExpr(select)
    writer = frame.write.format("minilog").option("bootstrap.servers", kit.servers).mode(mode)
    assert message in refused(lambda: writer.options(**options).save())


@proves("SPF.35")
@pytest.mark.parametrize("mode", ["ErrorIfExists", "Ignore"])
def test_save_modes_that_spark_does_not_offer_a_python_sink(spark: SparkSession, mode: str) -> None:
    frame = spark.range(3).selectExpr("string(id) as value")
    writer = frame.write.format("minilog").options(topic="t").option("bootstrap.servers", NOWHERE)
    assert f'The data source "minilog" cannot be written in the "{mode}" mode' in refused(writer.mode(mode).save)


@proves("SPF.35")
def test_update_mode_is_refused_by_spark(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    counts = spark.readStream.format("rate").load().groupBy("value").count().selectExpr("string(value) as value")
    writer = counts.writeStream.format("minilog").outputMode("update").option("bootstrap.servers", NOWHERE)
    query = writer.options(topic="t", checkpointLocation=str(tmp_path)).start()
    assert "does not support Update mode" in refused(lambda: finish(query))


@pytest.mark.long
@proves("SPS.4")
def test_a_null_topic_is_refused(kit: Kit) -> None:
    frame = kit.spark.createDataFrame([(None, "a")], "topic string, value string")
    writer = frame.write.format("minilog").option("bootstrap.servers", kit.servers).mode("append")
    assert "column 'topic' is null in 1 rows" in refused(writer.save)


def test_a_topic_that_does_not_exist_is_refused(kit: Kit) -> None:
    message = refused(lambda: kit.read(subscribe="no-such-topic").count())
    assert (
        "option 'subscribe' is 'no-such-topic': no-such-topic does not exist. Create it, or correct the name" in message
    )


def test_a_partition_that_does_not_exist_is_refused(kit: Kit) -> None:
    topic = kit.topic(partitions=2)
    frame = kit.spark.createDataFrame([(5, "a")], "partition int, value string")
    writer = (
        frame.write.format("minilog").option("bootstrap.servers", kit.servers).option("topic", topic).mode("append")
    )
    assert "has partitions 0 to 1, not 5" in refused(writer.save)
