"""The driver program of a streaming copy, started again from its checkpoint whenever it ends.

    python -m tests.spark.kills.driver MASTER SERVERS SOURCE SINK CHECKPOINT DIRECTORY

It ends by itself when its standard input does. Each record of the source becomes one of the sink, which says where it
comes from (judging.py); what one task reads goes to all partitions of the sink. The work in between is slow, so that
each transaction is open for about as long as it is not, and many a kill comes in the middle of one.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import select
import sys
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.integration.forms import KEYS

MAX_OFFSETS_PER_TRIGGER = 200
_ROWS_PER_ARROW_BATCH = 20
_WORK_S = 0.05
_LOOK_S = 0.2


def session(master: str, directory: pathlib.Path) -> SparkSession:
    """A small session that leaves files in `directory` only."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS_PER_ARROW_BATCH),
        "spark.local.dir": str(directory / "local"),
    }
    builder = SparkSession.builder.master(master).appName("copy under kills")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes its time over a few rows, and hands them on."""
    for batch in batches:
        time.sleep(_WORK_S)
        yield batch


def copies(records: DataFrame, partitions: int) -> DataFrame:
    """The columns of the sink: value `partition:offset|value` of the source's record, and a partition by turns."""
    partition, offset = f.col("partition"), f.col("offset")
    where_from = f.concat(partition.cast("string"), f.lit(":"), offset.cast("string"), f.lit("|"))
    copied = records.select(
        f.concat(where_from, f.col("value").cast("string")).alias("value"),
        f.pmod(partition + offset, f.lit(partitions)).cast("int").alias("partition"),
    )
    return copied.mapInArrow(work, copied.schema)


def copied_rows(rows: DataFrame) -> DataFrame:
    """The same for typed topics: the key's column decides the partition."""
    partition, offset = f.col("_partition"), f.col("_offset")
    where_from = f.concat(partition.cast("string"), f.lit(":"), offset.cast("string"), f.lit("|"))
    copied = rows.select(
        f.concat(where_from.cast("binary"), f.col("content")).alias("content"),
        f.pmod(partition + offset, f.lit(KEYS)).cast("int").alias("place"),
    )
    return copied.mapInArrow(work, copied.schema)


def main() -> int:
    """Run the query, in a process that may be killed; the arguments say where from, and where to."""
    parser = argparse.ArgumentParser()
    for name in ("master", "servers", "source", "sink", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--partitions", type=int, required=True, help="of the sink")
    parser.add_argument("--at-least-once", action="store_true")
    parser.add_argument("--typed", action="store_true")
    parser.add_argument("--queue", help="the source leases from it, and the sink settles it")
    parser.add_argument("--config-file", help="who the driver is: its tasks log in by tokens")
    chosen = parser.parse_args()
    known = {"minilog.config.file": chosen.config_file, "delegationTokens": "true"} if chosen.config_file else {}
    records = (
        session(chosen.master, chosen.directory)
        .readStream.format("minilog")
        .option("bootstrap.servers", chosen.servers)
        .options(**known)
        .option("subscribe", chosen.source)
        .options(**({"queue": chosen.queue} if chosen.queue else {"startingOffsets": "earliest"}))
        .option("maxOffsetsPerTrigger", MAX_OFFSETS_PER_TRIGGER)
        .options(**({"columns": "content", "metadata": "true"} if chosen.typed else {}))
        .load()
    )
    query = (
        (copied_rows(records) if chosen.typed else copies(records, chosen.partitions))
        .writeStream.format("minilog")
        .option("bootstrap.servers", chosen.servers)
        .options(**known)
        .option("topic", chosen.sink)
        .option("exactlyOnce", not chosen.at_least_once)
        .options(**({"settleQueue": chosen.queue} if chosen.queue else {}))
        .option("checkpointLocation", chosen.checkpoint)
        .start()
    )
    while query.isActive:
        if select.select([sys.stdin], [], [], _LOOK_S)[0]:
            query.stop()
    query.awaitTermination()  # raises what ended the query, if anything did
    return 0


if __name__ == "__main__":
    sys.exit(main())
