"""A checkpoint that was set back by exactly one batch is no replay: what differs from the batch that is committed is
refused, with both numbers, and never dropped in silence."""

from __future__ import annotations

import pathlib
import shutil
import uuid
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import pyspark_minilog
from tests.rules import proves
from tests.spark.kit import Kit, finish, forget_from, run_available, values

pytestmark = proves("SPS.13")


def copy(
    kit: Kit, source: str, sink: str, checkpoint: str, *, limit: int = 3, change: Any = None, **options: object
) -> None:
    """One AvailableNow run from topic to topic, of at most so many records a batch; raises what the query raises."""
    frame = kit.read_stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=limit).select("value")
    frame = frame if change is None else change(frame)
    writer: Any = frame.writeStream.format("minilog").option("bootstrap.servers", kit.servers)
    writer = writer.option("topic", sink) if sink else writer
    for name, value in options.items():
        writer = writer.option(name, str(value))
    finish(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start())


def set_back(checkpoint: pathlib.Path, last: int) -> None:
    """As if this batch had never been planned: an older copy of the checkpoint was restored, or its file deleted."""
    for folder in ("offsets", "commits"):
        forget_from(checkpoint, folder, last)


def at_random(frame: DataFrame) -> DataFrame:
    return frame.select(f.expr("uuid()").alias("value"))


def test_other_offsets_are_refused_and_a_replay_is_not_also_where_the_data_is_another_each_time(
    kit: Kit, tmp_path: pathlib.Path
) -> None:
    """The cap is shared in proportion to what waits: as many rows, of other partitions."""
    source, sink = kit.topic(partitions=2), kit.topic()
    for partition in range(2):
        kit.send(source, ["a", "b", "c", "d"], partition)
    copy(kit, source, sink, tmp_path.as_uri(), limit=4, change=at_random)
    written = values(kit.read(subscribe=sink))
    forget_from(tmp_path, "commits", 1)
    copy(kit, source, sink, tmp_path.as_uri(), limit=4, change=lambda frame: at_random(frame.repartition(4)))
    set_back(tmp_path, 1)
    kit.send(source, [str(number) for number in range(60)], partition=1)
    for _ in range(2):  # it stays so
        with pytest.raises(Exception, match=r"generation 1 of .* the 4 committed rows come from other offsets"):
            copy(kit, source, sink, tmp_path.as_uri(), limit=4)
    assert values(kit.read(subscribe=sink)) == written


def test_a_re_run_of_a_named_write_with_other_rows_is_refused_unless_it_is_not_to_be_checked(kit: Kit) -> None:
    topic = kit.topic()
    name = {"transactionalId": f"{topic}-daily", "topic": topic, "bootstrap.servers": kit.servers}

    def write(first: int, count: int = 5, **options: str) -> None:
        rows = kit.spark.range(first, first + count).select(f.col("id").cast("string").alias("value"))
        rows.write.format("minilog").mode("append").options(**name, **options).save()

    write(0)
    write(0)
    for count in (0, 6):
        with pytest.raises(Exception, match=f"has 5 rows, and this write has {count} rows.*checkReplay"):
            write(0, count)
    with pytest.raises(Exception, match="the 5 committed rows have other values than the rows of this write"):
        write(1)
    write(1, checkReplay="false")
    assert values(kit.read(subscribe=topic)) == list("01234")


class TestACheckpointThatTheSinkCannotRead:
    """It knows no offsets, so it compares the rows."""

    @pytest.fixture
    def checkpoint(self, kit: Kit, tmp_path: pathlib.Path) -> str:
        """The folder `query`, in a file system that only Spark's JVM has."""
        name, spark = uuid.uuid4().hex, cast("Any", kit.spark)
        spark.sparkContext._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./here", tmp_path.as_uri())
        return f"viewfs://{name}/here/query"

    def test_other_rows_are_refused_and_a_replay_is_not(
        self, kit: Kit, tmp_path: pathlib.Path, checkpoint: str
    ) -> None:
        source, sink = kit.topic(partitions=2), kit.topic()
        kit.send(source, ["a", "b", "c", "d"], partition=0)
        kit.send(source, ["e", "f", "g", "h"], partition=1)
        copy(kit, source, sink, checkpoint, limit=4)
        forget_from(tmp_path / "query", "commits", 1)
        copy(kit, source, sink, checkpoint, limit=4)
        set_back(tmp_path / "query", 1)
        kit.send(source, [str(number) for number in range(60)], partition=1)
        with pytest.raises(Exception, match=r"generation 1 of .* the 4 committed rows have other values"):
            copy(kit, source, sink, checkpoint, limit=4)
        assert values(kit.read(subscribe=sink)) == list("abcdefgh")

    @pytest.mark.long
    def test_a_block_has_its_checkpoint_read_by_spark(self, kit: Kit, tmp_path: pathlib.Path, checkpoint: str) -> None:
        source, query = kit.topic(partitions=2), InBatches(kit, in_block=True)
        query.skips = True
        kit.send(source, ["a", "b", "c", "d"], partition=0)
        kit.send(source, ["e", "f", "g", "h"], partition=1)
        query.run(source, checkpoint)
        forget_from(tmp_path / "query", "commits", 1)
        query.run(source, checkpoint)
        set_back(tmp_path / "query", 1)
        kit.send(source, [str(number) for number in range(60)], partition=1)
        with pytest.raises(Exception, match="the 4 committed rows come from other offsets"):
            query.run(source, checkpoint)
        assert values(kit.read(subscribe=query.sink)) == list("abcdefgh")


class TestAnotherTarget:
    """The batch is the same, and goes somewhere else: its rows are written, or refused."""

    def test_a_topic_that_was_made_anew_is_refused(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        source, sink = kit.topic(), kit.topic()

        def by_row(frame: DataFrame) -> DataFrame:
            return frame.withColumn("topic", f.lit(sink))

        kit.send(source, ["a", "b"])
        copy(kit, source, "", str(tmp_path), change=by_row)
        kit.delete(sink)
        kit.topic(name=sink)
        set_back(tmp_path, 0)
        with pytest.raises(Exception, match="the 2 committed rows went to other topics than the rows of this write"):
            copy(kit, source, "", str(tmp_path), change=by_row)
        assert values(kit.read(subscribe=sink)) == []

    @pytest.mark.long
    def test_a_copied_checkpoint_that_writes_to_another_topic_is_refused(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        source, sink, other = kit.topic(), kit.topic(), kit.topic()
        kit.send(source, ["a", "b"])
        copy(kit, source, sink, str(tmp_path / "first"))
        shutil.copytree(tmp_path / "first", tmp_path / "second")
        set_back(tmp_path / "second", 0)
        with pytest.raises(Exception, match=r"went to other topics .* begin with a new checkpoint at the offsets of"):
            copy(kit, source, other, str(tmp_path / "second"))
        assert values(kit.read(subscribe=other)) == []


class InBatches:
    """A query whose function writes each batch by itself, or in a block, under a name."""

    def __init__(self, kit: Kit, in_block: bool) -> None:
        self.kit, self.in_block = kit, in_block
        self.sink = kit.topic()
        self.skips = False
        self.options: dict[str, str] = {}

    def take(self, batch: DataFrame, batch_id: int) -> None:
        batch = batch.select("value")
        if not self.in_block:
            options = {"transactionalId": "job", "transactionVersion": str(batch_id), **self.options}
            self.write(batch, {"bootstrap.servers": self.kit.servers, **options})
            return
        servers = self.kit.servers
        name = f"{self.sink}-block"
        with pyspark_minilog.transaction(
            self.kit.spark, name, batch_id, bootstrap_servers=servers, **self.options
        ) as tx:
            if not (self.skips and tx.is_committed):
                self.write(batch, tx.options)

    def write(self, batch: DataFrame, options: dict[str, str]) -> None:
        batch.write.format("minilog").options(**options).option("topic", self.sink).mode("append").save()

    def run(self, source: str, checkpoint: pathlib.Path | str, limit: int = 4) -> None:
        frame = self.kit.read_stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        run_available(frame, self.take, checkpoint)


@pytest.mark.parametrize("in_block", [False, True])
class TestForeachBatch:
    def test_a_new_checkpoint_under_the_old_name_is_refused_and_a_replay_is_not(
        self, kit: Kit, tmp_path: pathlib.Path, in_block: bool
    ) -> None:
        source, query = kit.topic(), InBatches(kit, in_block)
        kit.send(source, ["a", "b"])
        query.run(source, tmp_path / "first")
        forget_from(tmp_path / "first", "commits", 0)
        query.run(source, tmp_path / "first")
        later = kit.topic()
        kit.send(later, ["c", "d"])
        for query.skips in (False, True):
            with pytest.raises(Exception, match=r"belong to another query.*one with a new checkpoint, uses the name"):
                query.run(later, tmp_path / "second")
        assert values(kit.read(subscribe=query.sink)) == ["a", "b"]

    @pytest.mark.long
    def test_as_many_rows_at_other_offsets_are_refused_where_the_checkpoint_is_known(
        self, kit: Kit, tmp_path: pathlib.Path, in_block: bool
    ) -> None:
        source, query = kit.topic(partitions=2), InBatches(kit, in_block)
        query.options = {} if in_block else {"checkpointLocation": str(tmp_path)}
        kit.send(source, ["a", "b", "c", "d"], partition=0)
        kit.send(source, ["e", "f", "g", "h"], partition=1)
        query.run(source, tmp_path)
        set_back(tmp_path, 1)
        kit.send(source, [str(number) for number in range(60)], partition=1)
        for query.skips in (False, True):
            with pytest.raises(Exception, match="the 4 committed rows come from other offsets"):
                query.run(source, tmp_path)
        assert values(kit.read(subscribe=query.sink)) == list("abcdefgh")
