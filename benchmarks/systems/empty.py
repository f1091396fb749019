"""A Python data source and sink that do nothing: what Spark itself costs, with the columns and rows of a topic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

BATCH_ROWS = 10_000
TASKS = 2


class EmptyDataSource(DataSource):
    """Options: `rows` and `record.bytes` of what is read; `rows.per.batch` of a stream's micro-batch."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
            "timestampType int"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), int(self.options["record.bytes"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _StreamReader(int(self.options["rows"]), int(self.options["rows.per.batch"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _StreamWriter()


@dataclass
class _Rows(InputPartition):
    start: int
    end: int


def _batches(start: int, end: int, record_bytes: int) -> Iterator[pa.RecordBatch]:
    for first in range(start, end, BATCH_ROWS):
        count = min(BATCH_ROWS, end - first)
        offsets = pa.array(range(first, first + count), pa.int64())
        columns = [
            pa.nulls(count, pa.binary()),
            pa.array([b"v" * record_bytes], pa.binary()).take(pa.array([0] * count)),
            pa.array(["topic"], pa.string()).take(pa.array([0] * count)),
            pa.array([0] * count, pa.int32()),
            offsets,
            offsets.cast(pa.timestamp("us", "UTC")),
            pa.array([0] * count, pa.int32()),
        ]
        names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
        yield pa.RecordBatch.from_arrays(columns, names)


class _Reader(DataSourceReader):
    def __init__(self, rows: int, record_bytes: int) -> None:
        self._rows, self._record_bytes = rows, record_bytes

    def partitions(self) -> Sequence[InputPartition]:
        cuts = [self._rows * each // TASKS for each in range(TASKS + 1)]
        return [_Rows(start, end) for start, end in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One batch, again and again: what is measured is the way into Spark."""
        assert isinstance(partition, _Rows)
        batch = next(_batches(0, BATCH_ROWS, self._record_bytes))
        for first in range(partition.start, partition.end, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.end - first))


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: int, rows_per_batch: int) -> None:
        self._rows, self._rows_per_batch = rows, rows_per_batch

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"row": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        del limit
        return {"row": min(self._rows, start["row"] + self._rows_per_batch)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Rows(start["row"], end["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        yield from _batches(partition.start, partition.end, 100)

    def commit(self, end: dict[str, int]) -> None:
        pass


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[Any]) -> None:
        pass

    def abort(self, messages: list[Any]) -> None:
        pass


class _StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        pass
