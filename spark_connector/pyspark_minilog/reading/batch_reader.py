"""The batch source. It resolves offsets once, at the first action on a loaded DataFrame. Only a table as of now that is
read in a micro-batch resolves them again (newest_task.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_minilog.error_display import hides_traceback, hiding_traceback
from pyspark_minilog.login.task_login import task_login
from pyspark_minilog.options.places import ends_now
from pyspark_minilog.options.table import SourceOptions
from pyspark_minilog.reading.latest_task import read_latest
from pyspark_minilog.reading.newest_task import NewestTask, is_in_micro_batch, newest_tasks, read_newest
from pyspark_minilog.reading.planning import split
from pyspark_minilog.reading.read_task import ReadTask, planned, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minilog.reading.typed_rows import TypedTopics


class BatchReader(DataSourceReader):
    """Reads each range between startingOffsets and endingOffsets once. Spark pickles it to the tasks, so it holds only
    options, and the columns of topics with a schema."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, rows: TypedTopics | None = None) -> None:
        self._options = options
        self._schema = schema
        self._rows = rows

    @hides_traceback
    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises InvalidOption, DataLoss, MinilogError."""
        from pyspark_minilog.reading.batch_plan import plan_batch

        options = self._options
        plan = plan_batch(options, self._rows)
        ranges, rows = plan.ranges, plan.rows
        if options.rows.is_latest_view and ends_now(options.ending):
            return list(newest_tasks(plan, task_login(options)))
        if options.rows.is_latest_view:
            return planned([(whole,) for whole in ranges] or [()], rows, {}, task_login(options))
        pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
        # Without any task Spark makes one of its own. So a batch without ranges gets an empty task, which reads
        # nothing.
        return planned([(piece,) for piece in pieces] or [()], rows, {}, task_login(options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range as Arrow batches of the source's schema."""
        assert isinstance(partition, ReadTask)
        if isinstance(partition, NewestTask) and is_in_micro_batch():
            return hiding_traceback(read_newest(partition, self._options, self._rows, self._schema))
        if self._options.rows.is_latest_view:
            return hiding_traceback(read_latest(partition, self._options, self._schema))
        return hiding_traceback(read_ranges(partition, self._options, self._schema))
