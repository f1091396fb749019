"""The streaming source, as Spark drives it: one reader in one long-lived Python process on the driver.

Its methods fetch, remember and report; what they decide is planning.py's. Facts about Spark that shape it (SPARK.md 1):
`initialOffset` is asked for twice in batch 0, and again when that batch is replayed, so it is remembered, and the first
end offset says where it began. Offsets are compared as text, so that an unchanged `start` is returned as it came. An
idle query asks for the latest offset without a pause, so an idle answer takes a bounded while. `partitions` is pure.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_minilog.errors import DataLoss
from pyspark_minilog.loss import LossReport
from pyspark_minilog.offsets import SourceOffset
from pyspark_minilog.options import SourceOptions
from pyspark_minilog.planning import (
    Continuation,
    Snapshot,
    continue_from,
    end_offset,
    resolve,
    share,
    split,
    stream_ranges,
    vanished,
)
from pyspark_minilog.read_task import ReadTask, read_range

if TYPE_CHECKING:
    import pyarrow as pa

# How long an idle query waits for data before it says that there is none: a trigger must stay able to stop, and one
# source must not hold up the others of its query for long. So often new topics and partitions are looked for, too.
_IDLE_WAIT_S = 0.2


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. Also pickled to the tasks, before any of its methods is called."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._losses = LossReport(options.fail_on_data_loss)
        self._initial: dict[str, Any] | None = None
        self._known_latest: dict[str, Any] | None = None
        self._target: Snapshot | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's names, here and below
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix what is there now as the end of the query."""
        self._target = self._snapshot(must_exist=False)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins, the same each time it is asked in this process."""
        if self._initial is None:
            snapshot = self._snapshot(must_exist=True)
            if self._target is not None:
                self._check_target(self._target, snapshot)
                snapshot = self._target
            positions, losses = resolve(self._options.starting, snapshot)
            self._losses.report(losses)
            self._initial = SourceOffset(positions, snapshot.topic_ids, begun_from=positions).to_json()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch reads: `start` itself, as it came, where there is nothing new."""
        begun = SourceOffset.from_json(start)
        way = self._way_from(begun)
        if self._target is None and _is_idle(begun, way) and self._has_news(way):
            way = self._way_from(begun)
        self._known_latest = SourceOffset(way.end, way.topic_ids).to_json()
        if _is_idle(begun, way):
            return start
        end = share(way.begin, way.end, limit.max_rows) if isinstance(limit, ReadMaxRows) else way.end
        return end_offset(begun, way, end).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The newest offsets heard of, from memory: Spark asks as often as it asks for the next batch."""
        return self._known_latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one micro-batch, from its two offsets alone."""
        ranges = stream_ranges(SourceOffset.from_json(start), SourceOffset.from_json(end))
        return [ReadTask(each) for each in split(ranges, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range as Arrow batches of the source's schema; runs in a Python worker."""
        assert isinstance(partition, ReadTask)
        return read_range(partition.range, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is Spark's."""

    def stop(self) -> None:
        """Nothing: clients belong to the process."""

    def _snapshot(self, *, must_exist: bool) -> Snapshot:
        from pyspark_minilog.cluster import take_snapshot

        return take_snapshot(self._options, must_exist=must_exist)

    def _has_news(self, way: Continuation) -> bool:
        from pyspark_minilog.tail import wait_for_news

        return wait_for_news(self._options.client, way.end, _IDLE_WAIT_S)

    def _way_from(self, start: SourceOffset) -> Continuation:
        """Where the stream can go now. A latest offset below `start` may be a new leader's: it is asked for again."""
        way = self._look(start)
        for _ in range(self._options.retries):
            if not way.lower:
                break
            time.sleep(self._options.retry_interval_ms / 1000)
            way = self._look(start)
        self._losses.report(way.losses + way.lower)
        return way

    def _look(self, start: SourceOffset) -> Continuation:
        now = self._snapshot(must_exist=False)
        if self._target is None:
            return continue_from(start, now)
        self._check_target(self._target, now)
        target = self._target
        earliest = {each: now.earliest[each] for each in target.latest}
        return continue_from(start, Snapshot(target.topic_ids, earliest, target.latest))

    @staticmethod
    def _check_target(target: Snapshot, now: Snapshot) -> None:
        gone = vanished(target, now)
        if gone:
            raise DataLoss(
                f"partitions {', '.join(map(str, gone))} were there when the AvailableNow query began and are gone, so "
                "that it cannot end where it was to end: start it again"
            )


def _is_idle(start: SourceOffset, way: Continuation) -> bool:
    return way.end == start.positions and way.topic_ids == start.topic_ids
