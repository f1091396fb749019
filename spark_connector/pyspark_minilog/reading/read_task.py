"""Reads one range of a partition, or several small ranges, in a Python worker: Arrow from the brokers to Spark. The
code touches no single row.

The consumer fetches ahead while Spark works. The task joins the consumer's batches to a size that costs Spark little.
It reads several ranges at once. After an error it reads them one by one, so that the range with the error shows. The
consumer gets the topic's id, so it never returns records of another topic with the same name. Offsets without a record
(markers, aborted or compacted records) are no loss. A log that starts above the range or ends below it is loss.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from minilog.errors import LOST_RIGHT
from pyspark_minilog.errors import ReadStalled
from pyspark_minilog.login.task_login import TaskLogin, as_task
from pyspark_minilog.options.offsets import Partition
from pyspark_minilog.options.table import SourceOptions
from pyspark_minilog.reading.loss import LossReport
from pyspark_minilog.reading.planning import PlannedRange

if TYPE_CHECKING:
    import pyarrow as pa

    from minilog import Consumer
    from pyspark_minilog.reading.task_rows import TaskRows
    from pyspark_minilog.reading.typed_rows import TypedTopics

logger = logging.getLogger(__name__)

# A batch for Spark: large enough that its fixed cost (some 0.2 ms) vanishes, small enough for the JVM's direct memory.
TARGET_ROWS = 65_536
TARGET_BYTES = 8 * 1024 * 1024
_POLL_S = 1.0
_MAX_STRANGERS = 5  # consumers in a row that do not know the topic, after each has looked for it in its own time


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """What one task reads: ranges of different partitions, or nothing. `rows` has the columns of topics with a schema.
    `login` is the task's login, if it does not log in like the driver."""

    ranges: tuple[PlannedRange, ...]
    rows: TaskRows | None = None
    login: TaskLogin | None = None


def planned(
    parts: Sequence[tuple[PlannedRange, ...]],
    rows: TypedTopics | None,
    versions: Mapping[str, int],
    login: TaskLogin | None = None,
) -> list[InputPartition]:
    """One task for each part, with the schemas that it needs. `versions` has the schema version of each topic."""
    if rows is None:
        return [ReadTask(ranges, login=login) for ranges in parts]
    return [
        ReadTask(
            ranges, rows.rows(sorted({planned_range.partition.topic for planned_range in ranges}), versions), login
        )
        for ranges in parts
    ]


def read_ranges(task: ReadTask, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a task, those of each range in offset order. Raises DataLoss, ReadStalled, MinilogError."""
    yield from joined(_polled(task, as_task(options, task.login)), schema)


def joined(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about the target size, with the exact schema that Spark expects."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in (part for whole in batches for part in _cut(whole)):
        if waiting and (rows + batch.num_rows > TARGET_ROWS or size + batch.nbytes > TARGET_BYTES):
            yield _join(waiting, schema)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield _join(waiting, schema)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The pieces of a decoded batch that is much larger than the target. It makes no copy."""
    pieces = max(batch.num_rows // TARGET_ROWS, batch.nbytes // TARGET_BYTES, 1)
    rows = -(-batch.num_rows // pieces)
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _join(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    from minilog.compute import concat_batches

    whole = batches[0] if len(batches) == 1 else concat_batches(batches)
    return pa.RecordBatch.from_arrays([_column(whole, field) for field in schema], schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    values = rows.column(field.name)
    return values if values.type == field.type else values.cast(field.type)


def _polled(task: ReadTask, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    losses = LossReport(options.fail_on_data_loss)
    left = list(task.ranges)
    if len(left) > 1:
        left = yield from _together(task, options)
    for planned_range in left:
        yield from _alone(planned_range, task.rows, options, losses)


def _together(task: ReadTask, options: SourceOptions) -> Generator[pa.RecordBatch, None, list[PlannedRange]]:
    """Reads all ranges at once until an error. Returns the ranges that are left then."""
    from minilog.errors import OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition

    wanted = task.ranges
    reached = {planned_range.partition: planned_range.start for planned_range in wanted}
    try:
        yield from _drained(wanted, task.rows, options, reached)
    except (OffsetOutOfRange, ReadStalled, UnknownTopicId, UnknownTopicOrPartition) as error:
        logger.info("the task reads its %d ranges one by one from here: %s", len(wanted), error)
        return [replace(planned_range, start=reached[planned_range.partition]) for planned_range in wanted]
    return []


def _alone(
    wanted: PlannedRange, rows: TaskRows | None, options: SourceOptions, losses: LossReport
) -> Iterator[pa.RecordBatch]:
    from minilog.errors import OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition

    reached = {wanted.partition: wanted.start}
    strangers = 0
    while (start := reached[wanted.partition]) < wanted.end:
        try:
            yield from _drained([replace(wanted, start=start)], rows, options, reached)
            return
        except OffsetOutOfRange:
            reached[wanted.partition] = _after_the_gap(wanted, reached[wanted.partition], options, losses)
        except ReadStalled:
            if not _ends_early(wanted, options, losses):
                raise
            return
        except (UnknownTopicId, UnknownTopicOrPartition):
            if not _is_the_topic(wanted, options, losses):
                return
            # The topic exists. A consumer of an earlier task, or a broker behind the others, knew the former topic of
            # this name. That consumer is closed now, and a new consumer asks again.
            strangers += 1
            if strangers == _MAX_STRANGERS:
                raise


def _drained(
    wanted: Sequence[PlannedRange], rows: TaskRows | None, options: SourceOptions, reached: dict[Partition, int]
) -> Iterator[pa.RecordBatch]:
    """All batches of these ranges. A batch is of one partition. The time without any progress is bounded. `reached` has
    the next offset of each partition."""
    from minilog import Consumer, TopicPartition
    from minilog.config import parse_config
    from pyspark_minilog.login.clients import lend
    from pyspark_minilog.options.config_file import with_file

    if rows is not None and rows.where is not None:
        import minilog.typed.conditions.where  # noqa: F401  # before the process settles in (login/worker.py)

    assigned = [
        TopicPartition(
            *planned_range.partition, planned_range.start, end_offset=planned_range.end, topic_id=planned_range.topic_id
        )
        for planned_range in wanted
    ]
    patience_s = parse_config(with_file(options.client)).request_timeout_ms / 1000
    with lend(Consumer, {**options.client, "auto.offset.reset": "error"}) as consumer:
        poll = _poll_of(consumer, rows, options)
        consumer.assign(assigned)
        positions: list[int | None] = [planned_range.start for planned_range in wanted]
        deadline_s = time.monotonic() + patience_s
        while not consumer.finished():
            yield from poll(_POLL_S)
            moved_to = [consumer.position(partition) for partition in assigned]
            reached |= {
                planned_range.partition: at
                for planned_range, at in zip(wanted, moved_to, strict=True)
                if at is not None
            }
            if moved_to != positions:
                positions, deadline_s = moved_to, time.monotonic() + patience_s
            elif time.monotonic() > deadline_s:
                raise _stalled(wanted, positions, patience_s)
        consumer.assign([])


def _poll_of(
    consumer: Consumer, rows: TaskRows | None, options: SourceOptions
) -> Callable[[float], list[pa.RecordBatch]]:
    """The function that takes the next batches. Another query may have used the consumer before. So the first call
    names the wanted columns before the consumer has anything to read, and no other columns travel."""

    def poll(timeout_s: float) -> list[pa.RecordBatch]:
        if rows is None:
            return consumer.poll_arrow(timeout_s, include_headers=options.include_headers)
        batches = consumer.poll_arrow(
            timeout_s,
            include_headers=options.include_headers,
            columns=rows.columns,
            where=rows.where,
            metadata=rows.metadata,
            schemas=rows.schemas,
            deletes=rows.deletes,
        )
        if not rows.as_kafka:
            return batches
        return [_as_kafka(batch, options.include_headers, deletes=rows.deletes) for batch in batches]

    poll(0.0)
    return poll


def _as_kafka(rows: pa.RecordBatch, include_headers: bool, *, deletes: bool) -> pa.RecordBatch:
    """Rows with their metadata as keys and values, with the values as JSON. A deletion has no value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from minilog.typed.rows.as_json import rows_as_json
    from minilog.typed.schema.row_form import DELETED_COLUMN
    from minilog.typed.schema.topic_schema import METADATA_COLUMNS
    from pyspark_minilog.reading.schema import arrow_source_schema

    marks = [DELETED_COLUMN] if deletes else []
    more = [name for name in rows.schema.names if name in (*METADATA_COLUMNS, "_headers")]
    arrays = {name.removeprefix("_"): rows.column(name) for name in more}
    columns = rows.select([name for name in rows.schema.names if name not in (*more, *marks)])
    arrays["value"] = pa.array(rows_as_json(columns), pa.binary())
    if deletes:
        arrays["value"] = pc.if_else(rows.column(DELETED_COLUMN), pa.scalar(None, pa.binary()), arrays["value"])
    arrays["timestampType"] = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    schema = arrow_source_schema(include_headers)
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _stalled(wanted: Sequence[PlannedRange], positions: Sequence[int | None], patience_s: float) -> ReadStalled:
    waiting = [
        (planned_range, at)
        for planned_range, at in zip(wanted, positions, strict=True)
        if at is None or at < planned_range.end
    ]
    late, at = (waiting or [(wanted[0], positions[0])])[0]
    return ReadStalled(
        f"partition {late.partition} gave nothing for {patience_s:g} s at offset {at}, and this task reads to offset "
        f"{late.end}: look at the brokers, or raise minilog.request.timeout.ms"
    )


def _after_the_gap(wanted: PlannedRange, start: int, options: SourceOptions, losses: LossReport) -> int:
    """The offset at which the task goes on if the log does not have `start`. It reports the loss."""
    from pyspark_minilog.reading.cluster import log_bounds

    earliest, latest = log_bounds(options.client, wanted.partition)
    if start < earliest:
        losses.report([f"offsets {start} to {earliest} of partition {wanted.partition} are not there any more"])
        return earliest
    losses.report(
        [f"partition {wanted.partition} ends at offset {latest}, but the task reads offsets {start} to {wanted.end}"]
    )
    return wanted.end


def _ends_early(wanted: PlannedRange, options: SourceOptions, losses: LossReport) -> bool:
    """Whether the log ends below the range, as after an unclean election. It reports the loss."""
    from pyspark_minilog.reading.cluster import log_bounds

    _, latest = log_bounds(options.client, wanted.partition)
    if latest < wanted.end:
        losses.report(
            [f"partition {wanted.partition} ends at offset {latest}, but the task reads to offset {wanted.end}"]
        )
    return latest < wanted.end


def _is_the_topic(wanted: PlannedRange, options: SourceOptions, losses: LossReport) -> bool:
    """Whether the topic of this name is still the planned topic. It reports the loss if not."""
    from pyspark_minilog.reading.cluster import topic_id

    if wanted.topic_id is None:
        return True
    id_now = topic_id(options.client, wanted.partition.topic)
    if id_now == wanted.topic_id:
        return True
    state = f"was deleted, or {LOST_RIGHT}" if id_now is None else f"was deleted and created again, with id {id_now}"
    losses.report(
        [f"topic '{wanted.partition.topic}' of id {wanted.topic_id} {state}: the task does not read {wanted.partition}"]
    )
    return False
