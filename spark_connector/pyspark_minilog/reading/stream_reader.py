"""The streaming source, as Spark drives it: one reader in one long-lived Python process on the driver.

Its methods fetch, remember and report. planning.py and options/limits.py decide. These facts about Spark shape the
reader (docs/spec/connector.md § 1):

- Spark asks for `initialOffset` twice in batch 0, and again when it replays that batch. So the reader remembers it, and
  the first end offset has the beginning of its batch.
- Spark compares offsets as text. So the reader returns an unchanged `start` as it came.
- An idle query asks for the latest offset without a pause. So a call after an idle call first waits at the brokers.

No call looks at the cluster twice, unless something is wrong. `partitions` never does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_minilog.error_display import hides_traceback, hiding_traceback
from pyspark_minilog.errors import DataLoss, InvalidOption
from pyspark_minilog.login.task_login import LoginKeeper, TaskLogin
from pyspark_minilog.options.limits import Limits, Pace, capped
from pyspark_minilog.options.offsets import UNREAD_KEY, Partition, Positions, SourceOffset
from pyspark_minilog.options.table import SourceOptions
from pyspark_minilog.reading.loss import LossReport
from pyspark_minilog.reading.planning import (
    Continuation,
    continue_from,
    end_offset,
    gathered,
    missing_topics,
    recreated_topics,
    split,
    stream_ranges,
    until,
    vanished,
)
from pyspark_minilog.reading.read_task import ReadTask, planned, read_ranges
from pyspark_minilog.reading.resolving import Snapshot
from pyspark_minilog.watching.unread import Unread, left_over, unread_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from minilog.errors import MinilogError
    from pyspark_minilog.reading.group import GroupProgress
    from pyspark_minilog.reading.typed_rows import TypedTopics
    from pyspark_minilog.watching.first_unread import FirstUnread

# How long an idle query waits for data before it answers that there is none. A trigger must stay able to stop, and one
# source must not hold up the others of its query for long. The query looks for new topics and partitions as often.
_IDLE_WAIT_S = 0.2
_STORE_S = 0.5  # how long an idle query waits for the storing of its progress, which takes milliseconds
_NO_LIMITS = Limits()
_NOWHERE = SourceOffset({}, {}, begun_from={})


class RefusedReader(DataSourceStreamReader):
    """A refused source raises its error at the first call. If the constructor raised it, Spark's runner would hide it
    behind an error of its own, since it then stops a reader that does not exist (4.3)."""

    def __init__(self, refusal: InvalidOption | MinilogError) -> None:
        self._refusal = refusal

    @hides_traceback
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Raises InvalidOption."""
        raise self._refusal

    @hides_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises InvalidOption."""
        raise self._refusal

    @hides_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises InvalidOption."""
        raise self._refusal

    @hides_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises InvalidOption."""
        raise self._refusal


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. Spark also pickles it to the tasks, before it calls any method."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, rows: TypedTopics | None = None) -> None:
        self._options = options
        self._schema = schema
        self._rows = rows
        self._losses = LossReport(options.fail_on_data_loss)
        self._pace = Pace(options.limits)
        self._initial: dict[str, Any] | None = None
        self._refusal: InvalidOption | DataLoss | None = None
        self._target: Snapshot | None = None
        # The latest offsets of the last look. Spark gets them, and no later look may go below them.
        self._latest: SourceOffset | None = None
        self._fallen_back: set[Partition] = set()
        self._watched: Positions = {}
        self._was_idle = self._was_held_back = False
        self._progress: GroupProgress | None = None
        self._unread: set[str] = set()  # topics with records that the batch leaves unread
        self._unread_bytes: dict[str, int] = {}
        self._first_unread: FirstUnread | None = None
        self._keeper: LoginKeeper | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's names, here and below
        """The limit that Spark hands back to `latestOffset`, unless the trigger is Once. It only shows whether limits
        hold."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    @hides_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the present end of the topics as the end of the query."""
        self._target = self._snapshot(must_exist=False)

    @hides_traceback
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The beginning of a new query, the same at each call in this process.

        If the start is refused, `latestOffset` raises the error: a new query calls it next. The replay of a first batch
        does not call it. Its end offset has its beginning, and it must not fail because the start options no longer
        fit.
        """
        if self._initial is None:
            try:
                self._initial = self._start().to_json()
            except (InvalidOption, DataLoss) as refusal:
                self._refusal = refusal
                return _NOWHERE.to_json()
        return self._initial

    def _start(self) -> SourceOffset:
        from pyspark_minilog.reading.cluster import resolve_place

        snapshot = self._snapshot(must_exist=True)
        if self._target is not None:
            self._check_target(self._target, snapshot)
            snapshot = self._target
        resolved = resolve_place(self._options, self._options.starting, snapshot)
        self._losses.report(resolved.losses)
        start = SourceOffset(resolved.positions, snapshot.topic_ids, begun_from=resolved.positions)
        return replace(start, schema_versions=self._versions(start.topic_ids, _NOWHERE))

    @hides_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch. It is `start` itself, as it came, if nothing is new, or too little is new yet."""
        limits = _NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        self._wait()
        begun = SourceOffset.from_json(start)
        if self._refusal is not None and begun == _NOWHERE:
            raise self._refusal
        way, now = self._way_from(begun, limits)
        self._latest = SourceOffset(way.end, way.topic_ids)
        self._watched = {partition: end for partition, end in way.end.items() if partition in now.latest}
        now_at = (way.end, way.topic_ids, way.let_go)
        self._was_idle = now_at == (begun.positions, begun.topic_ids, begun.let_go)
        self._was_held_back = self._is_held_back(way, limits)
        self._store(begun, now, is_last=self._was_idle)
        if self._was_idle or self._was_held_back:
            return start
        end = end_offset(begun, way, capped(way.begin, way.end, limits, now.marks))
        self._note_unread(left_over(end.positions, way.end), now)
        return replace(end, schema_versions=self._versions(end.topic_ids, begun)).to_json()

    def _versions(self, topic_ids: dict[str, str], begun: SourceOffset) -> dict[str, int]:
        """The schema versions to read by behind `begun`: the versions before, for topics that are still the same."""
        if self._rows is None:
            return {}
        same = [name for name, topic_id in topic_ids.items() if begun.topic_ids.get(name) == topic_id]
        before = {name: begun.schema_versions[name] for name in same if name in begun.schema_versions}
        return self._rows.versions(topic_ids, before)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The latest offsets of the last look, from memory, because Spark asks as often as it asks for the next batch.
        They carry the unread part of the topics after this batch, for observers of the query."""
        if self._latest is None:
            return None
        since_ms = {} if self._first_unread is None else self._first_unread.since_ms()
        unread = Unread(self._unread_bytes, {topic: since_ms[topic] for topic in self._unread if topic in since_ms})
        return ({UNREAD_KEY: unread.to_json()} if self._unread else {}) | self._latest.to_json()

    @hides_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one micro-batch, from its two offsets alone."""
        until_here = SourceOffset.from_json(end)
        ranges, versions = stream_ranges(SourceOffset.from_json(start), until_here), until_here.schema_versions
        least, most = self._options.min_partitions, self._options.max_records_per_partition
        if least is None and most is None:
            parts = gathered(ranges)
        else:
            parts = [(piece,) for piece in split(ranges, least, most)]
        return planned(parts, self._rows, versions, self._login())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The ranges of a task as Arrow batches of the source's schema. Runs in a Python worker."""
        assert isinstance(partition, ReadTask)
        return hiding_traceback(read_ranges(partition, self._options, self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing, because Spark has the checkpoint. This call comes late, and never for the last batch. So
        `latestOffset` stores the progress of the query under its group."""

    def stop(self) -> None:
        """Stops the renewal of the tasks' token. The clients belong to the process."""
        if self._keeper is not None:
            self._keeper.stop()

    def _login(self) -> TaskLogin | None:
        """The login of the tasks of this micro-batch."""
        if not self._options.delegates:
            return None
        if self._keeper is None:
            self._keeper = LoginKeeper(self._options)
        return self._keeper.login()

    def _snapshot(self, *, must_exist: bool, sizes_from: Positions | None = None) -> Snapshot:
        from pyspark_minilog.reading.cluster import renewed, take_snapshot

        now = take_snapshot(self._options, must_exist=must_exist, sizes_from=sizes_from)
        self._rows = renewed(self._rows, now)
        return now

    def _wait(self) -> None:
        """After an idle call, wait at the brokers for data. After a call that held a batch back, wait for more data."""
        if self._target is not None:
            return
        if self._was_held_back:
            time.sleep(min(_IDLE_WAIT_S, self._pace.remaining_ms(_now_ms()) / 1000))
        elif self._was_idle:
            from pyspark_minilog.reading.tail import wait_for_news

            wait_for_news(self._options.client, self._watched, _IDLE_WAIT_S)

    def _store(self, finished: SourceOffset, now: Snapshot, *, is_last: bool) -> None:
        """The query has processed everything before `finished`. Store that under its group, if it has one, but not for
        topics that were created again. If no batch follows, wait a moment until it is stored."""
        if self._options.group is None:
            return
        if self._progress is None:
            from pyspark_minilog.reading.group import GroupProgress

            self._progress = GroupProgress(self._options.client, self._options.group)
        others = recreated_topics(finished, now)
        self._progress.store(
            {
                partition: offset
                for partition, offset in finished.positions.items()
                if partition in now.latest and partition.topic not in others
            }
        )
        if is_last:
            self._progress.settle(_STORE_S)

    def _note_unread(self, left: dict[Partition, tuple[int, int]], now: Snapshot) -> None:
        """Note the unread part after a batch. The brokers have answered its bytes. A thread asks for its age."""
        self._unread = {partition.topic for partition in left}
        self._unread_bytes = unread_bytes(left, now.marks)
        if not left:
            return
        if self._first_unread is None:
            from pyspark_minilog.watching.first_unread import FirstUnread

            self._first_unread = FirstUnread(self._options.client)
        self._first_unread.ask(left)

    def _is_held_back(self, way: Continuation, limits: Limits) -> bool:
        """Whether the batch waits for more records. AvailableNow and Once never wait, because their end is fixed."""
        if self._target is not None or limits is _NO_LIMITS:
            return False
        return self._pace.holds_back(sum(way.end.values()) - sum(way.begin.values()), _now_ms())

    def _way_from(self, start: SourceOffset, limits: Limits) -> tuple[Continuation, Snapshot]:
        """How far the stream can go now. A latest offset below an earlier one may come from a new leader. So the reader
        asks again, but only when a partition newly falls back: one that stays there does not hold up the others."""
        way, now = self._look(start, limits)
        for _ in range(self._options.retries):
            if way.lower.keys() <= self._fallen_back:
                break
            time.sleep(self._options.retry_interval_ms / 1000)
            way, now = self._look(start, limits)
        news = [sentence for partition, sentence in way.lower.items() if partition not in self._fallen_back]
        self._losses.report([*way.losses, *news])
        self._fallen_back = set(way.lower)
        if news and self._target is not None:
            self._target = until(self._target, now)
        return way, now

    def _look(self, start: SourceOffset, limits: Limits) -> tuple[Continuation, Snapshot]:
        measured = limits.leave_unread
        now = self._snapshot(must_exist=False, sizes_from=start.positions if measured else None)
        others = recreated_topics(start, now)
        if measured and others:  # the sizes are from offsets of the former topic
            kept = {partition: offset for partition, offset in start.positions.items() if partition.topic not in others}
            now = self._snapshot(must_exist=False, sizes_from=kept)
        deleted = self._deleted(start, now)
        unasked = {partition for partition in start.positions if not self._options.subscription.asks_for(partition)}
        if self._target is None:
            return continue_from(start, now, self._heard_of(now), deleted, unasked), now
        self._check_target(self._target, now)
        return continue_from(start, until(self._target, now), self._target.latest, deleted, unasked), now

    def _deleted(self, start: SourceOffset, now: Snapshot) -> set[str]:
        """The deleted topics, whose places are dropped. A query that fails because of them keeps all places."""
        missing = missing_topics(start, now)
        if not missing or self._options.fail_on_data_loss:
            return set()
        from pyspark_minilog.reading.cluster import deleted_topics

        return deleted_topics(self._options.client, missing)

    def _heard_of(self, now: Snapshot) -> Positions:
        """The latest offsets of the last look, of the topics that are still the same."""
        if self._latest is None:
            return {}
        same = {topic for topic, topic_id in self._latest.topic_ids.items() if now.topic_ids.get(topic) == topic_id}
        return {partition: offset for partition, offset in self._latest.positions.items() if partition.topic in same}

    @staticmethod
    def _check_target(target: Snapshot, now: Snapshot) -> None:
        gone = vanished(target, now)
        if gone:
            raise DataLoss(
                f"partitions {', '.join(map(str, gone))} existed when the AvailableNow query began and are gone now, "
                "so the query cannot reach its end: start it again"
            )


def _now_ms() -> float:
    return time.monotonic() * 1000
