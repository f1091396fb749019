"""The batch source: offsets are resolved once, at the first action on a loaded DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_minilog.loss import LossReport
from pyspark_minilog.options import SourceOptions
from pyspark_minilog.planning import batch_ranges, split
from pyspark_minilog.read_task import ReadTask, planned, read_ranges
from pyspark_minilog.task_login import task_login
from pyspark_minilog.telling import each_told_first, told_first

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minilog.typed_rows import TypedTopics


class BatchReader(DataSourceReader):
    """Reads each range between startingOffsets and endingOffsets once. Pickled to the tasks: holds options only, and
    what is read of topics that have a schema."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, rows: TypedTopics | None = None) -> None:
        self._options = options
        self._schema = schema
        self._rows = rows

    @told_first
    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises InvalidOption, DataLoss, MinilogError."""
        from pyspark_minilog.cluster import renewed, resolve_place, take_snapshot

        options = self._options
        snapshot = take_snapshot(options, must_exist=True)
        rows = renewed(self._rows, snapshot, is_stream=False)
        starting = resolve_place(options, options.starting, snapshot)
        ending = resolve_place(options, options.ending, snapshot)
        ranges = batch_ranges(starting, ending, snapshot)
        LossReport(options.fail_on_data_loss).report(starting.losses + ending.losses)
        pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
        # Spark makes a task of its own where it is given none: an empty task reads nothing.
        return planned([(each,) for each in pieces] or [()], rows, {}, task_login(options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range as Arrow batches of the source's schema."""
        assert isinstance(partition, ReadTask)
        return each_told_first(read_ranges(partition, self._options, self._schema))
