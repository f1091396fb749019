"""view=latest with an end of `latest` beside a stream: each micro-batch reads the newest table.

Spark plans a DataFrame of a Python source once, and keeps the plan for the life of a query that joins it to a stream.
So a task that runs in a micro-batch does not read the planned offsets. It looks at the cluster when it begins, and
reads its partition as of that moment. Outside of a micro-batch a task reads the planned offsets.

- The plan has a task for each partition, also for an empty one. The first task reads the partitions that came later.
- A task gives no row before it has read all its rows. If compaction or retention overtakes the read, it looks anew, and
  Spark sees the rows of one look alone.
- Two attempts of a task may give different tables. Spark takes the rows of one of them. If it has to run a task again
  whose rows others have read already, it compares the checksums of both outputs, and runs these others again, too
  (spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch, true by default since 4.2).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from pyspark_minilog.job_properties import BATCH_ID
from pyspark_minilog.login.task_login import TaskLogin, as_task
from pyspark_minilog.options.offsets import Partition
from pyspark_minilog.options.table import SourceOptions
from pyspark_minilog.reading.latest_task import read_table
from pyspark_minilog.reading.read_task import ReadTask, joined

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minilog.reading.batch_plan import BatchPlan
    from pyspark_minilog.reading.typed_rows import TypedTopics

logger = logging.getLogger(__name__)

# A table up to this size waits in memory, and a larger one in a temporary file.
SPOOL_BYTES = 32 * 1024 * 1024
# A table that compaction overtakes so often is read more slowly than its segments are cleaned.
MOST_LOOKS = 5


@dataclass(frozen=True)
class NewestTask(ReadTask):
    """A task of a table as of now: of `partition`, and in the first task of those that are not in `planned`. `ranges`
    has the offsets of the plan."""

    partition: Partition | None = None
    planned: frozenset[Partition] | None = None

    def reads(self, partition: Partition) -> bool:
        return partition == self.partition or (self.planned is not None and partition not in self.planned)


def newest_tasks(plan: BatchPlan, login: TaskLogin | None) -> list[NewestTask]:
    """One task for each partition, and at least one."""
    ranges = {planned_range.partition: planned_range for planned_range in plan.ranges}
    tasks: list[NewestTask] = []
    for partition in sorted(plan.partitions):
        rows = None if plan.rows is None else plan.rows.rows([partition.topic], {})
        of_partition = (ranges[partition],) if partition in ranges else ()
        tasks.append(NewestTask(of_partition, rows, login, partition, None if tasks else plan.partitions))
    return tasks or [NewestTask((), None, login, None, plan.partitions)]


def is_in_micro_batch() -> bool:
    """Whether this task runs for a streaming query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.getLocalProperty(BATCH_ID) is not None


def read_newest(
    task: NewestTask, options: SourceOptions, rows: TypedTopics | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The table of the task's partitions as of now. Raises what `plan_batch` raises, and OffsetOutOfRange if compaction
    overtakes every read."""
    as_of_task = as_task(options, task.login)

    def look() -> Iterator[pa.RecordBatch]:
        from pyspark_minilog.reading.batch_plan import plan_batch

        plan = plan_batch(as_of_task, rows)
        for wanted in plan.ranges:
            if task.reads(wanted.partition):
                of_topic = None if plan.rows is None else plan.rows.rows([wanted.partition.topic], {})
                yield from read_table(wanted, of_topic, as_of_task)

    return settled(lambda: joined(look(), schema), schema)


def settled(look: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of the first look that comes to its end. Raises OffsetOutOfRange if none of MOST_LOOKS does."""
    import pyarrow as pa

    from minilog.errors import OffsetOutOfRange

    for number in range(1, MOST_LOOKS + 1):
        with cast(IO[bytes], tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)) as spool:
            try:
                with pa.ipc.new_stream(spool, schema) as writer:
                    for batch in look():
                        writer.write_batch(batch)
            except OffsetOutOfRange as error:
                if number == MOST_LOOKS:
                    raise
                logger.info("the task reads its table again, as of now: %s", error)
                continue
            spool.seek(0)
            yield from pa.ipc.open_stream(spool)
            return
