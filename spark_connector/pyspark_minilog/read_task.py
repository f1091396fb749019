"""One range of a partition, or several small ones, read in a Python worker: Arrow from the brokers to Spark, no row is
touched.

The consumer fetches ahead while Spark works; what it hands out is joined to batches of a size that costs Spark little.
Several ranges are read at once; if anything is wrong, one by one from where that got to: then it is known with which.
The consumer is told the topic's id, so that the records of another topic of the same name are never taken for the ones
that were planned. Offsets without a record (markers, aborted or compacted ones) are no loss; a log
that starts above the range or ends below it is.
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
from pyspark_minilog.loss import LossReport
from pyspark_minilog.offsets import Partition
from pyspark_minilog.options import SourceOptions
from pyspark_minilog.planning import PlannedRange
from pyspark_minilog.task_login import TaskLogin, as_task

if TYPE_CHECKING:
    import pyarrow as pa

    from minilog import Consumer
    from pyspark_minilog.task_rows import TaskRows
    from pyspark_minilog.typed_rows import TypedTopics

logger = logging.getLogger(__name__)

# A batch for Spark: large enough that its fixed cost (some 0.2 ms) vanishes, small enough for the JVM's direct memory.
TARGET_ROWS = 65_536
TARGET_BYTES = 8 * 1024 * 1024
_POLL_S = 1.0
_MAX_STRANGERS = 5  # consumers in a row that do not know the topic, each after its own time of looking for it


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """What one task reads: ranges of different partitions, or nothing. `rows`: what of topics that have a schema.
    `login`: as whom, where not as the driver."""

    ranges: tuple[PlannedRange, ...]
    rows: TaskRows | None = None
    login: TaskLogin | None = None


def planned(
    parts: Sequence[tuple[PlannedRange, ...]],
    rows: TypedTopics | None,
    versions: Mapping[str, int],
    login: TaskLogin | None = None,
) -> list[InputPartition]:
    """A task for each, which knows the schemas that it needs; `versions`: by which it reads."""
    if rows is None:
        return [ReadTask(each, login=login) for each in parts]
    return [ReadTask(each, rows.rows(sorted({one.partition.topic for one in each}), versions), login) for each in parts]


def read_ranges(task: ReadTask, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a task, those of each range in offset order. Raises DataLoss, ReadStalled, MinilogError."""
    yield from joined(_polled(task, as_task(options, task.login)), schema)


def joined(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about the target size, under the exact schema that Spark expects."""
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
    """A stored batch that is much larger than the target when it is decoded, in pieces; without a copy."""
    pieces = max(batch.num_rows // TARGET_ROWS, batch.nbytes // TARGET_BYTES, 1)
    rows = -(-batch.num_rows // pieces)
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _join(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return pa.RecordBatch.from_arrays([_column(whole, field) for field in schema], schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    values = rows.column(field.name)
    return values if values.type == field.type else values.cast(field.type)


def _polled(task: ReadTask, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    losses = LossReport(options.fail_on_data_loss)
    left = list(task.ranges)
    if len(left) > 1:
        left = yield from _together(task, options)
    for each in left:
        yield from _alone(each, task.rows, options, losses)


def _together(task: ReadTask, options: SourceOptions) -> Generator[pa.RecordBatch, None, list[PlannedRange]]:
    """All at once, as far as all is well. What is left then."""
    from minilog.errors import OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition

    wanted = task.ranges
    reached = {each.partition: each.start for each in wanted}
    try:
        yield from _drained(wanted, task.rows, options, reached)
    except (OffsetOutOfRange, ReadStalled, UnknownTopicId, UnknownTopicOrPartition) as error:
        logger.info("the task reads its %d ranges one by one from here: %s", len(wanted), error)
        return [replace(each, start=reached[each.partition]) for each in wanted]
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
            # It is there: a consumer kept from another task, or a broker behind the others, knew the former topic of
            # this name. That consumer is closed now, and a new one asks anew.
            strangers += 1
            if strangers == _MAX_STRANGERS:
                raise


def _drained(
    wanted: Sequence[PlannedRange], rows: TaskRows | None, options: SourceOptions, reached: dict[Partition, int]
) -> Iterator[pa.RecordBatch]:
    """All batches of these ranges, each of one partition, bounded in the time without any progress. `reached` says
    behind which offset of each partition nothing was given yet."""
    from minilog import Consumer, TopicPartition
    from minilog.config import parse_config
    from pyspark_minilog.clients import lend
    from pyspark_minilog.config_file import with_file

    if rows is not None and rows.where is not None:
        import minilog.typed.where  # noqa: F401  # before the process settles in (worker.py)

    assigned = [
        TopicPartition(*each.partition, each.start, end_offset=each.end, topic_id=each.topic_id) for each in wanted
    ]
    patience_s = parse_config(with_file(options.client)).request_timeout_ms / 1000
    with lend(Consumer, {**options.client, "auto.offset.reset": "error"}) as consumer:
        poll = _poll_of(consumer, rows, options)
        consumer.assign(assigned)
        positions: list[int | None] = [each.start for each in wanted]
        deadline_s = time.monotonic() + patience_s
        while not consumer.finished():
            yield from poll(_POLL_S)
            moved_to = [consumer.position(each) for each in assigned]
            reached |= {each.partition: at for each, at in zip(wanted, moved_to, strict=True) if at is not None}
            if moved_to != positions:
                positions, deadline_s = moved_to, time.monotonic() + patience_s
            elif time.monotonic() > deadline_s:
                raise _stalled(wanted, positions, patience_s)
        consumer.assign([])


def _poll_of(
    consumer: Consumer, rows: TaskRows | None, options: SourceOptions
) -> Callable[[float], list[pa.RecordBatch]]:
    """What takes the next batches. The consumer, which another query may have used, is told what is wanted before it
    has anything to read: nothing else travels."""

    def poll(timeout_s: float) -> list[pa.RecordBatch]:
        if rows is None:
            return consumer.poll_arrow(timeout_s, include_headers=options.include_headers)
        found = consumer.poll_arrow(
            timeout_s,
            include_headers=options.include_headers,
            columns=rows.columns,
            where=rows.where,
            metadata=rows.metadata,
            schemas=rows.schemas,
        )
        return [_as_kafka(each, options.include_headers) for each in found] if rows.as_kafka else found

    poll(0.0)
    return poll


def _as_kafka(rows: pa.RecordBatch, include_headers: bool) -> pa.RecordBatch:
    """Rows with their metadata as keys and values, the values as JSON."""
    import pyarrow as pa

    from minilog.typed.as_json import rows_as_json
    from minilog.typed.topic_schema import METADATA_COLUMNS
    from pyspark_minilog.schema import arrow_source_schema

    more = [name for name in rows.schema.names if name in (*METADATA_COLUMNS, "_headers")]
    found = {name.removeprefix("_"): rows.column(name) for name in more}
    columns = rows.select([name for name in rows.schema.names if name not in more])
    found["value"] = pa.array(rows_as_json(columns), pa.binary())
    found["timestampType"] = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    schema = arrow_source_schema(include_headers)
    return pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)


def _stalled(wanted: Sequence[PlannedRange], positions: Sequence[int | None], patience_s: float) -> ReadStalled:
    waiting = [(each, at) for each, at in zip(wanted, positions, strict=True) if at is None or at < each.end]
    each, at = (waiting or [(wanted[0], positions[0])])[0]
    return ReadStalled(
        f"partition {each.partition} gave nothing for {patience_s:g} s at offset {at}, and this task reads to offset "
        f"{each.end}: look at the brokers, or raise minilog.request.timeout.ms"
    )


def _after_the_gap(wanted: PlannedRange, start: int, options: SourceOptions, losses: LossReport) -> int:
    """Where to go on when the log does not hold `start`; reports the loss."""
    from pyspark_minilog.cluster import log_bounds

    earliest, latest = log_bounds(options.client, wanted.partition)
    if start < earliest:
        losses.report([f"offsets {start} to {earliest} of partition {wanted.partition} are not there any more"])
        return earliest
    losses.report(
        [f"partition {wanted.partition} ends at offset {latest}, but the task reads offsets {start} to {wanted.end}"]
    )
    return wanted.end


def _ends_early(wanted: PlannedRange, options: SourceOptions, losses: LossReport) -> bool:
    """Whether the log ends below the range, as after an unclean election; reports the loss."""
    from pyspark_minilog.cluster import log_bounds

    _, latest = log_bounds(options.client, wanted.partition)
    if latest < wanted.end:
        losses.report(
            [f"partition {wanted.partition} ends at offset {latest}, but the task reads to offset {wanted.end}"]
        )
    return latest < wanted.end


def _is_the_topic(wanted: PlannedRange, options: SourceOptions, losses: LossReport) -> bool:
    """Whether the topic of this name is the one that was planned; reports the loss where it is not."""
    from pyspark_minilog.cluster import topic_id

    if wanted.topic_id is None:
        return True
    found = topic_id(options.client, wanted.partition.topic)
    if found == wanted.topic_id:
        return True
    state = f"was deleted, or {LOST_RIGHT}" if found is None else f"was deleted and created again, with id {found}"
    losses.report(
        [f"topic '{wanted.partition.topic}' of id {wanted.topic_id} {state}: the task does not read {wanted.partition}"]
    )
    return False
