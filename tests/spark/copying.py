"""A driver program for test_clusters.py: copies one topic to another wherever Spark runs, and reads the copy again.

    python -m tests.spark.copying MASTER SERVERS SOURCE TARGET CHECKPOINT

MASTER: a master URL, or sc://host:port of a Spark Connect server. Prints one line of JSON: how many records the batch
read found, and the sum of their numbers.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def session(master: str) -> SparkSession:
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
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    return spark.read.format("minilog").option("bootstrap.servers", servers).option("subscribe", topic).load()


def main() -> None:
    """See the module's text."""
    master, servers, source, target, checkpoint = sys.argv[1:]
    spark = session(master)
    records = (
        spark.readStream.format("minilog")
        .option("bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        records.select("partition", "key", "value")
        .writeStream.format("minilog")
        .option("bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = read(spark, servers, target).select(f.col("value").cast("string").cast("bigint").alias("number"))
    row = found.agg(f.count("*").alias("records"), f.sum("number").alias("total")).collect()[0]
    print(json.dumps({"records": row.records, "total": row.total}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
