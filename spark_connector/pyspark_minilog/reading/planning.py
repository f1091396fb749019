"""From offsets to ranges to tasks. Pure: the cluster's answers come in as a `Snapshot`.

The rules of data loss (docs/spec/connector.md § 3) are here: a topic is gone or was created again, a start is below the
log, an end is below a start. The losses come out as sentences, and the readers raise or warn. In both cases no offset
moves back, the query reads no offset twice, and it skips only offsets that do not exist.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.offsets import Partition, Positions, SourceOffset
from pyspark_minilog.reading.resolving import Resolved, Snapshot, upside_down

# Each task is an object on the driver and a message to an executor.
MAX_TASKS = 1_000_000
# Ranges of several partitions with so few offsets share a task of a stream: a task costs some 40 ms of CPU, a record a
# microsecond.
SMALL_TASK_OFFSETS = 1_000
_MOST_NAMED = 10  # partitions in one sentence


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Offsets [start, end) of one partition of the topic with this id. With None, any topic of this name is right."""

    partition: Partition
    start: int
    end: int
    topic_id: str | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where a stream goes on: from `begin` to at most `end`. `losses` and `lower` are sentences about lost data. The
    ones of `lower`, by partition, may pass, for example when a leader does not know yet how far its log is committed.
    The query goes on without the partitions of `let_go`: it has reported that it no longer asks for them."""

    begin: Positions
    end: Positions
    topic_ids: dict[str, str]
    losses: tuple[str, ...] = ()
    lower: dict[Partition, str] = field(default_factory=dict)
    let_go: frozenset[Partition] = frozenset()


def batch_ranges(starting: Resolved, ending: Resolved, snapshot: Snapshot) -> list[PlannedRange]:
    """The ranges of a batch. Raises InvalidOption if a range would end before it starts."""
    start, end = starting.positions, ending.positions
    for partition in sorted(start):
        # It also compares the given values: moving both into the log must not hide a range that is upside down.
        if start[partition] > end[partition] or upside_down(starting.place, ending.place, partition):
            raise InvalidOption(
                f"partition {partition} would end before it starts: {starting} is offset {start[partition]}, {ending} "
                f"is offset {end[partition]}. Give an end at or above the start"
            )
    return _ranges(start, end, snapshot.topic_ids)


def continue_from(
    start: SourceOffset,
    snapshot: Snapshot,
    latest_before: Mapping[Partition, int] | None = None,
    deleted: Collection[str] = (),
    unasked: Collection[Partition] = (),
) -> Continuation:
    """Where a stream that stands at `start` goes on. New partitions and topics begin at their earliest offset. If that
    is not 0, the query has lost the records before it (Kafka's ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO).

    `latest_before` has the latest offsets of an earlier look, of the same topics. A lower offset now is reported, like
    one below `start`. `deleted` has the topics of `start` that are certainly deleted: they are reported, and left out
    from then on. Other missing partitions keep their place, because they may come back, and the query must not read
    them twice. `unasked` has the partitions of `start` that the query no longer asks for: they are reported once, and
    let go from then on.
    """
    begin: Positions = {}
    end: Positions = {}
    losses: list[str] = []
    lower: dict[Partition, str] = {}
    recreated = recreated_topics(start, snapshot)
    losses += [_recreated(topic, start, snapshot) for topic in sorted(recreated)]
    for partition, latest in snapshot.latest.items():
        earliest = snapshot.earliest[partition]
        position = None if partition.topic in recreated else start.positions.get(partition)
        begin[partition] = earliest if position is None else max(position, earliest)
        end[partition] = max(latest, begin[partition])
        if position is not None and position < earliest:
            losses.append(
                f"offsets {position} to {earliest} of partition {partition} are not there any more: its log starts at "
                f"offset {earliest}"
            )
        if position is None and earliest > 0 and partition.topic not in recreated:
            losses.append(
                f"partition {partition} is new to this query, and offsets 0 to {earliest} are not there any more: its "
                f"log starts at offset {earliest}"
            )
        heard_of = -1 if partition.topic in recreated else (latest_before or {}).get(partition, -1)
        if position is not None and latest < position:
            lower[partition] = (
                f"partition {partition} ends at offset {latest}, but the query has read to offset {position}"
            )
        elif latest < heard_of:
            lower[partition] = f"partition {partition} ends at offset {latest}, but it ended at {heard_of} before"
    topic_ids = dict(snapshot.topic_ids)
    let_go: set[Partition] = set()
    for partition in sorted(start.positions.keys() - snapshot.latest.keys()):
        if partition.topic in recreated:
            continue
        if partition not in start.let_go or partition not in unasked:
            losses.append(_missing(partition, start.positions[partition], is_asked_for=partition not in unasked))
        if partition.topic in deleted:
            continue
        if partition in unasked:
            let_go.add(partition)
        begin[partition] = end[partition] = start.positions[partition]
        if partition.topic in start.topic_ids:
            topic_ids.setdefault(partition.topic, start.topic_ids[partition.topic])
    return Continuation(begin, end, topic_ids, tuple(losses), lower, frozenset(let_go))


def _missing(partition: Partition, position: int, *, is_asked_for: bool) -> str:
    if is_asked_for:
        what = f"partition {partition}, read to offset {position}, is not there any more"
        return f"{what}: its topic was deleted, or this user has lost the right to see it"
    return (
        f"partition {partition}, read to offset {position}, is in the checkpoint, but the query does not ask for it "
        "any more: set failOnDataLoss to false for one run if you took it out, or take the checkpoint of this query if "
        "this one belongs to another"
    )


def recreated_topics(start: SourceOffset, snapshot: Snapshot) -> set[str]:
    """The topics of `start` that were deleted and created again."""
    return {topic for topic, topic_id in start.topic_ids.items() if snapshot.topic_ids.get(topic, topic_id) != topic_id}


def missing_topics(start: SourceOffset, snapshot: Snapshot) -> list[str]:
    """The topics of `start` that do not exist now, or that the query does not read now."""
    there = {partition.topic for partition in snapshot.latest}
    return sorted({partition.topic for partition in start.positions} - there)


def end_offset(start: SourceOffset, way: Continuation, end: Positions) -> SourceOffset:
    """The offset that ends a batch along `way` at `end`. It has the beginning of the batch if `start` is another
    one."""
    if start.is_initial:
        begun_from: Positions | None = way.begin
    else:
        begun_from = {p: offset for p, offset in way.begin.items() if start.positions.get(p) != offset} or None
    return SourceOffset(end, way.topic_ids, begun_from, let_go=way.let_go)


def stream_ranges(start: SourceOffset, end: SourceOffset) -> list[PlannedRange]:
    """The ranges of one micro-batch: a pure function of its two offsets, with the same result at each replay."""
    if start == end:
        return []
    begin = {**start.positions, **(end.begun_from or {})}
    return _ranges({p: begin.get(p, offset) for p, offset in end.positions.items()}, end.positions, end.topic_ids)


def split(
    ranges: Sequence[PlannedRange], min_partitions: int | None, max_records: int | None = None
) -> list[PlannedRange]:
    """The ranges with offsets, cut into pieces of at most `max_records` offsets. Then the ranges with the largest
    pieces are cut further, until there are `min_partitions` pieces (or one per offset). Raises InvalidOption for too
    many."""
    whole = [planned_range for planned_range in ranges if planned_range.size > 0]
    pieces = [1 if max_records is None else -(-planned_range.size // max_records) for planned_range in whole]
    wanted = min(min_partitions or 0, sum(planned_range.size for planned_range in whole))
    if max(wanted, sum(pieces)) > MAX_TASKS:
        given = f"minPartitions={min_partitions} and maxRecordsPerPartition={max_records}"
        raise InvalidOption(
            f"{given} make {max(wanted, sum(pieces))} tasks for one batch, and the connector allows {MAX_TASKS}, since "
            "Spark's driver could not hold more: give a lower minPartitions, or a higher maxRecordsPerPartition"
        )
    largest = [
        (-planned_range.size // count, index)
        for index, (planned_range, count) in enumerate(zip(whole, pieces, strict=True))
    ]
    heapq.heapify(largest)
    for _ in range(wanted - sum(pieces)):
        _, index = largest[0]
        pieces[index] += 1
        # the ceiling of its piece's size, so that a range of single offsets comes last
        heapq.heapreplace(largest, (-whole[index].size // pieces[index], index))
    return [piece for planned_range, count in zip(whole, pieces, strict=True) for piece in _cut(planned_range, count)]


def gathered(ranges: Sequence[PlannedRange]) -> list[tuple[PlannedRange, ...]]:
    """One task for each range. Neighbouring ranges with few offsets together share a task, because a task costs more
    than they do."""
    tasks: list[list[PlannedRange]] = []
    offsets = 0
    for planned_range in ranges:
        offsets += planned_range.size
        if not tasks or offsets > SMALL_TASK_OFFSETS:
            tasks.append([])
            offsets = planned_range.size
        tasks[-1].append(planned_range)
    return [tuple(task) for task in tasks]


def _cut(whole: PlannedRange, count: int) -> list[PlannedRange]:
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [PlannedRange(whole.partition, start, end, whole.topic_id) for start, end in pairwise(bounds) if start < end]


def _ranges(start: Positions, end: Positions, topic_ids: Mapping[str, str]) -> list[PlannedRange]:
    return [
        PlannedRange(partition, start[partition], end[partition], topic_ids.get(partition.topic))
        for partition in sorted(end)
        if start[partition] < end[partition]
    ]


def _recreated(topic: str, start: SourceOffset, now: Snapshot) -> str:
    gone = sorted(partition for partition in start.positions if partition.topic == topic)
    places = [
        f"partition {partition} was read to offset {start.positions[partition]} "
        + (
            f"(now it has offsets {now.earliest[partition]} to {now.latest[partition]})"
            if partition in now.latest
            else "(now it does not exist)"
        )
        for partition in gone[:_MOST_NAMED]
    ]
    more = [f"and {len(gone) - _MOST_NAMED} more partitions of it"] if len(gone) > _MOST_NAMED else []
    return (
        f"topic '{topic}' was deleted and created again (id {start.topic_ids[topic]}, now {now.topic_ids[topic]}): "
        + ", ".join(places + more)
    )


def until(target: Snapshot, now: Snapshot) -> Snapshot:
    """The snapshot that bounds an AvailableNow query: up to `target`, as far as its offsets exist. No partition of it
    has vanished."""
    return Snapshot(
        target.topic_ids,
        {partition: now.earliest[partition] for partition in target.latest},
        {partition: min(end, now.latest[partition]) for partition, end in target.latest.items()},
    )


def vanished(before: Snapshot, now: Snapshot) -> list[Partition]:
    """The partitions of `before` that are gone, or whose topic was created again."""
    return sorted(
        partition
        for partition in before.latest
        if partition not in now.latest or before.topic_ids[partition.topic] != now.topic_ids[partition.topic]
    )
