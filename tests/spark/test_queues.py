"""A queue as the source of a stream, and the minilog sink that settles it, with the real Spark."""

from __future__ import annotations

import pathlib

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from minilog.types import QueueDescription
from tests.rules import proves
from tests.spark.kit import Collected, Kit, failing_at, finish, run_available, values, wait_until

PARTITIONS = 3
LOCK = "group.share.record.lock.duration.ms"


def start_settling(kit: Kit, frame: DataFrame, sink: str, queue: str, checkpoint: pathlib.Path) -> StreamingQuery:
    """A copy of the queue's messages, as far as there are any now."""
    writer = frame.select("value").writeStream.format("minilog").option("bootstrap.servers", kit.servers)
    writer = writer.option("topic", sink).option("settleQueue", queue).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def unsettled(description: QueueDescription) -> int:
    return sum((place.backlog or 0) + sum(part.count for part in place.ranges) for place in description.partitions)


@proves("SPQ.2")
def test_each_message_has_its_row_once_over_all_runs_of_a_query(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink, queue = kit.topic(PARTITIONS), kit.topic(2), kit.new_name()
    sent: list[str] = []
    for run in ("one", "two"):
        for partition in range(PARTITIONS):
            news = [f"{run}-{partition}-{number}" for number in range(50)]
            kit.send(source, news, partition)
            sent += news
        frame = kit.read_stream(subscribe=source, queue=queue, maxOffsetsPerTrigger=100)
        query = start_settling(kit, frame, sink, queue, tmp_path / "checkpoint")
        finish(query)
        assert sum(progress.numInputRows for progress in query.recentProgress) == 150
        assert values(kit.read(subscribe=sink)) == sorted(sent)
        assert unsettled(kit.admin.describe_queue(queue)) == 0


def named(kit: Kit, name: str, **options: str) -> DataFrame:
    reader = kit.spark.readStream.format("minilog").option("bootstrap.servers", kit.servers)
    return reader.options(**options).name(name).load()


@pytest.mark.long
@proves("SPQ.3")
def test_sources_with_names_settle_too(kit: Kit, tmp_path: pathlib.Path) -> None:
    """Spark writes the second form of its offset log for them, as with offsetLog.formatVersion=2."""
    source, other, sink, queue = kit.topic(PARTITIONS), kit.topic(), kit.topic(2), kit.new_name()
    option = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    kit.spark.conf.set(option, "true")
    try:
        for run in ("one", "two"):
            kit.send(source, [f"{run}-{number}" for number in range(40)])
            kit.send(other, [f"{run}-other"])
            leased = named(kit, "orders", subscribe=source, queue=queue)
            read = named(kit, "others", subscribe=other, startingOffsets="earliest")
            finish(start_settling(kit, leased.union(read), sink, queue, tmp_path / "checkpoint"))
            assert (tmp_path / "checkpoint" / "offsets" / "0").read_text().startswith("v2")
    finally:
        kit.spark.conf.set(option, "false")
    expected = [f"{run}-{number}" for run in ("one", "two") for number in (*range(40), "other")]
    assert values(kit.read(subscribe=sink)) == sorted(expected)
    assert unsettled(kit.admin.describe_queue(queue)) == 0


@pytest.mark.long
@proves("SPQ.4", "SPQ.9")
def test_a_failed_batch_of_another_sink_reads_nothing_after_its_lock_and_the_next_one_has_its_messages(
    kit: Kit, tmp_path: pathlib.Path
) -> None:
    source, queue, checkpoint = kit.topic(PARTITIONS), kit.new_name(), tmp_path / "checkpoint"
    kit.send(source, [str(number) for number in range(30)])
    frame = kit.read_stream(subscribe=source, queue=queue)
    collected = Collected()
    kit.admin.alter_queue(queue, set={LOCK: "1000"})
    with pytest.raises(StreamingQueryException):
        run_available(frame, failing_at(0, collected), checkpoint)
    assert len(collected.batches[0]) == 30
    wait_until(lambda: is_free(kit.admin.describe_queue(queue)))  # the process with its locks has gone
    kit.admin.alter_queue(queue, set={LOCK: "60000"})
    run_available(frame, collected, checkpoint)
    assert collected.batches[0] == []
    assert collected.values == sorted(str(number) for number in range(30))
    assert unsettled(kit.admin.describe_queue(queue)) == 0


def is_free(description: QueueDescription) -> bool:
    return all(part.state == "ready" for place in description.partitions for part in place.ranges)
