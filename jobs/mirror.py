"""A topic mirrored into another cluster: each record once, in its partition, in its order, as it was.

    python jobs/mirror.py --from-servers 10.0.0.1:9092 --to-servers 10.1.0.1:9092 --topic flights \
        --checkpoint /data/mirror-flights

Key, value, headers and timestamp stay; offsets are the other log's own. The topic must be there on both sides, with
the same number of partitions. What was mirrored is in the checkpoint: started again it goes on where it was, and since
the sink writes each micro-batch as one transaction, a crash anywhere neither loses nor doubles a record. One mirror,
one checkpoint, one target: two mirrors into one topic double it. SIGTERM and SIGINT stop it; `--trigger available-now`
ends it when it has what was there at its start.
"""

from __future__ import annotations

import dataclasses
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from running import create_session, parse_arguments, run_query


@dataclasses.dataclass(frozen=True, slots=True)
class MirrorOptions:
    """From where to where."""

    from_servers: str
    to_servers: str
    topic: str
    checkpoint: str
    to_topic: str = ""  # the same name
    trigger: str = "1 second"


def mirror(spark: SparkSession, options: MirrorOptions) -> DataStreamWriter:
    """The query, not started."""
    records = (
        spark.readStream.format("minilog")
        .option("bootstrap.servers", options.from_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    return (
        records.select("partition", "key", "value", "headers", "timestamp")
        .writeStream.format("minilog")
        .queryName(f"mirror-{options.topic}")
        .option("bootstrap.servers", options.to_servers)
        .option("topic", options.to_topic or options.topic)
        .option("checkpointLocation", options.checkpoint)
    )


def main() -> None:
    """Run until SIGTERM or SIGINT, or until the query fails."""
    options = parse_arguments(MirrorOptions, __doc__, sys.argv[1:])
    spark = create_session("minilog-mirror")
    run_query(mirror(spark, options), options.trigger)
    spark.stop()


if __name__ == "__main__":
    main()
