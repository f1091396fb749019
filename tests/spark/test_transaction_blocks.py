"""One commit for several writes of a foreachBatch (docs/spec/connector.md § 6.7), with the real Spark."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import pyspark_minilog
from minilog import TopicPartition
from minilog.errors import ProducerFenced
from pyspark_minilog import TransactionBlock
from pyspark_minilog.errors import InconsistentWrite, NotAReplay
from tests.rules import proves
from tests.spark import block_driver
from tests.spark.kit import Kit, forget_from, run_available, values

VALUES = [f"value {number}" for number in range(4)]


def block(kit: Kit, name: str, batch_id: int = 0, **options: bool) -> TransactionBlock:
    return pyspark_minilog.transaction(kit.spark, name, batch_id, bootstrap_servers=kit.servers, **options)


def rows(kit: Kit, count: int = 4) -> DataFrame:
    return kit.spark.range(0, count, 1, 2).select(f.col("id").cast("string").alias("value"))


def write(frame: DataFrame, topic: str, options: Mapping[str, str]) -> None:
    frame.select("value").write.format("minilog").options(**options).option("topic", topic).mode("append").save()


def copy_in_block(kit: Kit, frame: DataFrame, name: str, topic: str, **options: bool) -> None:
    with block(kit, name, **options) as tx:
        write(frame, topic, tx.options)


def held_up(kit: Kit, topic: str) -> bool:
    (found,) = kit.admin.describe_topics([topic])
    return any(partition.last_stable_offset != partition.high_watermark for partition in found.partitions)


def offsets(kit: Kit, group: str) -> dict[str, int]:
    return {place.topic: place.offset for place in kit.admin.describe_group(group).offsets}


class TestBlocks:
    @proves("SPS.25", "SPS.27")
    def test_two_writes_to_one_topic_are_one_transaction_and_one_behind_the_block_is_refused(self, kit: Kit) -> None:
        topic = kit.topic(partitions=2)
        with block(kit, topic) as tx:
            for _ in range(2):
                write(rows(kit), topic, tx.options)
                assert values(kit.read(subscribe=topic)) == []
        assert values(kit.read(subscribe=topic)) == sorted([*"0123"] * 2)
        with pytest.raises(PySparkException, match=r"no block of pyspark_minilog\.transaction is open there"):
            write(rows(kit), topic, tx.options)
        assert not pathlib.Path(tx.options["transaction"]).exists()

    @proves("SPS.26")
    def test_other_rows_under_a_committed_number_are_refused(self, kit: Kit) -> None:
        topic, other = kit.topic(), kit.topic()
        copy_in_block(kit, rows(kit), topic, topic)
        for frame, target in ((rows(kit, 5), topic), (rows(kit), other)):
            with pytest.raises(NotAReplay, match=r"another block of pyspark_minilog\.transaction has the same name"):
                copy_in_block(kit, frame, topic, target)
        copy_in_block(kit, rows(kit, 5), topic, topic, checkReplay=False)
        assert [values(kit.read(subscribe=each)) for each in (topic, other)] == [[*"0123"], []]

    @proves("SPS.27")
    def test_a_write_that_failed_is_not_left_out(self, kit: Kit) -> None:
        topic = kit.topic()
        failing = rows(kit).select(
            f.when(f.col("value") == "3", f.raise_error(f.lit("no"))).otherwise("a").alias("value")
        )
        for frame in (failing, rows(kit).selectExpr("1 AS value")):  # in a task, and before any task
            tx = block(kit, topic).__enter__()
            with pytest.raises(PySparkException):
                write(frame, topic, tx.options)
            write(rows(kit), topic, tx.options)
            with pytest.raises(InconsistentWrite, match="has 2 writes, and number 1 of them failed, or is not over"):
                tx.__exit__(None, None, None)
        assert values(kit.read(subscribe=topic)) == []
        assert not held_up(kit, topic)

    @proves("SPS.27")
    def test_an_older_driver_commits_nothing(self, kit: Kit) -> None:
        topic = kit.topic()
        older = block(kit, topic).__enter__()
        write(rows(kit), topic, older.options)
        newer = block(kit, topic).__enter__()
        with pytest.raises(ProducerFenced):
            older.__exit__(None, None, None)
        write(rows(kit, 2), topic, newer.options)
        newer.__exit__(None, None, None)
        assert values(kit.read(subscribe=topic)) == ["0", "1"]

    @proves("SPS.25")
    def test_a_block_without_rows_commits_its_offsets(self, kit: Kit) -> None:
        topic = kit.topic()
        with block(kit, topic, 5) as tx:
            write(rows(kit, 0), topic, tx.options)
            tx.commit_offsets(topic, {TopicPartition(topic, 0): 7})
        assert offsets(kit, topic) == {topic: 7}


class Copy:
    """A query that copies a topic into two topics, two records a batch, and stores its offsets."""

    def __init__(self, kit: Kit, checkpoint: pathlib.Path) -> None:
        self.kit, self.checkpoint = kit, checkpoint
        self.source, self.first, self.second = kit.topic(), kit.topic(partitions=2), kit.topic()
        self.group = f"{self.first}-group"
        self.fails_at: int | None = None  # the batch that raises between its two writes
        self.replays: list[int] = []
        self.stored_before: dict[int, dict[str, int]] = {}
        kit.send(self.source, VALUES)

    def take(self, batch: DataFrame, batch_id: int) -> None:
        with block(self.kit, self.first, batch_id) as tx:
            self.replays += [batch_id] if tx.is_committed else []
            write(batch, self.first, tx.options)
            if batch_id == self.fails_at:
                raise RuntimeError("this batch fails on purpose")
            write(batch, self.second, tx.options)
            tx.commit_offsets(self.group, {TopicPartition(self.source, 0): 2 * (batch_id + 1)})
            self.stored_before[batch_id] = offsets(self.kit, self.group)

    def run(self) -> None:
        frame = self.kit.read_stream(subscribe=self.source, startingOffsets="earliest", maxOffsetsPerTrigger=2)
        run_available(frame, self.take, self.checkpoint)

    def copies(self) -> list[list[str]]:
        return [values(self.kit.read(subscribe=topic)) for topic in (self.first, self.second)]


class TestQueries:
    @proves("SPS.25", "SPS.26")
    def test_all_writes_of_a_batch_and_its_offsets_are_committed_together_and_a_replay_writes_nothing(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        copy = Copy(kit, tmp_path)
        for replays in ([], [1]):
            copy.run()
            assert copy.replays == replays
            assert copy.copies() == [VALUES, VALUES]
            assert copy.stored_before[0] == {}
            assert offsets(kit, copy.group) == {copy.source: 4}
            forget_from(tmp_path, "commits", 1)
        described = kit.admin.describe_transaction(copy.first)
        assert (described.listing.last_committed_generation, described.listing.state) == (1, "idle")

    @proves("SPS.25")
    def test_a_batch_that_raises_between_two_writes_leaves_nothing_and_its_replay_writes_all(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        copy = Copy(kit, tmp_path)
        copy.fails_at = 1
        with pytest.raises(PySparkException, match="this batch fails on purpose"):
            copy.run()
        assert copy.copies() == [VALUES[:2], VALUES[:2]]
        assert not held_up(kit, copy.first)
        copy.fails_at = None
        copy.run()
        assert copy.copies() == [VALUES, VALUES]
        assert copy.replays == []

    @pytest.mark.long
    @proves("SPS.25")
    def test_a_driver_that_dies_before_the_commit_leaves_nothing_and_the_next_one_writes_all(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        copy = Copy(kit, tmp_path / "checkpoint")
        names = (copy.source, copy.first, copy.second, copy.group, str(copy.checkpoint))
        command = [sys.executable, "-m", "tests.spark.block_driver", kit.servers, *names]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        died = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert died.returncode == block_driver.DIED, died.stderr[-3000:]
        assert kit.admin.describe_transaction(copy.first).listing.state == "open"
        assert held_up(kit, copy.first)
        assert held_up(kit, copy.second)
        copy.run()
        assert copy.copies() == [VALUES, VALUES]
        assert copy.stored_before[0] == {}
        assert offsets(kit, copy.group) == {copy.source: 4}

    @proves("SPS.26")
    def test_two_blocks_of_one_name_in_one_batch_are_refused(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        source, sink = kit.topic(), kit.topic()
        kit.send(source, ["a"])

        def take(batch: DataFrame, batch_id: int) -> None:
            for _ in range(2):
                with block(kit, sink, batch_id) as tx:
                    write(batch, sink, tx.options)

        with pytest.raises(PySparkException, match="in one foreachBatch have this name, give each a name of its own"):
            run_available(kit.read_stream(subscribe=source, startingOffsets="earliest"), take, tmp_path)
        assert values(kit.read(subscribe=sink)) == ["a"]

    @proves("SPF.27")
    def test_two_writes_of_one_transactional_id_in_one_batch_are_refused_and_a_replay_is_not(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        """Both have as many rows, the same columns and the same topic: the second one seems to be a replay."""
        source, sink = kit.topic(), kit.topic()
        kit.send(source, ["a"])
        writes = 2

        def take(batch: DataFrame, batch_id: int) -> None:
            name = {"transactionalId": f"{sink}-job", "transactionVersion": str(batch_id)}
            for _ in range(writes):
                write(batch, sink, {"bootstrap.servers": kit.servers, **name})

        frame = kit.read_stream(subscribe=source, startingOffsets="earliest")
        with pytest.raises(
            PySparkException, match=r"another write of this micro-batch .* pyspark_minilog\.transaction"
        ):
            run_available(frame, take, tmp_path)
        writes = 1
        run_available(frame, take, tmp_path)
        assert values(kit.read(subscribe=sink)) == ["a"]
