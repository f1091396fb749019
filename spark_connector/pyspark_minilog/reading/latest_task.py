"""Reads the newest row of each key of a partition in a Python worker: the option view=latest. One task reads one
partition, because a key's rows are in one. The rules are those of `minilog.scan` (minilog/scanning/latest.py).

The driver has fixed the end of the range (newest_task.py has the reads of a micro-batch, which begin with a look of
their own). If compaction overtakes the task, the task fails: a later end in one task
would be a table of two moments. If retention overtakes it, that is data loss, and the task begins again at the new
start of the log, unless Spark has rows of it already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_minilog.login.task_login import as_task
from pyspark_minilog.login.worker import settle_in
from pyspark_minilog.options.table import SourceOptions
from pyspark_minilog.reading.loss import LossReport
from pyspark_minilog.reading.planning import PlannedRange
from pyspark_minilog.reading.read_task import ReadTask, joined

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minilog.reading.task_rows import TaskRows


def read_latest(task: ReadTask, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The tables of a task's ranges. Raises DataLoss, MinilogError."""
    yield from joined(_tables(task, as_task(options, task.login)), schema)


def _tables(task: ReadTask, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    from minilog.errors import OffsetOutOfRange

    losses = LossReport(options.fail_on_data_loss)
    for planned_range in task.ranges:
        wanted, has_given = planned_range, False
        while wanted.size > 0:
            try:
                for rows in read_table(wanted, task.rows, options):
                    has_given = True
                    yield rows
                break
            except OffsetOutOfRange:
                start = _log_start(wanted, options)
                if has_given or start <= wanted.start:
                    raise
                losses.report(
                    [f"offsets {wanted.start} to {start} of partition {wanted.partition} are not there any more"]
                )
                wanted = replace(wanted, start=start)


def _log_start(wanted: PlannedRange, options: SourceOptions) -> int:
    from pyspark_minilog.reading.cluster import log_bounds

    return log_bounds(options.client, wanted.partition)[0]


def read_table(wanted: PlannedRange, rows: TaskRows | None, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The table of one range. Raises OffsetOutOfRange if it is not there any more, MinilogError."""
    from minilog.config import parse_config
    from minilog.scanning.latest import LatestRead
    from minilog.scanning.planned import ScanPlan
    from minilog.scanning.planned import ScanRequest as Scanned
    from minilog.scanning.reading import Reader
    from minilog.types import TopicPartition
    from pyspark_minilog.options.config_file import with_file

    topic, number = wanted.partition
    schema = None if rows is None else rows.schemas[topic]
    if rows is None:
        scanned = Scanned(topic, _record_columns(options), is_latest=True)
    else:
        scanned = Scanned(topic, rows.columns, rows.where, metadata=rows.metadata, is_latest=True)
    shape = scanned.shape(schema)
    settle_in()
    assigned = TopicPartition(topic, number, wanted.start, wanted.end, wanted.topic_id)
    plan = ScanPlan(wanted.topic_id or "", schema, (assigned,), None)
    config = parse_config(with_file(options.client))
    reader = Reader(config)
    try:
        for _, found in LatestRead(reader.decoded, reader.clean_to, plan, config.latest_memory_bytes).rows(shape):
            yield found if rows is not None else _as_kafka(found)
    finally:
        reader.close()


def _record_columns(options: SourceOptions) -> tuple[str, ...]:
    headers = ("_headers",) if options.include_headers else ()
    return ("key", "value", "_topic", "_partition", "_offset", "_timestamp", *headers)


def _as_kafka(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A scan's columns of a topic without a schema under the source's names."""
    import pyarrow as pa

    names = [name.removeprefix("_") for name in rows.schema.names]
    kind = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    return pa.RecordBatch.from_arrays([*rows.columns, kind], names=[*names, "timestampType"])
