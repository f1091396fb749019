"""A driver program for test_delegation_tokens.py: a job whose tasks log in by delegation tokens.

    python -m tests.spark.token_job MASTER FILE DIRECTORY SECONDS

FILE, the settings of a client, is named as it is to the connector, so that it may be one that the driver alone finds.
Below DIRECTORY: `events` (event log), `checkpoint`, `plans.txt`, `progress.json`, and `tokens`, those that the driver
has kept, one after the other. A topic is read and written to by a batch, and then copied for so long.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import threading
import time

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.secured_job import plan_text, session

SOURCE, TARGET = "flights", "copy"
WRITTEN = 3


def options_of(file: str) -> dict[str, str]:
    return {"minilog.config.file": file, "delegationTokens": "true"}


def copying(spark: SparkSession, options: dict[str, str], directory: pathlib.Path) -> StreamingQuery:
    """Topic to topic, a micro-batch each half second."""
    stream = spark.readStream.format("minilog").options(**options, subscribe=SOURCE, startingOffsets="earliest").load()
    writer = stream.select("key", "value").writeStream.format("minilog").options(**options, topic=TARGET)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(processingTime="500 milliseconds").start()


def keep_tokens(seen: list[str], ended: threading.Event) -> None:
    """What the driver has in its file, whenever it is another."""
    while not ended.wait(0.1):
        for file in pathlib.Path(tempfile.gettempdir()).glob("minilog-*/*.token"):
            if (content := file.read_text()) not in seen:
                seen.append(content)


def refused_without(spark: SparkSession, file: str) -> str:
    """What a task says that is to find the file."""
    try:
        spark.read.format("minilog").options(**{"minilog.config.file": file}, subscribe=SOURCE).load().collect()
    except Exception as error:
        return str(error)
    return "nothing was refused"


def main() -> None:
    """Do the job."""
    master, file, place, seconds = sys.argv[1:]
    directory, options = pathlib.Path(place), options_of(file)
    spark = session(master, directory)
    spark.sparkContext.parallelize([1], 1).map(str).collect()  # an executor that starts takes longer than a token lives
    tokens: list[str] = []
    ended = threading.Event()
    watch = threading.Thread(target=keep_tokens, args=(tokens, ended), daemon=True)
    watch.start()
    frame = spark.read.format("minilog").options(**options, subscribe=SOURCE).load()
    read = frame.count()
    (directory / "plans.txt").write_text(plan_text(frame))
    refused = refused_without(spark, file)
    query = copying(spark, options, directory)
    rows = spark.range(WRITTEN).selectExpr("string(id) AS value")
    rows.write.format("minilog").mode("append").options(**options, topic=SOURCE).save()
    time.sleep(float(seconds))
    query.processAllAvailable()
    progress = [json.loads(each.json) for each in query.recentProgress]
    (directory / "progress.json").write_text(json.dumps([*progress, query.status, repr(query)]))
    query.stop()
    ended.set()
    watch.join()
    (directory / "tokens").write_text("\n".join(tokens))
    told = {"read": read, "refused": refused, "application": spark.sparkContext.applicationId}
    spark.stop()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
