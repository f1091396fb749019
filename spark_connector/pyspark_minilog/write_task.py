"""The sink in Spark's hands: each task sends its Arrow batches with an idempotent producer and acks=all.

At least once: a task returns when all of its rows are acknowledged, and a task or batch that Spark runs again writes
its rows again. The input is always drained (SPARK.md section 1), or an exception ends the task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_minilog.options import SinkOptions
from pyspark_minilog.sink import SinkPlan

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

_OWNED_SETTINGS = {"acks": "all", "enable.idempotence": "true"}


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """`df.write`. Pickled to the tasks."""

    def __init__(self, options: SinkOptions, plan: SinkPlan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send one task's rows. Raises InvalidOption, MinilogError."""
        return write_batches(self._options, self._plan, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`, made once for each micro-batch. Pickled to the tasks."""

    def __init__(self, options: SinkOptions, plan: SinkPlan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send one task's rows. Raises InvalidOption, MinilogError."""
        return write_batches(self._options, self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: all rows are acknowledged when their tasks return."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: at least once, what was written stays."""


def write_batches(options: SinkOptions, plan: SinkPlan, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send all rows and wait until each is acknowledged. Raises the first error of any of them."""
    from minilog import Producer
    from pyspark_minilog.clients import lend

    first = next(batches, None)
    if first is None:  # an empty task connects to nobody
        return Written(0)
    rows = 0
    waiting: deque[Future[Any]] = deque()  # bounded by the producer's buffer.memory, which send_batch waits for
    with lend(Producer, {**options.client, **_OWNED_SETTINGS}) as producer:
        for batch in chain([first], batches):
            for payload in plan.payloads(batch):
                waiting.append(producer.send_batch(payload.topic, payload.columns, partition=payload.partition))
            rows += batch.num_rows
            while waiting and waiting[0].done():
                waiting.popleft().result()
        producer.flush()
        for each in waiting:
            each.result()
    return Written(rows)
