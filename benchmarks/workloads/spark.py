"""T3, T4, T5: Spark reads a topic, reads it as a stream, and writes one; beside a source and a sink that do nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.arena import Arena, rate_run
from benchmarks.figures import Better, Run, Target
from benchmarks.processes import run_client
from benchmarks.systems import System
from benchmarks.systems.kafka import TUNED
from benchmarks.workloads import Turn, Workload, check_records
from benchmarks.workloads.produce import PARTITIONS, perf_tool

RECORD_BYTES = 100
Frame = Any  # of Spark: a reader or a DataFrame


@dataclass(frozen=True)
class Side:
    """A connector, by name, with the options that say where its topics are, and those of its sink alone."""

    format: str
    system: System | None
    options: dict[str, str]
    sink_options: dict[str, str] = field(default_factory=dict)

    def reader(self, reader: Frame, topic: str) -> Frame:
        return reader.format(self.format).options(**self.options).option("subscribe", topic)

    def writer(self, writer: Frame, topic: str) -> Frame:
        return writer.format(self.format).options(**self.options, **self.sink_options).option("topic", topic)


def minilog_side(arena: Arena, **sink_options: str) -> Side:
    return Side("minilog", arena.minilog, {"bootstrap.servers": arena.minilog.servers}, sink_options)


def kafka_side(arena: Arena, *, is_tuned: bool = True) -> Side:
    """Raises artifacts.Unavailable."""
    arena.require_spark_kafka()
    tuned = {f"kafka.{name}": value for name, value in TUNED.items()} if is_tuned else {}
    return Side("kafka", arena.kafka, {"kafka.bootstrap.servers": arena.kafka.servers}, {"kafka.acks": "all", **tuned})


def empty_side(rows: int) -> Side:
    return Side("empty", None, {"rows": str(rows), "record.bytes": str(RECORD_BYTES)})


def rows_of(spark: Any, count: int) -> Frame:
    """So many values of 100 bytes, all different, in two tasks."""
    from pyspark.sql import functions as f

    return spark.range(0, count, 1, 2).select(f.lpad(f.col("id").cast("string"), RECORD_BYTES, ".").alias("value"))


def timed_rows(arena: Arena, side: Side, rows: int, work: Callable[[], None]) -> Run:
    """The figure is rows per second of wall time."""
    cost = arena.measure(side.system, work)
    return rate_run(cost, rows, RECORD_BYTES, rows / cost.wall_s)


def _filled(arena: Arena, rows: int, side: str) -> tuple[str, int]:
    """A topic of one side with about so many records in batches of 1 MB; how many there are."""
    topic = arena.name("source")
    if side == "minilog":
        arena.minilog.create(topic, PARTITIONS)
        run_client("minilog_client", arena.minilog.servers, "arrow", topic, PARTITIONS, rows, RECORD_BYTES)
        return topic, arena.minilog.count(topic, PARTITIONS)
    arena.kafka.create(topic, PARTITIONS, is_synced=False)
    perf_tool(arena, arena.kafka, topic, rows, RECORD_BYTES, is_tuned=True)
    return topic, arena.kafka.count(topic, PARTITIONS)


def _batch_read(arena: Arena, side: Side, topic: str, rows: int) -> Turn:
    def work() -> None:
        side.reader(arena.spark.read, topic).load().write.format("noop").mode("overwrite").save()

    check_records(side.reader(arena.spark.read, topic).load().count(), rows, topic)
    return lambda _: timed_rows(arena, side, rows, work)


def _stream_read(arena: Arena, side: Side, topic: str, rows: int) -> Turn:
    def turn(_: int) -> Run:
        query: list[Any] = []

        def work() -> None:
            frame = side.reader(arena.spark.readStream, topic).option("startingOffsets", "earliest").load()
            writer = frame.writeStream.format("noop").trigger(availableNow=True)
            checkpoint = arena.directory / arena.name("checkpoint")
            query.append(writer.option("checkpointLocation", str(checkpoint)).start())
            query[0].awaitTermination()

        found = timed_rows(arena, side, rows, work)
        check_records(sum(each["numInputRows"] for each in query[0].recentProgress), rows, topic)
        return found

    return turn


def _reading(read: Callable[[Arena, Side, str, int], Turn], side: str, rows: int) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        if side == "empty":
            return read(arena, empty_side(rows), "", rows)
        found = minilog_side(arena) if side == "minilog" else kafka_side(arena)
        return read(arena, found, *_filled(arena, rows, side))

    return prepare


def batch_read(rows: int) -> Workload:
    """T3."""
    contestants = {side: _reading(_batch_read, side, rows) for side in ("minilog", "kafka", "empty")}
    title = f"Spark batch read, {RECORD_BYTES} B records"
    return Workload(Target("T3", title, "rows/s", Better.HIGHER, 3.0), "minilog", "kafka", contestants)


def stream_read(rows: int) -> Workload:
    """T4."""
    contestants = {side: _reading(_stream_read, side, rows) for side in ("minilog", "kafka")}
    title = f"Spark stream read of a backlog, {RECORD_BYTES} B records"
    return Workload(Target("T4", title, "rows/s", Better.HIGHER, 2.5), "minilog", "kafka", contestants)


def _writing(make: Callable[[Arena], Side], rows: int, *, is_synced: bool = True) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        side = make(arena)

        def turn(_: int) -> Run:
            topic, system = arena.name("written"), side.system
            if system is not None:
                system.create(topic, PARTITIONS, is_synced=is_synced)
            writer = side.writer(rows_of(arena.spark, rows).write.mode("append"), topic)
            found = timed_rows(arena, side, rows, writer.save)
            if system is not None:
                written = arena.spark.read.format(side.format).options(**side.options)
                check_records(written.option("subscribe", topic).load().count(), rows, topic)
                system.delete(topic)
            return found

        return turn

    return prepare


def write(rows: int, *, is_quick: bool = False) -> Workload:
    """T5: Kafka's sink is at least once, whatever it is told."""
    contestants = {
        "minilog, exactly once": _writing(minilog_side, rows),
        "kafka tuned, synced": _writing(kafka_side, rows),
    }
    if not is_quick:
        contestants |= {
            "minilog, at least once": _writing(lambda arena: minilog_side(arena, exactlyOnce="false"), rows),
            "kafka tuned, not synced": _writing(kafka_side, rows, is_synced=False),
            "kafka as it comes, not synced": _writing(
                lambda arena: kafka_side(arena, is_tuned=False), rows, is_synced=False
            ),
        }
    contestants["empty"] = _writing(lambda _: empty_side(rows), rows)
    title = f"Spark write, exactly once, {RECORD_BYTES} B records"
    return Workload(
        Target("T5", title, "rows/s", Better.HIGHER, 2.0), "minilog, exactly once", "kafka tuned, synced", contestants
    )
