"""A checkpoint that was set back by exactly one batch is no replay: what differs from the batch that is committed is
refused, with both numbers, and never dropped in silence."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tests.spark.kit import Kit, finish, forget_from, values


def copy(
    kit: Kit, source: str, sink: str, checkpoint: str, *, limit: int = 3, change: Any = None, **options: object
) -> None:
    """One AvailableNow run from topic to topic, of at most so many records a batch; raises what the query raises."""
    frame = kit.read_stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=limit).select("value")
    frame = frame if change is None else change(frame)
    writer: Any = frame.writeStream.format("minilog").option("bootstrap.servers", kit.servers).option("topic", sink)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    finish(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())


def set_back(checkpoint: pathlib.Path, last: int) -> None:
    """As if this batch had never been planned: an older copy of the checkpoint was restored, or its file deleted."""
    for folder in ("offsets", "commits"):
        forget_from(checkpoint, folder, last)


def test_one_whose_topic_has_grown_is_refused_with_both_numbers(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(), kit.topic()
    kit.send(source, ["a", "b", "c", "d"])
    copy(kit, source, sink, str(tmp_path))
    set_back(tmp_path, 1)
    kit.send(source, ["new"])
    for _ in range(2):  # it stays so
        with pytest.raises(Exception, match=r"generation 1 of .* has 1 rows, and this write has 2 rows"):
            copy(kit, source, sink, str(tmp_path))
    assert values(kit.read(subscribe=sink)) == ["a", "b", "c", "d"]


@pytest.mark.long
def test_so_is_one_of_as_many_rows_at_other_offsets(kit: Kit, tmp_path: pathlib.Path) -> None:
    """The cap is shared in proportion to what waits: as many rows, of other partitions."""
    source, sink = kit.topic(partitions=2), kit.topic()
    kit.send(source, ["a", "b", "c", "d"], partition=0)
    kit.send(source, ["e", "f", "g", "h"], partition=1)
    copy(kit, source, sink, tmp_path.as_uri(), limit=4)
    set_back(tmp_path, 1)
    kit.send(source, [str(number) for number in range(60)], partition=1)
    with pytest.raises(Exception, match=r"generation 1 of .* the 4 committed rows come from other offsets"):
        copy(kit, source, sink, tmp_path.as_uri(), limit=4)
    assert values(kit.read(subscribe=sink)) == list("abcdefgh")


def test_an_honest_replay_is_none_also_where_the_data_is_another_each_time(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(partitions=2), kit.topic()
    kit.send(source, ["a", "b"], partition=0)
    kit.send(source, ["c", "d"], partition=1)

    def at_random(frame: DataFrame) -> DataFrame:
        return frame.select(f.expr("uuid()").alias("value"))

    copy(kit, source, sink, str(tmp_path), change=at_random)
    written = values(kit.read(subscribe=sink))
    forget_from(tmp_path, "commits", 1)
    kit.send(source, ["e"])
    copy(kit, source, sink, str(tmp_path), change=lambda frame: at_random(frame.repartition(4)))
    after = values(kit.read(subscribe=sink))
    assert set(written) <= set(after)
    assert len(after) == len(written) + 1


def test_a_query_whose_rows_are_not_as_many_each_time_may_say_so(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(), kit.topic()
    kit.send(source, ["a", "b"])
    copy(kit, source, sink, str(tmp_path))
    forget_from(tmp_path, "commits", 0)

    def twice(frame: DataFrame) -> DataFrame:
        return frame.select(f.expr("explode(array(value, value))").alias("value"))

    with pytest.raises(Exception, match=r"has 2 rows, and this write has 4 rows.*checkReplay"):
        copy(kit, source, sink, str(tmp_path), change=twice)
    copy(kit, source, sink, str(tmp_path), checkReplay=False, change=twice)
    assert values(kit.read(subscribe=sink)) == ["a", "b"]


def test_a_re_run_of_a_named_write_with_other_rows_is_refused(kit: Kit) -> None:
    topic = kit.topic()
    name = {"transactionalId": f"{topic}-daily", "transactionVersion": "3", "topic": topic}

    def write(count: int) -> None:
        rows = kit.spark.range(count).select(f.col("id").cast("string").alias("value"))
        rows.write.format("minilog").mode("append").options(**name, **{"bootstrap.servers": kit.servers}).save()

    write(5)
    write(5)
    for count in (0, 6):
        with pytest.raises(Exception, match=f"has 5 rows, and this write has {count} rows"):
            write(count)
    assert len(values(kit.read(subscribe=topic))) == 5
