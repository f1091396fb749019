"""A driver program for test_transaction_blocks.py: it dies in its first micro-batch, after both writes of the block and
before the commit.

    python -m tests.spark.block_driver SERVERS SOURCE FIRST SECOND GROUP CHECKPOINT
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession

import pyspark_minilog
from minilog import TopicPartition

DIED = 3


def main(servers: str, source: str, first: str, second: str, group: str, checkpoint: str) -> None:
    """Copy the source into two topics, as the test does."""

    def take(batch: DataFrame, batch_id: int) -> None:
        with pyspark_minilog.transaction(batch.sparkSession, first, batch_id, bootstrap_servers=servers) as tx:
            for topic in (first, second):
                batch.select("value").write.format("minilog").options(**tx.options, topic=topic).mode("append").save()
            tx.commit_offsets(group, {TopicPartition(source, 0): 2})
            os._exit(DIED)

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    frame = pyspark_minilog.read_stream(
        spark, source, bootstrap_servers=servers, startingOffsets="earliest", maxOffsetsPerTrigger=2
    )
    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
