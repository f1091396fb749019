"""A topic kept in Parquet, and brought back: every record once, with its key, headers, timestamp, partition and offset.

    python jobs/archive.py keep    --bootstrap-servers 127.0.0.1:9092 --topic flights --directory /data/flights
    python jobs/archive.py restore --bootstrap-servers 127.0.0.1:9092 --topic flights-again --directory /data/flights

`keep` is a stream: started again on the same directory it goes on where it was (its checkpoint is in
`<directory>/_checkpoint`, which Parquet readers pass over), and what a crash left half-written is not part of the
archive, because Spark's file sink lists in `<directory>/_spark_metadata` what is. `--trigger "1 minute"` lets it run
on; without it, it ends when it has what was there at its start.

`restore` writes the archive to a topic that has at least as many partitions: each record in its old partition, in its
old order. Offsets are the new log's own. Old records have old timestamps, by which a topic's retention goes: give it
`retention.ms=-1`, or it deletes them. It is one transaction: all of it is there when it has ended, and nothing of
one that failed; run again, it writes again. It reads with `spark.read.parquet`; so may anybody else:

    root
     |-- topic: string, partition: integer, offset: long, timestamp: timestamp
     |-- key: binary, value: binary, headers: array<struct<key: string, value: binary>>
     |-- day: date    of the timestamp, in UTC; a folder for each
"""

from __future__ import annotations

import dataclasses
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter
from running import UNTIL_EMPTY, create_session, parse_arguments, run_query

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """Which topic, which directory."""

    bootstrap_servers: str
    topic: str
    directory: str
    trigger: str = UNTIL_EMPTY


def keep(spark: SparkSession, options: ArchiveOptions) -> DataStreamWriter:
    """The query that appends to the archive what the topic has more; not started."""
    records = (
        spark.readStream.format("minilog")
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    return (
        records.select(*COLUMNS)
        .withColumn("day", f.to_date("timestamp"))
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", options.directory)
        .option("checkpointLocation", f"{options.directory}/_checkpoint")
    )


def in_order(archive: DataFrame) -> DataFrame:
    """The archive as a sink takes it: all of a partition in one task, in the order of its offsets."""
    return (
        archive.repartition("partition")
        .sortWithinPartitions("partition", "offset")
        .select("partition", "key", "value", "headers", "timestamp")
    )


def restore(spark: SparkSession, options: ArchiveOptions) -> None:
    """Write the whole archive to the topic."""
    (
        in_order(spark.read.parquet(options.directory))
        .write.format("minilog")
        .mode("append")
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("topic", options.topic)
        .save()
    )


def main() -> None:
    """`keep` or `restore`, then the options."""
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    options = parse_arguments(ArchiveOptions, __doc__, sys.argv[2:] if verb in ("keep", "restore") else ["--help"])
    spark = create_session(f"minilog-archive-{verb}")
    if verb == "keep":
        run_query(keep(spark, options), options.trigger)
    else:
        restore(spark, options)
    spark.stop()


if __name__ == "__main__":
    main()
