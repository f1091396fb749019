"""Queries of several sources, with state, and of several sinks: each record counts once, over restarts."""

from __future__ import annotations

import pathlib

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tests.rules import proves
from tests.spark.kit import Kit, finish, run_available, values

BEGUN_MS = 1_700_000_000_000


def texts(frame: DataFrame, name: str = "value") -> DataFrame:
    """The value as text, and the timestamp."""
    return frame.select(f.col("value").cast("string").alias(name), "timestamp")


def write_available(
    kit: Kit, frame: DataFrame, topic: str, checkpoint: pathlib.Path, mode: str = "append"
) -> dict[str, int]:
    """One AvailableNow run into a topic to its end; rows by micro-batch, as Spark reports them of the sink."""
    writer = frame.writeStream.format("minilog").option("bootstrap.servers", kit.servers).option("topic", topic)
    query = writer.outputMode(mode).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    finish(query)
    return {each["batchId"]: each["sink"]["numOutputRows"] for each in query.recentProgress}


def forget_last_commit(checkpoint: pathlib.Path) -> None:
    """As if the driver had died after the sink's commit and before its own."""
    commits = checkpoint / "commits"
    last = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.long
@proves("SPG.4")
def test_a_union_of_two_topics_is_written_once_over_a_restart(kit: Kit, tmp_path: pathlib.Path) -> None:
    one, other, sink = kit.topic(), kit.topic(), kit.topic(partitions=2)
    kit.send(one, ["a0", "a1"])
    kit.send(other, ["b0"])
    frames = [kit.read_stream(subscribe=topic, startingOffsets="earliest").select("value") for topic in (one, other)]
    united = frames[0].union(frames[1])
    write_available(kit, united, sink, tmp_path)
    forget_last_commit(tmp_path)
    kit.send(other, ["b1", "b2"])
    write_available(kit, united, sink, tmp_path)
    kit.send(one, ["a2"])
    write_available(kit, united, sink, tmp_path)
    assert values(kit.read(subscribe=sink)) == ["a0", "a1", "a2", "b0", "b1", "b2"]


@pytest.mark.long
@proves("SPG.5")
def test_a_self_join_reads_each_record_once_on_either_side(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic(partitions=2)
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    left, right = texts(frame, "one"), texts(frame, "other")
    pairs = left.join(right, left.one == right.other).select(f.concat("one", f.lit("+"), "other").alias("value"))
    found: list[str] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(row.value for row in batch.collect())

    kit.send(topic, ["a", "b", "c", "d"], partition=0)
    run_available(pairs, take, tmp_path)
    kit.send(topic, ["a", "e"], partition=1)
    run_available(pairs, take, tmp_path)
    assert sorted(found) == sorted(["a+a"] * 4 + ["b+b", "c+c", "d+d", "e+e"])


@pytest.mark.long
@proves("SPG.6")
def test_a_stream_stream_join_finds_its_pairs_over_a_restart(kit: Kit, tmp_path: pathlib.Path) -> None:
    asked, answered, sink = kit.topic(), kit.topic(), kit.topic()
    questions = texts(kit.read_stream(subscribe=asked, startingOffsets="earliest"), "question").alias("q")
    answers = texts(kit.read_stream(subscribe=answered, startingOffsets="earliest"), "answer").alias("a")
    within = f.expr("question = answer AND a.timestamp BETWEEN q.timestamp AND q.timestamp + INTERVAL 10 seconds")
    pairs = (
        questions.withWatermark("timestamp", "1 minute")
        .join(answers.withWatermark("timestamp", "1 minute"), within, "inner")
        .select(f.col("question").alias("value"))
    )
    kit.send_timed(asked, [("a", BEGUN_MS), ("b", BEGUN_MS), ("c", BEGUN_MS)])
    kit.send_timed(answered, [("a", BEGUN_MS + 1_000)])
    write_available(kit, pairs, sink, tmp_path)
    assert values(kit.read(subscribe=sink)) == ["a"]
    forget_last_commit(tmp_path)
    kit.send_timed(answered, [("b", BEGUN_MS + 9_000), ("c", BEGUN_MS + 11_000)])
    write_available(kit, pairs, sink, tmp_path)
    assert values(kit.read(subscribe=sink)) == ["a", "b"], "the state of a came back, what was paired is not again"


@proves("SPF.33", "SPG.7")
def test_the_state_of_a_batch_that_is_replayed_after_its_commit_is_kept(kit: Kit, tmp_path: pathlib.Path) -> None:
    """A task that is told "committed" writes nothing, and drains its input: Spark keeps the state when that has ended.

    (Spark 4.3 ends it itself where a task does not, which nothing promises.) The rows are more than the sockets between
    Spark and its Python worker hold, and each is an Arrow batch of its own.
    """
    source, sink = kit.topic(partitions=2), kit.topic()
    frame = texts(kit.read_stream(subscribe=source, startingOffsets="earliest"))
    distinct = frame.dropDuplicates(["value"]).select("value")
    words = [f"{number} {'x' * 150_000}" for number in range(121)]
    kit.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    try:
        kit.send(source, ["first"])
        write_available(kit, distinct, sink, tmp_path)
        kit.send(source, words[:120])
        write_available(kit, distinct, sink, tmp_path)
        forget_last_commit(tmp_path)
        for state in (tmp_path / "state").glob("*/*/2.*"):
            state.unlink()
        kit.send(source, words, partition=1)
        write_available(kit, distinct, sink, tmp_path)
    finally:
        kit.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert values(kit.read(subscribe=sink)) == sorted(["first", *words])


@pytest.mark.long
@proves("SPG.7")
def test_duplicates_are_dropped_over_a_restart(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(partitions=2), kit.topic()
    frame = texts(kit.read_stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=2))
    distinct = frame.dropDuplicates(["value"]).select("value")
    kit.send(source, ["a", "b", "a"], partition=0)
    write_available(kit, distinct, sink, tmp_path)
    forget_last_commit(tmp_path)
    kit.send(source, ["b", "c"], partition=1)
    write_available(kit, distinct, sink, tmp_path)
    assert values(kit.read(subscribe=sink)) == ["a", "b", "c"]
