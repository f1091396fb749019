"""A queue as the source of a stream: leased, read and settled, with the real Spark and real brokers."""

from __future__ import annotations

import pathlib

from tests.spark.kit import Kit, finish
from pyspark.sql import functions as f


def test_probe(kit: Kit, tmp_path: pathlib.Path) -> None:
    source, sink = kit.topic(3), kit.topic(2)
    for partition in range(3):
        kit.send(source, [f"{partition}-{n}" for n in range(50)], partition)
    frame = kit.read_stream(subscribe=source, queue="jobs", maxOffsetsPerTrigger=40)
    query = (
        frame.select("value")
        .writeStream.format("minilog")
        .option("bootstrap.servers", kit.servers)
        .option("topic", sink)
        .option("settleQueue", "jobs")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    print(query.lastProgress)
    for n in range(4):
        print((tmp_path / "c/offsets" / str(n)).read_text())
    print(kit.admin.describe_queue("jobs"))
    values = sorted(bytes(r.value).decode() for r in kit.read(subscribe=sink).select("value").collect())
    assert values == sorted(f"{p}-{n}" for p in range(3) for n in range(50))
