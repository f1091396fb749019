"""T11: a stream from topic to topic in micro-batches of 100 rows: what one costs, in time and in CPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.workloads import Detail, Turn, Workload, check_records
from benchmarks.workloads.produce import PARTITIONS
from benchmarks.workloads.spark import Side, empty_side, kafka_side, minilog_side, rows_of

ROWS = 100
NOT_COUNTED = 8  # of a query's first micro-batches


def _copy(arena: Arena, side: Side, batches: int) -> Run:
    """A query that takes 100 rows at a time until it has all. The figure is the median of a micro-batch in ms."""
    wanted, source, sink = (batches + NOT_COUNTED) * ROWS, arena.name("source"), arena.name("sink")
    system = side.system
    reader = side.reader(arena.spark.readStream, source).option("maxOffsetsPerTrigger", ROWS)
    if system is not None:
        system.create(source, PARTITIONS, is_synced=True)
        system.create(sink, PARTITIONS, is_synced=True)
        once = {"exactlyOnce": "false"} if side.format == "minilog" else {}  # of the filling
        filling = Side(side.format, system, side.options, {**side.sink_options, **once})
        filling.writer(rows_of(arena.spark, wanted).write.mode("append"), source).save()
    frame = reader.option("startingOffsets", "earliest").load().select("value")
    writer = side.writer(frame.writeStream, sink)
    writer = writer.option("checkpointLocation", str(arena.directory / arena.name("checkpoint")))
    query: list[Any] = []

    def work() -> None:
        query.append(writer.trigger(availableNow=True).start())
        query[0].awaitTermination()

    cost = arena.measure(system, work)
    progress = [each for each in query[0].recentProgress if each["numInputRows"]]
    check_records(_rows(query[0]), wanted, sink)
    times_ms = [each["durationMs"]["triggerExecution"] for each in progress[NOT_COUNTED:]]
    cpu_ms = cost.total_cpu_s * 1e3 / len(progress)
    brokers_ms = (cost.total_cpu_s - cost.cpu_s["clients"]) * 1e3 / len(progress)
    return Run(float(statistics.median(times_ms)), cost, details={"cpu_ms": cpu_ms, "brokers_cpu_ms": brokers_ms})


def _rows(query: Any) -> int:
    return sum(each["numInputRows"] for each in query.recentProgress)


def _contestant(make: Callable[[Arena], Side], batches: int) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        side = make(arena)

        def turn(number: int) -> Run:
            count = batches if number >= 0 else NOT_COUNTED
            if side.system is not None:
                return _copy(arena, side, count)
            rows = {"rows": str((count + NOT_COUNTED) * ROWS), "rows.per.batch": str(ROWS)}
            return _copy(arena, Side(side.format, None, {**side.options, **rows}), count)

        return turn

    return prepare


def micro_batch(batches: int, *, runs: int = 3) -> Workload:
    """T11, and its CPU."""
    contestants = {
        "minilog, exactly once": _contestant(minilog_side, batches),
        "kafka, at least once": _contestant(kafka_side, batches),
        "minilog, at least once": _contestant(lambda arena: minilog_side(arena, exactlyOnce="false"), batches),
        "empty": _contestant(lambda _: empty_side(batches), batches),
    }
    cpu = Detail(Target("T11-cpu", f"CPU of a micro-batch of {ROWS} rows", "ms", Better.LOWER, 1.5), "cpu_ms")
    title = f"micro-batch of {ROWS} rows, exactly once, against at least once"
    return Workload(
        Target("T11", title, "ms", Better.LOWER, 1.2),
        "minilog, exactly once",
        "kafka, at least once",
        contestants,
        runs=runs,
        details=(cpu,),
    )
