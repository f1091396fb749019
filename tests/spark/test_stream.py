"""readStream: each record once, over restarts, limits and new topics; and what is data loss."""

from __future__ import annotations

import json
import pathlib

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.rules import proves
from tests.spark.kit import Collected, Kit, finish, run_available, start, values, wait_until


@proves("SPO.21", "SPK.5")
def test_available_now_and_a_restart_read_each_record_once_by_what_the_checkpoint_holds(
    kit: Kit, tmp_path: pathlib.Path
) -> None:
    topic = kit.topic(partitions=2)
    kit.send(topic, ["a", "b"], partition=0)
    kit.send(topic, ["c"], partition=1)
    collected = Collected()
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest")
    run_available(frame, collected, tmp_path)
    assert collected.values == ["a", "b", "c"]
    written = json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[-1])
    assert written["__from"] == {topic: {"0": 0, "1": 0}}
    assert written[topic] == {"0": 2, "1": 1}
    assert written["__topic_ids"] == {topic: kit.admin.describe_topics([topic])[0].id}
    kit.send(topic, ["d", "e"], partition=1)
    run_available(frame, collected, tmp_path)
    run_available(frame, collected, tmp_path)
    assert collected.values == ["a", "b", "c", "d", "e"]


@proves("SPF.13")
def test_a_first_batch_from_latest_loses_nothing_when_it_is_replayed(kit: Kit, tmp_path: pathlib.Path) -> None:
    """Spark asks for the initial offset again when batch 0 is replayed, and "latest" has moved on by then."""
    topic = kit.topic()
    failed, collected = Collected(), Collected()

    def fail(frame: DataFrame, batch_id: int) -> None:
        failed(frame, batch_id)
        raise RuntimeError("this batch fails on purpose")

    frame = kit.read_stream(subscribe=topic)
    query = start(frame, fail, tmp_path)
    sent = 0
    while query.isActive:  # some before the query has found its first latest offset, some after it
        kit.send(topic, [f"{sent:05}"])
        sent += 1
    with pytest.raises(StreamingQueryException):
        finish(query)
    run_available(frame, collected, tmp_path)
    assert collected.batches[0] == failed.batches[0]
    first = int(collected.values[0])
    assert collected.values == [f"{number:05}" for number in range(first, sent)]


@proves("SPF.24")
def test_progress_reports_offsets_and_rows(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    query = (
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )
    finish(query)
    first = next(each for each in query.recentProgress if each["batchId"] == 0)
    assert first["numInputRows"] == 2
    assert json.loads(first["sources"][0]["latestOffset"])[topic] == {"0": 3}


@proves("SPG.1")
def test_available_now_ends_at_what_was_there_when_it_began(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    collected = Collected()

    def add_more(frame: object, batch_id: int) -> None:
        kit.send(topic, [f"late{batch_id}"])
        collected(frame, batch_id)  # type: ignore[arg-type]

    run_available(
        kit.read_stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=1), add_more, tmp_path
    )
    assert collected.values == ["a", "b"]


@proves("SPO.9")
def test_a_stream_cut_into_tasks_reads_each_offset_once(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, [f"{n:03}" for n in range(200)])
    collected = Collected()
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", minPartitions=5, maxRecordsPerPartition=30)
    run_available(frame, collected, tmp_path)
    assert collected.values == [f"{n:03}" for n in range(200)]


@proves("SPO.19")
def test_partitions_and_topics_that_come_while_it_runs_are_read_from_their_start(
    kit: Kit, tmp_path: pathlib.Path
) -> None:
    prefix = kit.topic()
    one = kit.topic(name=f"{prefix}.one")
    kit.send(one, ["0"])
    collected = Collected()
    frame = kit.read_stream(subscribePattern=f"{prefix}\\..*", startingOffsets=json.dumps({one: {"0": 0}}))
    query = start(frame, collected, tmp_path)
    wait_until(lambda: collected.values == ["0"])
    kit.admin.alter_topic(one, num_partitions=2)
    wait_until(lambda: len(kit.admin.describe_topics([one])[0].partitions) == 2)
    kit.send(one, ["a", "b"], partition=1)
    kit.send(kit.topic(name=f"{prefix}.two"), ["c"])
    wait_until(lambda: collected.values == ["0", "a", "b", "c"])
    kit.send(one, ["d"], partition=1)
    wait_until(lambda: collected.values == ["0", "a", "b", "c", "d"])
    query.stop()


@proves("SPL.1", "SPK.5")
def test_a_topic_created_again_while_it_runs_is_loss_or_read_from_its_start(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    strict, lenient = Collected(), Collected()
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    failing = start(kit.read_stream(**options), strict, tmp_path / "strict")
    going_on = start(kit.read_stream(**options, failOnDataLoss="false"), lenient, tmp_path / "lenient")
    wait_until(lambda: len(strict.values) == len(lenient.values) == 3)
    kit.delete(topic)
    with pytest.raises(StreamingQueryException, match=f"partition {topic}-0, read to offset 3, is not there any more"):
        finish(failing)
    kit.topic(name=topic)
    kit.send(topic, ["x", "y"])
    wait_until(lambda: lenient.values == ["a", "b", "c", "x", "y"])
    going_on.stop()


@proves("SPO.10")
def test_a_topic_created_again_is_read_from_its_start_without_fail_on_data_loss(
    kit: Kit, tmp_path: pathlib.Path
) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false")
    collected = Collected()
    run_available(frame, collected, tmp_path)
    kit.delete(topic)
    kit.topic(name=topic)
    kit.send(topic, ["x", "y", "z"])
    run_available(frame, collected, tmp_path)
    run_available(frame, collected, tmp_path)
    assert collected.values == ["a", "b", "x", "y", "z"]


@pytest.mark.long
@proves("SPL.2")
def test_offsets_name_the_topics_that_there_are_and_not_all_that_ever_were(kit: Kit, tmp_path: pathlib.Path) -> None:
    prefix = kit.topic()
    days = [kit.topic(name=f"{prefix}.day-{day}") for day in range(3)]
    collected = Collected()
    options = {"subscribePattern": f"{prefix}\\..*", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    for day in days:
        kit.send(day, [day])
    run_available(kit.read_stream(**options), collected, tmp_path)
    for day in days[:2]:
        kit.delete(day)
    kit.send(days[2], ["more"])
    run_available(kit.read_stream(**options), collected, tmp_path)
    last = max((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offset = json.loads(last.read_text().splitlines()[-1])
    assert {name for name in offset if not name.startswith("__")} == {days[2]} == set(offset["__topic_ids"])
    kit.topic(name=days[0])
    kit.send(days[0], ["again"])
    run_available(kit.read_stream(**options), collected, tmp_path)
    assert collected.values == sorted([*days, "more", "again"])


@proves("SPG.7", "SPS.5")
def test_a_complete_aggregate_is_appended(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(), kit.topic()
    kit.send(source, ["a", "a", "b"])
    counts = kit.read_stream(subscribe=source, startingOffsets="earliest").groupBy("value").count()
    writer = (
        counts.selectExpr("concat(string(value), '=', count) as value")
        .writeStream.format("minilog")
        .outputMode("complete")
    )
    writer = (
        writer.option("bootstrap.servers", kit.servers)
        .option("topic", sink)
        .option("checkpointLocation", str(tmp_path))
    )
    finish(writer.trigger(availableNow=True).start())
    assert values(kit.read(subscribe=sink)) == ["a=2", "b=1"]
