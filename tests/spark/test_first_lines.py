"""What we refuse is the first line of Spark's error, in whichever of its processes; of a task's it is the second."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from minilog import TopicPartition
from tests.rules import proves
from tests.spark.kit import Kit, finish

pytestmark = proves("SPF.3")

IN_A_TASK = "An exception was thrown from the Python worker:"  # Spark's own first line of what a task raised


def first_line(action: Callable[[], object]) -> str:
    with pytest.raises(Exception, match="minilog") as refusal:
        action()
    first, second, *_ = [*str(refusal.value).splitlines(), ""]
    return second if first.endswith(IN_A_TASK) else first


def rows(kit: Kit, count: int = 1) -> DataFrame:
    return kit.spark.range(count).selectExpr("string(id) AS value")


def write(kit: Kit, frame: DataFrame, **options: str) -> None:
    writer = frame.write.format("minilog").mode("append").option("bootstrap.servers", kit.servers)
    writer.options(**options).save()


def stream(kit: Kit, frame: DataFrame, checkpoint: pathlib.Path, **options: str) -> None:
    writer = frame.writeStream.format("minilog").option("bootstrap.servers", kit.servers)
    finish(writer.options(checkpointLocation=str(checkpoint), **options).trigger(availableNow=True).start())


def null_topic(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("value", "CAST(NULL AS STRING) AS topic")


def test_options_and_plans_of_a_batch(kit: Kit) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    assert "InvalidOption: the source of this minilog version has no option 'minpartition'" in first_line(
        lambda: kit.read(subscribe=topic, minPartition=2)
    )
    assert "InvalidOption: option 'startingOffsets' is 'latest'" in first_line(
        lambda: kit.read(subscribe=topic, startingOffsets="latest").count()
    )
    assert "InvalidOption: option 'subscribe' is 'no-such-topic'" in first_line(
        lambda: kit.read(subscribe="no-such-topic").count()
    )


def test_options_and_plans_of_a_stream(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a"])
    ends = kit.read_stream(subscribe=topic, endingOffsets="latest").select("value")
    assert "option 'endingOffsets' is 'latest'" in first_line(lambda: stream(kit, ends, tmp_path / "1", topic=topic))
    nothing = kit.read_stream(subscribe="no-such-topic").select("value")
    assert "option 'subscribe' is 'no-such-topic'" in first_line(
        lambda: stream(kit, nothing, tmp_path / "2", topic=topic)
    )


def test_tasks_that_read(kit: Kit) -> None:
    """The range is planned at the first action, and is gone at the second."""
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    frame = kit.read(subscribe=topic)
    assert frame.count() == 3
    kit.admin.delete_records({TopicPartition(topic, 0): 2})
    assert "DataLoss: data was lost: " in first_line(frame.collect)


def test_options_and_tasks_that_write(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a"])
    source = kit.read_stream(subscribe=topic, startingOffsets="earliest").select("value")
    assert "InvalidOption: the sink of this minilog version has no option 'topi'" in first_line(
        lambda: write(kit, rows(kit), topi="t")
    )
    assert "InvalidOption: column 'topic' is null" in first_line(lambda: write(kit, null_topic(rows(kit))))
    assert "option 'transactionalId' is 'x'" in first_line(
        lambda: stream(kit, source, tmp_path / "1", topic=topic, transactionalId="x")
    )
    assert "InvalidOption: column 'topic' is null" in first_line(
        lambda: stream(kit, null_topic(source), tmp_path / "2")
    )


def test_commits_and_what_the_coordinator_says(kit: Kit) -> None:
    topic = kit.topic()
    named = {"topic": topic, "transactionalId": f"{topic}-daily"}
    write(kit, rows(kit), **named, transactionVersion="3")
    assert "NotAReplay: generation 3 of" in first_line(
        lambda: write(kit, rows(kit, 2), **named, transactionVersion="3")
    )
    assert "StaleGeneration: " in first_line(lambda: write(kit, rows(kit), **named, transactionVersion="2"))
