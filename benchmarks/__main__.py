"""`python -m benchmarks produce|spark-read`: our side alone; the peers come with a later version.

produce      T1: one producer, acks=all, replication 3, records of --record-bytes, in Arrow batches of about 1 MiB
spark-read   T3: Spark batch read of 100-byte records to noop
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Cost, cost
from minilog import Admin, NewTopic, Producer, TopicPartition
from tests.cluster import Cluster, running_cluster

BATCH_BYTES = 1 << 20
PARTITIONS = 3


def record_batch(record_bytes: int) -> pa.RecordBatch:
    """About 1 MiB of records whose values are `record_bytes` long and all different."""
    count = max(1, BATCH_BYTES // (record_bytes + 12))
    values = pa.array([number.to_bytes(4, "little") * (record_bytes // 4) for number in range(count)], pa.binary())
    return pa.RecordBatch.from_arrays([values], ["value"])


def produce(servers: str, topic: str, total_bytes: int, record_bytes: int) -> int:
    """Send about `total_bytes` of values, wait until all are acknowledged; the number of records."""
    batch = record_batch(record_bytes)
    rounds: int = max(1, total_bytes // (batch.num_rows * record_bytes))
    with Producer({"bootstrap.servers": servers}) as producer:
        futures = [producer.send_batch(topic, batch) for _ in range(rounds)]
        producer.flush()
        for future in futures:
            future.result(timeout=60)
    return rounds * int(batch.num_rows)


def stored_records(servers: str, topic: str) -> int:
    with Admin({"bootstrap.servers": servers}) as admin:
        ends = admin.list_offsets({TopicPartition(topic, p): "latest" for p in range(PARTITIONS)})
    return sum(end or 0 for end in ends.values())


def create(servers: str, topic: str) -> None:
    with Admin({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=3)])


def run_produce(cluster: Cluster, chosen: argparse.Namespace) -> list[tuple[str, float, Cost]]:
    """(unit, amount, cost) per run, the warm-up not counted."""
    rows = []
    for number in range(chosen.runs + 1):
        topic = f"produce-{number}"
        create(cluster.bootstrap_servers, topic)
        with cost([each.pid for each in cluster.processes.values()]) as measured:
            count = produce(cluster.bootstrap_servers, topic, chosen.megabytes * 1_000_000, chosen.record_bytes)
        check(stored_records(cluster.bootstrap_servers, topic), count)
        rows.append(("MB", count * chosen.record_bytes / 1e6, measured))
    return rows[1:]


def run_spark_read(cluster: Cluster, chosen: argparse.Namespace) -> list[tuple[str, float, Cost]]:
    """The same for reading; the Spark session is made once, as a user's is."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers, and its search for data sources
    create(cluster.bootstrap_servers, "read")
    count = produce(cluster.bootstrap_servers, "read", chosen.megabytes * 1_000_000, chosen.record_bytes)
    session = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "4g")
    )
    spark = session.getOrCreate()
    rows = []
    try:
        for _ in range(chosen.runs + 1):
            with cost([each.pid for each in cluster.processes.values()]) as measured:
                frame = spark.read.format("minilog").option("bootstrap.servers", cluster.bootstrap_servers)
                frame.option("subscribe", "read").load().write.format("noop").mode("overwrite").save()
            rows.append(("rows", float(count), measured))
        frame = (
            spark.read.format("minilog")
            .option("bootstrap.servers", cluster.bootstrap_servers)
            .option("subscribe", "read")
        )
        check(frame.load().count(), count)
    finally:
        spark.stop()
    return rows[1:]


def check(found: int, expected: int) -> None:
    """What a benchmark fails on: records that are missing or too many."""
    if found != expected:
        raise SystemExit(f"{found} records are there, {expected} were written")


def show(title: str, rows: list[tuple[str, float, Cost]], record_bytes: int) -> None:
    """The figures of all runs, with their median."""
    table = Table(title=title)
    for column in ("run", "wall s", "per second", "CPU s per GB", "of which"):
        table.add_column(column, justify="right")
    speeds, costs = [], []
    for number, (unit, amount, measured) in enumerate(rows, 1):
        gigabytes = amount / 1000 if unit == "MB" else amount * record_bytes / 1e9
        speeds.append(amount / measured.wall_s)
        costs.append(measured.total_cpu_s / gigabytes)
        parts = ", ".join(f"{name} {seconds / gigabytes:.1f}" for name, seconds in (measured.cpu_s or {}).items())
        table.add_row(str(number), f"{measured.wall_s:.2f}", f"{speeds[-1]:,.0f} {unit}", f"{costs[-1]:.2f}", parts)
    table.add_row("median", "", f"{statistics.median(speeds):,.0f} {rows[0][0]}", f"{statistics.median(costs):.2f}", "")
    Console(width=140).print(table)


RUNS: dict[str, Callable[[Cluster, argparse.Namespace], list[tuple[str, float, Cost]]]] = {
    "produce": run_produce,
    "spark-read": run_spark_read,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=sorted(RUNS))
    parser.add_argument("--megabytes", type=int, default=500, help="of record values, per run")
    parser.add_argument("--record-bytes", type=int, default=0, help="default: 1024 to produce, 100 to read")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    chosen.record_bytes = chosen.record_bytes or (1024 if chosen.name == "produce" else 100)
    with (
        tempfile.TemporaryDirectory(prefix="minilog-bench-") as folder,
        running_cluster(pathlib.Path(folder)) as cluster,
    ):
        rows = RUNS[chosen.name](cluster, chosen)
    show(
        f"{chosen.name}: {chosen.record_bytes}-byte records, {chosen.megabytes} MB, replication 3, acks=all",
        rows,
        chosen.record_bytes,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
