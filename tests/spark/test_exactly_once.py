"""The sink writes exactly once (docs/spec/connector.md § 6): streams by query and batch, `df.write` by its options."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from minilog.errors import TransactionalIdNotFound
from tests.rules import proves
from tests.spark.kit import Kit, finish, forget_from, values, wait_until


def rows(kit: Kit, count: int, *, partitions: int = 2) -> DataFrame:
    return kit.spark.range(0, count, 1, partitions).select(f.col("id").cast("string").alias("value"))


def failing_at(frame: DataFrame, value: str) -> DataFrame:
    """Fails in the task that comes to `value`."""
    return frame.select(
        f.when(f.col("value") == value, f.raise_error(f.lit("this row fails on purpose")))
        .otherwise(f.col("value"))
        .alias("value")
    )


def held_up(kit: Kit, topic: str) -> bool:
    """Whether a transaction is open that wrote to the topic."""
    (found,) = kit.admin.describe_topics([topic])
    return any(each.last_stable_offset != each.high_watermark for each in found.partitions)


def write(kit: Kit, frame: DataFrame, topic: str, **options: object) -> None:
    writer = frame.write.format("minilog").mode("append").option("bootstrap.servers", kit.servers)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.option("topic", topic).save()


def run(kit: Kit, source: str, sink: str, checkpoint: pathlib.Path, **options: object) -> StreamingQuery:
    """One AvailableNow run from topic to topic, one record a batch; raises what the query raises."""
    frame = kit.read_stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=1).select("value")
    writer: Any = frame.writeStream.format("minilog").option("bootstrap.servers", kit.servers).option("topic", sink)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    query: StreamingQuery = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    finish(query)
    return query


def committed(kit: Kit, transactional_id: str) -> int | None:
    return kit.admin.describe_transaction(transactional_id).listing.last_committed_generation


class TestStreams:
    @proves("SPF.26", "SPS.10", "SPS.11", "SPS.12")
    def test_a_generation_is_committed_once_replayed_without_effect_and_never_followed_by_an_older_one(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        source, sink = kit.topic(), kit.topic(partitions=2)
        kit.send(source, ["a", "b", "c"])
        query = run(kit, source, sink, tmp_path)
        assert values(kit.read(subscribe=sink)) == ["a", "b", "c"]
        assert committed(kit, f"spark-{query.id}") == 2
        forget_from(tmp_path, "commits", 2)
        kit.send(source, ["d"])
        query = run(kit, source, sink, tmp_path)
        assert values(kit.read(subscribe=sink)) == ["a", "b", "c", "d"]
        assert committed(kit, f"spark-{query.id}") == 3
        for folder in ("offsets", "commits"):
            forget_from(tmp_path, folder, 1)
        with pytest.raises(Exception, match="generation 1 is asked for, 3 is committed"):
            run(kit, source, sink, tmp_path)
        assert values(kit.read(subscribe=sink)) == ["a", "b", "c", "d"]

    @pytest.mark.long
    @proves("SPS.9")
    def test_a_replayed_batch_of_a_stream_without_exactly_once_writes_again(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        source, sink = kit.topic(), kit.topic()
        kit.send(source, ["a", "b"])
        query = run(kit, source, sink, tmp_path, exactlyOnce=False)
        forget_from(tmp_path, "commits", 1)
        run(kit, source, sink, tmp_path, exactlyOnce=False)
        assert values(kit.read(subscribe=sink)) == ["a", "b", "b"]
        with pytest.raises(TransactionalIdNotFound):
            kit.admin.describe_transaction(f"spark-{query.id}")

    @pytest.mark.long
    @proves("SPF.30")
    def test_a_query_that_is_stopped_in_a_batch_holds_nobody_up(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        """All of its tasks are killed and report nothing: the driver finds the attempt by itself."""
        source, sink = kit.topic(partitions=2), kit.topic(partitions=2)
        write(kit, rows(kit, 100), source)
        kit.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")  # a task gets each row (64 KiB) at once
        slow = kit.read_stream(subscribe=source, startingOffsets="earliest").selectExpr(
            "repeat(string(value), 70000) AS value", "java_method('java.lang.Thread', 'sleep', 200L) AS ignored"
        )
        writer = slow.writeStream.format("minilog").options(**{"bootstrap.servers": kit.servers, "topic": sink})
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        kit.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        wait_until(lambda: held_up(kit, sink))
        query.stop()
        assert kit.admin.describe_transaction(f"spark-{query.id}").listing.state != "open"
        write(kit, rows(kit, 3), sink)
        assert values(kit.read(subscribe=sink)) == ["0", "1", "2"]

    @proves("SPF.10")
    def test_a_stream_has_no_name_of_the_users(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        source, sink = kit.topic(), kit.topic()
        kit.send(source, ["a"])
        with pytest.raises(Exception, match="option 'transactionalId' is 'mine': the checkpoint names the stream"):
            run(kit, source, sink, tmp_path, transactionalId="mine")


class TestBatches:
    @proves("SPS.8", "SPS.24")
    def test_all_rows_are_visible_when_save_has_returned_and_again_after_a_re_run_without_a_name(
        self, kit: Kit
    ) -> None:
        topic = kit.topic(partitions=3)
        for count in (100, 200):
            write(kit, rows(kit, 100), topic)
            assert len(values(kit.read(subscribe=topic))) == count

    @proves("SPS.8", "SPS.17")
    def test_a_write_with_a_failed_task_shows_no_row_and_holds_no_reader_up(self, kit: Kit) -> None:
        topic = kit.topic(partitions=3)
        with pytest.raises(Exception, match="this row fails on purpose"):
            write(kit, failing_at(rows(kit, 100), "99"), topic)
        assert values(kit.read(subscribe=topic)) == []
        write(kit, rows(kit, 3), topic)
        assert values(kit.read(subscribe=topic)) == ["0", "1", "2"]

    @proves("SPS.24", "SPS.12")
    def test_a_re_run_of_a_named_and_counted_write_writes_nothing_and_a_lower_version_is_refused(
        self, kit: Kit
    ) -> None:
        topic = kit.topic()
        for _ in range(2):
            write(kit, rows(kit, 5), topic, transactionalId=f"{topic}-daily", transactionVersion=3)
        assert len(values(kit.read(subscribe=topic))) == 5
        with pytest.raises(Exception, match="generation 2 is asked for, 3 is committed"):
            write(kit, rows(kit, 5), topic, transactionalId=f"{topic}-daily", transactionVersion=2)

    @proves("SPS.22")
    def test_writes_of_one_name_and_version_to_several_topics_are_each_written_once(self, kit: Kit) -> None:
        """Delta's idiom for several tables in a foreachBatch, and its replay."""
        first, second = kit.topic(), kit.topic()
        for _ in range(2):
            for topic in (first, second):
                write(kit, rows(kit, 5), topic, transactionalId=f"{first}-job", transactionVersion=0)
        assert [len(values(kit.read(subscribe=topic))) for topic in (first, second)] == [5, 5]
        assert committed(kit, f"{first}-job:{second}") == 0

    @proves("SPS.13")
    def test_another_write_under_a_used_version_is_refused_though_it_has_as_many_rows(self, kit: Kit) -> None:
        one, other = kit.topic(), kit.topic()
        name = {"transactionalId": f"{one}-job", "transactionVersion": "0"}

        def write_by_column(topic: str) -> None:
            writer = rows(kit, 5).selectExpr("value", f"'{topic}' AS topic").write.format("minilog").mode("append")
            writer.options(**{"bootstrap.servers": kit.servers}, **name).save()

        write_by_column(one)
        write_by_column(one)
        with pytest.raises(Exception, match="the 5 committed rows went to other topics than the rows of this write"):
            write_by_column(other)
        write(kit, rows(kit, 5), one, **name)  # by the option it is a write of its own
        with pytest.raises(Exception, match="the 5 committed rows have other columns than the rows of this write"):
            write(kit, rows(kit, 5).selectExpr("value", "value AS key"), one, **name)
        kit.delete(one)
        kit.topic(name=one)
        with pytest.raises(Exception, match="the 5 committed rows went to other topics than the rows of this write"):
            write(kit, rows(kit, 5), one, **name)
        assert [values(kit.read(subscribe=topic)) for topic in (one, other)] == [[], []]

    @proves("SPS.24")
    def test_a_foreach_batch_is_exactly_once_by_its_batch_id(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        source, sink = kit.topic(), kit.topic()
        kit.send(source, ["a", "b"])

        def take(frame: DataFrame, batch_id: int) -> None:
            name = {"transactionalId": f"{sink}-each", "transactionVersion": batch_id}
            write(kit, frame.select("value"), sink, **name)

        for _ in range(2):
            frame = kit.read_stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=1)
            each = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
            finish(each.trigger(availableNow=True).start())
            forget_from(tmp_path, "commits", 1)
        assert values(kit.read(subscribe=sink)) == ["a", "b"]

    @proves("SPF.32")
    def test_a_write_without_rows_leaves_nothing_open(self, kit: Kit) -> None:
        topic = kit.topic()
        write(kit, rows(kit, 0), topic, transactionalId=f"{topic}-empty")
        assert kit.admin.describe_transaction(f"{topic}-empty:{topic}").listing.state == "idle"

    @proves("SPS.9")
    def test_a_write_without_exactly_once_writes_its_rows(self, kit: Kit) -> None:
        topic = kit.topic(partitions=2)
        write(kit, rows(kit, 20), topic, exactlyOnce=False)
        assert len(values(kit.read(subscribe=topic))) == 20
