"""A driver program for test_clusters.py: copies one topic to another wherever Spark runs, and reads the copy again.

    python -m tests.spark.copying MASTER SERVERS SOURCE TARGET CHECKPOINT [--speculate]

MASTER: a master URL, or sc://host:port of a Spark Connect server. Prints one line of JSON: how many records the batch
read found, the sum of their numbers, and how many stand in the topic, those of aborted attempts included. With
--speculate the first attempt at one of the tasks hangs after its first rows, so that only a speculative one can end it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

RUNS = 2  # of the query, one after another
_HANGS_S = 100.0
_HANGS_AT_BATCH = 10
# Small batches and buffers, so that the sink has got some of them when the next one does not come.
SPECULATING = {
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    "spark.buffer.size": "1024",
}


def session(master: str, *, speculates: bool) -> SparkSession:
    """A small session of its own."""
    if master.startswith("sc://"):
        return SparkSession.builder.remote(master).getOrCreate()
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.speculation": "true",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    builder = SparkSession.builder.master(master).appName("copying")
    for name, value in (settings | (SPECULATING if speculates else {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark: SparkSession, servers: str, topic: str, isolation: str = "read_committed") -> DataFrame:
    reader = spark.read.format("minilog").option("bootstrap.servers", servers).option("subscribe", topic)
    return reader.option("minilog.isolation.level", isolation).load()


def hanging_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hands rows on; the first attempt at task 0 stops in the middle."""
    context = TaskContext.get()
    hangs = context is not None and context.partitionId() == context.attemptNumber() == 0
    for number, batch in enumerate(batches):
        if hangs and number == _HANGS_AT_BATCH:
            time.sleep(_HANGS_S)
        yield batch


def main() -> None:
    """Run the copying query; the arguments say where from, and where to."""
    parser = argparse.ArgumentParser()
    for name in ("master", "servers", "source", "target", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--speculate", action="store_true")
    chosen = parser.parse_args()
    spark = session(chosen.master, speculates=chosen.speculate)
    records = (
        spark.readStream.format("minilog")
        .option("bootstrap.servers", chosen.servers)
        .option("subscribe", chosen.source)
        .option("startingOffsets", "earliest")
        .load()
        .select("partition", "key", "value")
    )
    for _ in range(RUNS):
        query = (
            (records.mapInArrow(hanging_at_first, records.schema) if chosen.speculate else records)
            .writeStream.format("minilog")
            .option("bootstrap.servers", chosen.servers)
            .option("topic", chosen.target)
            .option("checkpointLocation", chosen.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    found = read(spark, chosen.servers, chosen.target)
    numbers = found.select(f.col("value").cast("string").cast("bigint").alias("number"))
    row = numbers.agg(f.count("*").alias("records"), f.sum("number").alias("total")).collect()[0]
    stored = read(spark, chosen.servers, chosen.target, "read_uncommitted").count()
    print(json.dumps({"records": row.records, "total": row.total, "stored": stored}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
