"""`observe(spark)`: what it says of real queries is what is in the topics."""

from __future__ import annotations

import logging
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame

import pyspark_minilog
from minilog import NewTopic, schema_from_ddl
from pyspark_minilog import Observation, observation
from pyspark_minilog.watching.behind import QueryBehind
from tests.rules import proves
from tests.spark.kit import Kit, wait_until

RECORDS = 120
PER_BATCH = 10


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def observed(kit: Kit, registry: CollectorRegistry) -> Iterator[Observation]:
    found = pyspark_minilog.observe(kit.spark, registry)
    yield found
    found.stop()


class Gate:
    """A foreachBatch that lets one batch through for each `open`."""

    def __init__(self) -> None:
        self._passes = threading.Semaphore(0)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        frame.count()
        assert self._passes.acquire(timeout=60)

    def open(self, batches: int = 1) -> None:
        self._passes.release(batches)


def known(observed: Observation, name: str) -> QueryBehind | None:
    return next((each for each in observed.queries() if each.name == name), None)


def after(observed: Observation, name: str, batch_id: int) -> QueryBehind:
    def is_there() -> bool:
        found = known(observed, name)
        return found is not None and found.batch_id is not None and found.batch_id >= batch_id

    wait_until(is_there, timeout_s=90.0)  # the first query of a JVM takes its time
    found = known(observed, name)
    assert found is not None
    return found


def aged(observed: Observation, gate: Gate, name: str) -> QueryBehind:
    """The numbers after the first batch at whose planning the age of what is left was known."""
    for batch_id in range(1, 9):
        time.sleep(1.5)  # the next one is planned, and the age of what it leaves is asked for
        gate.open()
        found = after(observed, name, batch_id)
        if found.seconds is not None:
            return found
    raise AssertionError(f"no age is known after eight batches: {found}")


@pytest.mark.long
@proves("SPF.18")
def test_a_query_that_lags_is_behind_by_what_is_in_the_topic(
    kit: Kit, observed: Observation, registry: CollectorRegistry, tmp_path: pathlib.Path
) -> None:
    topic, gate = kit.topic(2), Gate()
    written_ms = int(time.time() * 1000) - 3_600_000
    for partition in (0, 1):
        kit.send_timed(topic, [(f"{n:04}", written_ms + n) for n in range(RECORDS // 2)], partition)
    stream = kit.read_stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=PER_BATCH)
    writer = stream.writeStream.foreachBatch(gate).queryName("lagging")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    gate.open()
    first = after(observed, "lagging", 0)
    assert (first.records, first.records_read, first.batches) == (RECORDS - PER_BATCH, PER_BATCH, 1)
    assert first.bytes is not None
    assert first.is_active
    later = aged(observed, gate, "lagging")
    assert later.batch_id is not None
    assert later.records == RECORDS - (later.batch_id + 1) * PER_BATCH
    assert later.bytes is not None
    assert 0 < later.bytes < first.bytes
    assert later.seconds is not None
    assert 3_600 - 1 < later.seconds < 3_600 + 120
    [of_topic] = later.topics
    assert (of_topic.topic, of_topic.records) == (topic, later.records)
    labels = {"query": "lagging", "topic": topic}
    assert registry.get_sample_value("minilog_spark_records_behind", labels) == later.records
    assert registry.get_sample_value("minilog_spark_bytes_behind", labels) == later.bytes
    gate.open(RECORDS)
    query.processAllAvailable()
    last = after(observed, "lagging", RECORDS // PER_BATCH - 1)
    assert (last.records, last.bytes, last.seconds, last.records_read) == (0, 0, 0.0, RECORDS)


def test_a_query_of_rows_is_as_old_as_the_first_that_is_unread(
    kit: Kit, observed: Observation, tmp_path: pathlib.Path
) -> None:
    topic, gate = kit.new_name(), Gate()
    kit.admin.create_topics([NewTopic(topic, num_partitions=1, schema=schema_from_ddl("n bigint, t string"))])
    rows = kit.spark.range(300).selectExpr("id as n", "string(id) as t")
    rows.coalesce(1).write.format("minilog").mode("append").options(topic=topic, **servers(kit)).save()
    stream = kit.read_stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    stream.writeStream.foreachBatch(gate).queryName("rows").option("checkpointLocation", str(tmp_path)).start()
    gate.open()
    first = after(observed, "rows", 0)
    assert first.records == 300 - 30 + 1, "the marker of the write's transaction counts"
    later = aged(observed, gate, "rows")
    assert later.seconds is not None
    assert 1 < later.seconds < 300
    gate.open(300)


def servers(kit: Kit) -> dict[str, str]:
    return {"bootstrap.servers": kit.servers}


@proves("SPF.18")
def test_two_queries_one_that_fails_and_one_that_is_stopped(
    kit: Kit, observed: Observation, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    caplog.set_level(logging.INFO, logger=observation.__name__)
    good, bad, copy = kit.topic(), kit.topic(), kit.topic()
    kit.send(good, ["a", "b"])
    kit.send(bad, ["1", "x"])

    def fails(frame: DataFrame, batch_id: int) -> None:
        frame.count()
        assert batch_id == 0, "this batch fails on purpose"

    copying = kit.read_stream(subscribe=good, startingOffsets="earliest").select("value").writeStream.format("minilog")
    copying = copying.options(**servers(kit), topic=copy).queryName("copying")
    query = copying.option("checkpointLocation", str(tmp_path / "good")).start()
    failing = kit.read_stream(subscribe=bad, startingOffsets="earliest", maxOffsetsPerTrigger=1).writeStream
    broken = (
        failing.foreachBatch(fails).queryName("failing").option("checkpointLocation", str(tmp_path / "bad")).start()
    )
    wait_until(lambda: not broken.isActive)

    def has_ended(name: str) -> bool:
        found = known(observed, name)
        return found is not None and not found.is_active

    wait_until(lambda: has_ended("failing"))
    ended = known(observed, "failing")
    assert ended is not None
    assert (ended.records, ended.records_read) == (1, 1)
    assert ended.failure is not None
    assert "\n" not in ended.failure
    copied = after(observed, "copying", 0)
    assert (copied.records, copied.records_read, copied.records_written, copied.failure) == (0, 2, 2, None)
    assert query.isActive, "what one query does is no matter of another's"
    query.stop()
    wait_until(lambda: has_ended("copying"))
    stopped = known(observed, "copying")
    assert stopped is not None
    assert stopped.failure is None
    messages = [each.message for each in caplog.records]
    assert any(each.startswith("query copying: nothing behind; batch 0 took") for each in messages)
    assert any(each.startswith("query failing failed: ") for each in messages)


def test_an_observer_that_stopped_hears_nothing_more_and_may_begin_again(
    kit: Kit, registry: CollectorRegistry, tmp_path: pathlib.Path
) -> None:
    topic = kit.topic()
    former = pyspark_minilog.observe(kit.spark, registry, log=False)
    with pytest.raises(ValueError, match="Duplicated"):
        pyspark_minilog.observe(kit.spark, registry)
    former.stop()
    former.stop()
    assert list(registry.collect()) == []
    later = pyspark_minilog.observe(kit.spark, registry, log=False)
    kit.send(topic, ["a"])
    stream = kit.read_stream(subscribe=topic, startingOffsets="earliest").writeStream.format("noop").queryName("later")
    stream.option("checkpointLocation", str(tmp_path)).start()
    assert after(later, "later", 0).records == 0
    assert former.queries() == ()
    later.stop()
    assert len(later.queries()) == 1, "what was known stays"
