"""What the Spark tests share: topics, records, readers and writers with the cluster's address filled in."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from minilog import Admin, NewTopic, Producer
from tests.cluster import Cluster

WAIT_S = 40.0
_numbers = itertools.count()
AnyReader = TypeVar("AnyReader", DataFrameReader, DataStreamReader)


@dataclass(frozen=True)
class Kit:
    """One test's view of the cluster and of Spark."""

    spark: SparkSession
    servers: str
    admin: Admin
    name: str

    def topic(self, partitions: int = 1, name: str | None = None) -> str:
        """A new topic, named after the test."""
        topic = name or self.new_name()
        self.admin.create_topics([NewTopic(topic, num_partitions=partitions)])
        return topic

    def new_name(self) -> str:
        """One that no topic has yet."""
        return f"{re.sub(r'[^a-zA-Z0-9]+', '-', self.name)[:60]}-{next(_numbers)}"

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until nobody knows of it."""
        self.admin.delete_topics([topic])
        wait_until(lambda: topic not in self.admin.list_topics())

    def send(self, topic: str, values: Iterable[str], partition: int = 0) -> None:
        """Write text values to one partition; they are committed when this returns."""
        # A producer of its own each time: one that knew a topic would write to that one when it is created again.
        with Producer({"bootstrap.servers": self.servers}) as producer:
            futures = [producer.send(topic, value.encode(), partition=partition) for value in values]
            producer.flush()
            for future in futures:
                future.result(timeout=WAIT_S)

    def send_timed(self, topic: str, timed: Iterable[tuple[str, int]], partition: int = 0) -> None:
        """Write text values with their timestamps (ms since 1970) to one partition, as one stored batch."""
        texts, times = zip(*timed, strict=True)
        columns = pa.RecordBatch.from_pydict(
            {
                "value": pa.array([text.encode() for text in texts], pa.binary()),
                "timestamp": pa.array([at_ms * 1000 for at_ms in times], pa.timestamp("us", "UTC")),
            }
        )
        with Producer({"bootstrap.servers": self.servers}) as producer:
            producer.send_batch(topic, columns, partition).result(timeout=WAIT_S)

    def read(self, **options: object) -> DataFrame:
        return self._with(self.spark.read.format("minilog"), options).load()

    def read_stream(self, **options: object) -> DataFrame:
        return self._with(self.spark.readStream.format("minilog"), options).load()

    def _with(self, reader: AnyReader, options: dict[str, object]) -> AnyReader:
        reader = reader.option("bootstrap.servers", self.servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), str(value))
        return reader


Reader = DataFrameReader | DataStreamReader


def values(frame: DataFrame) -> list[str]:
    """The values as text, sorted."""
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


class Collected:
    """A foreachBatch that keeps what each batch read."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, str]]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("partition", "offset", "value").collect()
        self.batches[batch_id] = sorted((row.partition, row.offset, bytes(row.value).decode()) for row in rows)

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches.values() for _, _, value in batch)

    def counts(self) -> list[dict[int, int]]:
        """Records by partition, of each batch in turn."""
        found = []
        for _, batch in sorted(self.batches.items()):
            partitions = [partition for partition, _, _ in batch]
            found.append({each: partitions.count(each) for each in sorted(set(partitions))})
        return found


def run_available(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: object) -> None:
    """One AvailableNow run to its end; raises what the query raises."""
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)


def run_once(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: object) -> None:
    """One run of the trigger Once to its end; raises what the query raises."""
    writer: DataStreamWriter = frame.writeStream.foreachBatch(sink)
    finish(writer.option("checkpointLocation", str(checkpoint)).trigger(once=True).start())


def failing_at(number: int, sink: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """A sink that takes all batches before this one, and fails when it has taken this one."""

    def take(frame: DataFrame, batch_id: int) -> None:
        sink(frame, batch_id)
        if batch_id == number:
            raise RuntimeError("this batch fails on purpose")

    return take


def start(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: object) -> StreamingQuery:
    """A query that runs until it is stopped."""
    writer: DataStreamWriter = frame.writeStream.foreachBatch(sink)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="0 seconds").start()


def finish(query: StreamingQuery) -> None:
    """Wait for the end of a query that ends by itself."""
    assert query.awaitTermination(int(WAIT_S)), f"the query did not end within {WAIT_S} s: {query.status}"


def edit_checkpoint(checkpoint: pathlib.Path, changes: dict[str, Any]) -> None:
    """Change the offset where a query stands that has finished batch 0."""
    written = checkpoint / "offsets" / "0"
    lines = written.read_text().splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | changes)
    written.write_text("\n".join(lines))
    for checksum in written.parent.glob(".*.crc"):
        checksum.unlink()


def forget_from(checkpoint: pathlib.Path, folder: str, first: int) -> None:
    """As if the driver had died before it wrote this batch, and those after it, to this folder of the checkpoint."""
    for written in (checkpoint / folder).iterdir():
        number = written.name.removeprefix(".").removesuffix(".crc")
        if number.isdigit() and int(number) >= first:
            written.unlink()


def read_bytes(cluster: Cluster, broker_id: int) -> int:
    """What this broker's process has read from files since it began: it grows by what it hands out."""
    counters = pathlib.Path(f"/proc/{cluster.processes[broker_id].pid}/io").read_text()
    return int(counters.split("rchar: ")[1].split()[0])


def wait_until(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Until `condition` holds; fails after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {timeout_s} s"
        time.sleep(0.05)
