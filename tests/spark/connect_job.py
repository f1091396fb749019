"""A client of Spark Connect: copies a topic by a foreachBatch, with one named write a micro-batch.

python connect_job.py URL SERVERS SOURCE SINK CHECKPOINT WAY [OPTION=VALUE...]

It prints the error of the query, or "done". WAY is write, block, or skip: a block that leaves out its write if the
batch is committed."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

_WAIT_S = 120


def main(url: str, servers: str, source: str, sink: str, checkpoint: str, way: str, *options: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    named = dict(option.split("=", 1) for option in options)

    def each(frame: Any, batch_id: int) -> None:
        name = f"copies-{sink}"
        if way == "write":
            given = {
                "bootstrap.servers": servers,
                "transactionalId": name,
                "transactionVersion": str(batch_id),
                **named,
            }
            frame.select("value").write.format("minilog").options(**given, topic=sink).mode("append").save()
            return
        import pyspark_minilog

        session = frame.sparkSession
        with pyspark_minilog.transaction(session, name, batch_id, bootstrap_servers=servers, **named) as tx:
            if not (way == "skip" and tx.is_committed):
                frame.select("value").write.format("minilog").options(**tx.options, topic=sink).mode("append").save()

    reader = spark.readStream.format("minilog").option("bootstrap.servers", servers)
    frame = reader.options(subscribe=source, startingOffsets="earliest").load()
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(_WAIT_S)
        print("done" if query.exception() is None else query.exception())
    except Exception as error:
        print(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
