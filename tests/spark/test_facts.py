"""What Spark does with a Python data source (docs/spec/connector.md § 1), where the connector must cope with it."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from minilog import Producer
from tests.rules import proves
from tests.spark.kit import Collected, Kit, finish, run_available, values


@contextlib.contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def write(kit: Kit, frame: DataFrame, topic: str, **options: object) -> None:
    writer = frame.write.format("minilog").mode("append").option("bootstrap.servers", kit.servers)
    writer.options(topic=topic, **{name: str(value) for name, value in options.items()}).save()


def numbers(kit: Kit, count: int) -> DataFrame:
    return kit.spark.range(0, count, 1, 2).select(f.col("id").cast("string").alias("value"))


@proves("SPF.25")
def test_a_frame_filtered_twice_gives_the_rows_of_each_filter(kit: Kit) -> None:
    """Spark's push-down to Python sources gets this wrong, so nothing is pushed down, wherever it is switched on."""
    topic = kit.topic(partitions=2)
    for partition in range(2):
        kit.send(topic, [f"{partition}{number}" for number in range(3)], partition=partition)
    with setting(kit.spark, "spark.sql.python.filterPushdown.enabled", "true"):
        frame = kit.read(subscribe=topic)
        one, other = frame.where("partition = 0"), frame.where("partition = 1 AND offset >= 1")
        assert values(one.union(other)) == ["00", "01", "02", "11", "12"]


@proves("SPF.34")
@pytest.mark.parametrize("large", ["true", "false"])
def test_large_arrow_types_and_rows_above_a_batch_are_written_as_they_are(kit: Kit, large: str) -> None:
    """One Arrow batch of Spark's has more than max.message.bytes (8 MiB): it is cut."""
    topic = kit.topic()
    frame = numbers(kit, 1_500).select(f.concat("value", f.lit("-"), f.repeat(f.lit("x"), 8_000)).alias("value"))
    with setting(kit.spark, "spark.sql.execution.arrow.useLargeVarTypes", large):
        write(kit, frame.coalesce(1), topic)
    found = kit.read(subscribe=topic).select(f.split(f.col("value").cast("string"), "-")[0].cast("int").alias("n"))
    assert [row.n for row in found.collect()] == [*range(1_500)]


@proves("SPF.34", "SPK.4")
def test_times_are_written_as_moments_whatever_the_sessions_zone(kit: Kit) -> None:
    topic = kit.topic()
    frame = kit.spark.range(1).selectExpr("string(id) as value", "timestamp_millis(1700000000123) as timestamp")
    with setting(kit.spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        write(kit, frame, topic)
    [row] = kit.read(subscribe=topic).selectExpr("unix_millis(timestamp) as ms").collect()
    assert row.ms == 1_700_000_000_123


@proves("SPF.24")
def test_rows_read_and_written_are_counted(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(), kit.topic()
    kit.send(source, ["a", "b", "c"])
    frame = kit.read_stream(subscribe=source, startingOffsets="earliest").where("value != 'b'").select("value")
    writer = frame.writeStream.format("minilog").option("bootstrap.servers", kit.servers).option("topic", sink)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    finish(query)
    first = query.recentProgress[0]
    assert (first["numInputRows"], first["sink"]["numOutputRows"]) == (3, 2)


@proves("SPO.14")
def test_uncommitted_records_are_read_where_that_is_asked_for(kit: Kit) -> None:
    topic = kit.topic()
    settings = {"bootstrap.servers": kit.servers, "transactional.id": topic}
    with Producer(settings) as producer, producer.transaction():
        producer.send(topic, b"open").result(timeout=30)
        assert values(kit.read(subscribe=topic)) == []
        assert values(kit.read(subscribe=topic, minilog__isolation__level="read_uncommitted")) == ["open"]
    assert values(kit.read(subscribe=topic)) == ["open"]


@proves("SPL.7")
def test_a_query_passes_over_aborted_records_without_waiting_for_a_time_out(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    settings = {"bootstrap.servers": kit.servers, "transactional.id": topic}
    with Producer(settings) as producer:
        for _ in range(3):
            with contextlib.suppress(ZeroDivisionError), producer.transaction():
                producer.send(topic, b"never").result(timeout=30)
                raise ZeroDivisionError
    collected = Collected()
    frame = kit.read_stream(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=1, minilog__request__timeout__ms=60_000
    )
    began_s = time.monotonic()
    run_available(frame, collected, tmp_path)  # a batch for each of three records and three markers
    assert time.monotonic() - began_s < 30
    assert collected.values == []


def in_a_thread(action: Callable[[], None]) -> BaseException | None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@proves("SPC.4")
def test_a_python_thread_writes_once_its_session_is_the_active_one(kit: Kit) -> None:
    """The remedy of docs/guides/spark-operating.md; that it is needed is Spark's: the day it is not, this says so."""
    topic = kit.topic()
    frame = numbers(kit, 3)
    refusal = in_a_thread(lambda: write(kit, frame, topic))
    assert "DATA_SOURCE_NOT_FOUND" in str(refusal)

    def with_the_remedy() -> None:
        kit.spark.createDataFrame([], "nothing int")
        write(kit, frame, topic)

    assert in_a_thread(with_the_remedy) is None
    assert values(kit.read(subscribe=topic)) == ["0", "1", "2"]


@proves("SPF.27", "SPS.24")
def test_each_write_of_a_foreach_batch_is_exactly_once_under_its_own_name(kit: Kit, tmp_path: pathlib.Path) -> None:
    """What a task hears from Spark of query and batch is shared by all writes in the function, and not used."""
    source, upper, lower = kit.topic(), kit.topic(), kit.topic()
    kit.send(source, ["Ab", "Cd"])
    fails = [True]

    def take(batch: DataFrame, batch_id: int) -> None:
        for sink, text in ((upper, "upper"), (lower, "lower")):
            name = {"transactionalId": f"{sink}-{text}", "transactionVersion": batch_id}
            write(kit, batch.selectExpr(f"{text}(string(value)) as value"), sink, **name)
            if fails.pop() if fails else False:
                raise RuntimeError("the driver dies between the two writes")

    frame = kit.read_stream(subscribe=source, startingOffsets="earliest")
    with pytest.raises(PySparkException, match="dies between the two writes"):
        run_available(frame, take, tmp_path)
    run_available(frame, take, tmp_path)
    assert values(kit.read(subscribe=upper)) == ["AB", "CD"]
    assert values(kit.read(subscribe=lower)) == ["ab", "cd"]
