"""The stream that takes its records from a queue, as Spark drives it. leases.py asks the queue's coordinator.

    latestOffset   leases records. The leases stand in the offset, and so in the checkpoint
    partitions     renews the locks of the batch. If they have ended, as after a long pause, the batch reads nothing
    read           the leased offsets, as bounded reads
    latestOffset   with a finished batch as its start: the driver accepts the messages, unless the sink has settled them

A replayed batch leaves one question, which only a task can ask, because it knows query and batch: has this query
committed the batch before (replay.py)? Then Spark replays it to restore the query's state. The tasks read it once
more, whatever became of its locks, and the sink drops the rows.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_minilog.error_display import hides_traceback, hiding_traceback
from pyspark_minilog.login.task_login import LoginKeeper, as_task
from pyspark_minilog.options.table import SourceOptions
from pyspark_minilog.queues.offset import QueueOffset, gathered_parts
from pyspark_minilog.queues.planned_batches import BatchState, forget_batch, note_batch, noted_batch
from pyspark_minilog.reading.planning import split
from pyspark_minilog.reading.read_task import ReadTask, planned, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minilog.options.offsets import Positions
    from pyspark_minilog.queues.leases import QueueSource
    from pyspark_minilog.reading.resolving import Snapshot
    from pyspark_minilog.reading.typed_rows import TypedTopics

_WAIT_MS = 200  # of a query without messages: a trigger must stay able to stop (reading/stream_reader.py)
# The coordinator must ask the leaders of all partitions before it can say that there is nothing.
_AVAILABLE_NOW_WAIT_MS = 2_000


@dataclass(frozen=True)
class QueueTask(InputPartition):
    """What one task reads, in parts. `is_held`: whether the locks of the batch hold."""

    parts: tuple[ReadTask, ...]
    is_held: bool
    is_replay: bool


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a queue as a stream. Spark also pickles it to the tasks, before it calls any method."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, rows: TypedTopics | None = None) -> None:
        assert options.queue is not None
        self._options = options
        self._queue = options.queue
        self._schema = schema
        self._rows = rows
        self._source: QueueSource | None = None
        self._keeper: LoginKeeper | None = None
        self._target: Positions | None = None
        self._offered: tuple[dict[str, Any], dict[str, Any]] | None = None  # the last start, and its end
        self._batch: tuple[QueueOffset, bool] | None = None  # the planned batch, and whether its locks hold
        self._unplanned: QueueOffset | None = None  # leased, and not begun
        self._was_last = False  # the batch that began last has only records from after an AvailableNow query's start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's names, here and below
        """The limit that Spark hands back to `latestOffset`, unless the trigger is Once."""
        most = self._options.limits.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @hides_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the present end of the topics. The query ends when it has no messages from before it any more."""
        self._target = dict(self._snapshot(must_exist=True).latest)

    @hides_traceback
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """No leases. The queue has its own place."""
        return QueueOffset(self._queue).to_json()

    @hides_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Lease the messages of the next batch. It is `start` itself if there are none. Raises InvalidOption,
        MinilogError."""
        begun = self._checked(start)
        if self._offered is not None and self._offered[0] == start:
            return self._offered[1]  # Spark has not used it
        self._finish(begun)
        if self._was_last:
            return start
        most = None if isinstance(limit, ReadAllAvailable) else self._options.limits.max_offsets
        snapshot = self._snapshot(must_exist=not begun.leases)
        wait_ms = _WAIT_MS if self._target is None else _AVAILABLE_NOW_WAIT_MS
        if not snapshot.topic_ids:
            return start
        leased = self._driver().lease(snapshot.topic_ids, most, wait_ms)
        if not leased.leases:
            return start
        self._was_last = self._is_last(leased)
        end = QueueOffset(leased.queue, leased.leases, leased.topic_ids, self._versions(leased, begun)).to_json()
        self._offered, self._unplanned = (start, end), leased
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """None: a queue has no latest offset. `minilog queue describe` shows its backlog."""
        return None

    @hides_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one micro-batch, from its end alone. Raises MinilogError."""
        batch, self._unplanned = self._checked(end), None
        is_held, is_replay = self._is_held(batch), self._offered is None or self._offered[1] != end
        ranges, options = batch.planned(), self._options
        if options.min_partitions is None and options.max_records_per_partition is None:
            tasks = gathered_parts(ranges)
        else:
            pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
            tasks = [((piece,),) for piece in pieces]
        login = self._login()
        return [
            QueueTask(tuple(planned(parts, self._rows, batch.schema_versions, login)), is_held, is_replay)  # type: ignore[arg-type]
            for parts in tasks
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The leased records of a task as Arrow batches of the source's schema. Runs in a Python worker."""
        assert isinstance(partition, QueueTask)
        return hiding_traceback(self._read(partition))

    def _read(self, task: QueueTask) -> Iterator[pa.RecordBatch]:
        if task.is_replay or not task.is_held:
            from pyspark_minilog.queues.replay import commitment, is_read_again

            before = commitment(as_task(self._options, task.parts[0].login))
            if not is_read_again(before, is_held=task.is_held):
                return
        for part in task.parts:
            yield from read_ranges(part, self._options, self._schema)

    @hides_traceback
    def commit(self, end: dict[str, Any]) -> None:
        """The batch is done. This call comes late, and never for the last batch: `latestOffset` mostly knows before."""
        self._finish(self._checked(end))

    def stop(self) -> None:
        """Give back what was leased for a batch that did not begin, and renew no lock and no token any more."""
        if self._source is not None:
            if self._unplanned is not None:
                self._source.return_unread(self._unplanned)
            self._source.stop()
        if self._keeper is not None:
            self._keeper.stop()

    def _driver(self) -> QueueSource:
        from pyspark_minilog.queues.leases import QueueSource

        if self._source is None:
            self._source = QueueSource(self._options, platform.node())
        return self._source

    def _checked(self, offset: dict[str, Any]) -> QueueOffset:
        """Raises InvalidOption for the checkpoint of another query."""
        read = QueueOffset.from_json(offset)
        if read.queue != self._queue:
            from pyspark_minilog.errors import refused

            remedy = f"the checkpoint is of queue '{read.queue}'. Name that queue, or begin with a new checkpoint"
            raise refused("queue", self._queue, remedy)
        return read

    def _is_held(self, batch: QueueOffset) -> bool:
        """Whether the locks of this batch hold. One answer for each batch of this process: Spark may plan a batch
        twice, for a source that its query names twice."""
        if self._batch is not None and self._batch[0] == batch:
            return self._batch[1]
        is_held = self._driver().take_up(batch)
        note_batch(batch.name(), BatchState.READ if is_held else BatchState.LOST)
        self._batch = batch, is_held
        return is_held

    def _finish(self, batch: QueueOffset) -> None:
        """Accept the messages of a batch that this process has planned, and has read, unless its sink settles. It never
        accepts what a former driver has planned, because it cannot know whether that was read."""
        if self._batch is not None and self._batch[0] == batch:
            accepts = noted_batch(batch.name()) is not BatchState.SETTLED and self._batch[1]
            self._driver().finish(batch, accepts=accepts)
            forget_batch(batch.name())
            self._batch = None
        elif self._source is not None:
            self._source.accept_finished()

    def _is_last(self, leased: QueueOffset) -> bool:
        """Whether all messages are from after the start of an AvailableNow query."""
        if self._target is None:
            return False
        ranges = [leased_range for lease in leased.leases for leased_range in lease.ranges]
        return all(leased_range.first >= self._target.get(leased_range.partition, 0) for leased_range in ranges)

    def _versions(self, leased: QueueOffset, begun: QueueOffset) -> dict[str, int]:
        if self._rows is None:
            return {}
        same = {name for name, topic_id in leased.topic_ids.items() if begun.topic_ids.get(name) == topic_id}
        before = {name: version for name, version in begun.schema_versions.items() if name in same}
        return self._rows.versions(leased.topic_ids, before)

    def _snapshot(self, *, must_exist: bool) -> Snapshot:
        from pyspark_minilog.reading.cluster import renewed, take_snapshot

        now = take_snapshot(self._options, must_exist=must_exist)
        self._rows = renewed(self._rows, now)
        return now

    def _login(self) -> Any:
        if not self._options.delegates:
            return None
        if self._keeper is None:
            self._keeper = LoginKeeper(self._options)
        return self._keeper.login()
