"""`python -m benchmarks.spark_exactly_once`: what exactly once costs in Spark, with it and without, by turns.

- the time of a small micro-batch, topic to topic (median of --batches, and its longest parts)
- rows per second of the sink (`df.write`) and of the source (batch read to noop), records of 100 bytes

local[2], three brokers with default settings (replication 3, acks=all, fsync). Fails where records are missing or new.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import PARTITIONS, check, create, produce
from minilog import Admin, Consumer, TopicPartition
from tests.cluster import running_cluster

RECORD_BYTES = 100
SMALL_BATCH_ROWS = 100
WARM_UP_BATCHES = 5
MODES = {"exactly once": True, "exactlyOnce=false": False}
Figures = dict[str, list[float]]


@dataclass
class Bench:
    """Spark, the cluster's address, and what was measured: micro-batch parts in ms by mode, and rows per second."""

    spark: SparkSession
    servers: str
    directory: pathlib.Path
    parts: dict[str, Figures] = field(default_factory=dict)
    speeds: Figures = field(default_factory=dict)

    def topic(self, name: str) -> str:
        create(self.servers, name)
        return name

    def micro_batches(self, mode: str, batches: int, number: int) -> None:
        """Copy a topic in micro-batches of 100 rows, and keep what Spark says of the time of each."""
        source, sink = self.topic(f"source-{number}"), self.topic(f"sink-{number}")
        wanted = (batches + WARM_UP_BATCHES) * SMALL_BATCH_ROWS
        fill(self.spark, self.servers, source, wanted)
        frame = self._reader(self.spark.readStream, source).option("maxOffsetsPerTrigger", SMALL_BATCH_ROWS)
        writer = frame.option("startingOffsets", "earliest").load().select("value").writeStream.format("minilog")
        writer = writer.option("bootstrap.servers", self.servers).option("topic", sink)
        writer = writer.option("exactlyOnce", MODES[mode]).option("checkpointLocation", str(self.directory / sink))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress: list[Any] = [each for each in query.recentProgress if each["numInputRows"]]
        parts = self.parts.setdefault(mode, {})
        for each in progress[WARM_UP_BATCHES:]:
            for name, duration_ms in each["durationMs"].items():
                parts.setdefault(name, []).append(duration_ms)
        check(visible(self.servers, sink), wanted)

    def write(self, mode: str, rows: int, number: int) -> None:
        """One `df.write` of `rows` rows, timed until it has returned."""
        topic = self.topic(f"written-{number}")
        self._timed(f"sink, {mode}", rows, lambda: save(rows_of(self.spark, rows), self.servers, topic, MODES[mode]))
        check(visible(self.servers, topic), rows)

    def read(self, topic: str, rows: int) -> None:
        """One batch read of a topic."""
        frame = self._reader(self.spark.read, topic).load()
        self._timed("source", rows, lambda: frame.write.format("noop").mode("overwrite").save())

    def _timed(self, name: str, rows: int, work: Any) -> None:
        started_s = time.monotonic()
        work()
        self.speeds.setdefault(name, []).append(rows / (time.monotonic() - started_s))

    def _reader(self, reader: Any, topic: str) -> Any:
        return reader.format("minilog").option("bootstrap.servers", self.servers).option("subscribe", topic)


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    """So many values of 100 bytes, all different, in two tasks."""
    return spark.range(0, count, 1, 2).select(f.lpad(f.col("id").cast("string"), RECORD_BYTES, ".").alias("value"))


def save(frame: DataFrame, servers: str, topic: str, exactly_once: bool) -> None:
    writer = frame.write.format("minilog").mode("append").option("bootstrap.servers", servers)
    writer.option("topic", topic).option("exactlyOnce", exactly_once).save()


def fill(spark: SparkSession, servers: str, topic: str, rows: int) -> None:
    """One stored batch for each few rows, so that offsets may be cut anywhere."""
    save(rows_of(spark, rows), servers, topic, False)


def visible(servers: str, topic: str) -> int:
    """Records that a read_committed reader is given; markers have offsets too, so offsets do not tell."""
    settings = {"bootstrap.servers": servers}
    with Admin(settings) as admin:
        ends = admin.list_offsets({TopicPartition(topic, each): "latest" for each in range(PARTITIONS)})
    found = 0
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, each.partition, 0, end_offset=end) for each, end in ends.items()])
        while not consumer.finished():
            found += sum(each.num_rows for each in consumer.poll_arrow(timeout=1.0))
    return found


def session(directory: pathlib.Path) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers, and its search for data sources
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    return builder.config("spark.sql.warehouse.dir", str(directory / "warehouse")).getOrCreate()


def show(bench: Bench) -> None:
    """Medians, with minimum and maximum."""
    table = Table("micro-batch, ms", *bench.parts, title=f"{SMALL_BATCH_ROWS} rows from topic to topic")
    first = next(iter(bench.parts.values()))
    for name in sorted(first, key=lambda each: -statistics.median(first[each])):
        table.add_row(name, *(_cell(parts.get(name, [0.0])) for parts in bench.parts.values()))
    Console(width=110).print(table)
    table = Table("rows per second", "median (lowest to highest)", title=f"{RECORD_BYTES}-byte records")
    for name, speeds in bench.speeds.items():
        table.add_row(name, _cell(speeds))
    Console(width=110).print(table)


def _cell(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f}; {len(values)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=50, help="micro-batches that are measured, of each mode")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of one write, and of one read")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minilog-bench-") as folder:
        directory = pathlib.Path(folder)
        with running_cluster(directory / "brokers") as cluster:
            bench = Bench(session(directory), cluster.bootstrap_servers, directory)
            try:
                measure(bench, chosen)
            finally:
                bench.spark.stop()
    show(bench)
    return 0


def measure(bench: Bench, chosen: argparse.Namespace) -> None:
    """By turns, two halves of the micro-batches each; the first write and read are not counted."""
    for number, mode in enumerate([*MODES, *MODES]):
        bench.micro_batches(mode, chosen.batches // 2, number)
    source = bench.topic("source")
    rows = produce(bench.servers, source, chosen.rows * RECORD_BYTES, RECORD_BYTES)
    for number in range(chosen.runs + 1):
        if number == 1:
            bench.speeds.clear()
        for place, mode in enumerate(MODES):
            bench.write(mode, chosen.rows, 2 * number + place)
        bench.read(source, rows)


if __name__ == "__main__":
    sys.exit(main())
