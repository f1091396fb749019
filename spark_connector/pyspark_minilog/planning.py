"""From offsets to ranges to tasks. Pure: what the cluster said comes in as a `Snapshot`.

The rules of data loss (SPARK.md section 3) are here: a topic that is gone or is another one, a start below the log, an
end below a start. They come out as sentences; the readers decide whether to raise or to warn. Either way no offset is
moved back, none is read twice, and what is skipped is only what is not there.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.offsets import EARLIEST, LATEST, OffsetSpec, Partition, Positions, SourceOffset


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the cluster said at one moment of the partitions that a query reads. Ids in hexadecimal."""

    topic_ids: dict[str, str]
    earliest: Positions
    latest: Positions


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition of the topic with this id (None: whatever topic has the name)."""

    partition: Partition
    start: int
    end: int
    topic_id: str | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where a stream goes on: from `begin` to at most `end`. `losses` and `lower` are sentences about lost data; those
    of `lower` may pass, as when a leader does not yet know how far its log is committed."""

    begin: Positions
    end: Positions
    topic_ids: dict[str, str]
    losses: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()


def resolve(spec: OffsetSpec, snapshot: Snapshot) -> tuple[Positions, tuple[str, ...]]:
    """The offsets that a user asked for, brought into what the logs hold, and what data is missed by that."""
    spec.check_names(snapshot.latest)
    losses = [
        f"{spec.option} was given for topic '{topic}' of id {given}, which now has id {snapshot.topic_ids[topic]}: it "
        "was deleted and created again"
        for topic, given in sorted(spec.topic_ids.items())
        if given != snapshot.topic_ids.get(topic, given)
    ]
    positions: Positions = {}
    for partition, latest in snapshot.latest.items():
        earliest = snapshot.earliest[partition]
        match spec.place_of(partition):
            case offset if offset == EARLIEST:
                positions[partition] = earliest
            case offset if offset == LATEST or offset is None:
                positions[partition] = latest
            case offset:
                positions[partition] = min(max(offset, earliest), latest)
                if positions[partition] != offset:
                    losses.append(
                        f"{spec.option} of partition {partition} was {offset}, but its log holds offsets {earliest} to "
                        f"{latest}: {positions[partition]} is the nearest"
                    )
    return positions, tuple(losses)


def batch_ranges(starting: OffsetSpec, ending: OffsetSpec, snapshot: Snapshot) -> tuple[list[Range], tuple[str, ...]]:
    """The ranges of a batch, and what data is missed. Raises InvalidOption where one would end before it starts."""
    start, start_losses = resolve(starting, snapshot)
    end, end_losses = resolve(ending, snapshot)
    for partition in sorted(start):
        given = (starting.place_of(partition), ending.place_of(partition))
        # As given first: bringing both into the log must not hide a range that is upside down.
        upside_down = None not in given and min(given) >= 0 and given[0] > given[1]  # type: ignore[type-var,operator]
        if upside_down or start[partition] > end[partition]:
            raise InvalidOption(
                f"partition {partition} would end before it starts: startingOffsets '{starting.text}' is offset "
                f"{start[partition]}, endingOffsets '{ending.text}' is offset {end[partition]}; give an end at or "
                "above the start"
            )
    return _ranges(start, end, snapshot.topic_ids), start_losses + end_losses


def continue_from(start: SourceOffset, snapshot: Snapshot) -> Continuation:
    """Where a stream that stands at `start` goes on. New partitions and topics begin at their earliest offset."""
    begin: Positions = {}
    end: Positions = {}
    losses: list[str] = []
    lower: list[str] = []
    recreated = {t for t, known in start.topic_ids.items() if snapshot.topic_ids.get(t, known) != known}
    losses += [_recreated(topic, start.topic_ids[topic], snapshot.topic_ids[topic]) for topic in sorted(recreated)]
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
        if position is not None and latest < position:
            lower.append(f"partition {partition} ends at offset {latest}, the query has read to offset {position}")
    topic_ids = dict(snapshot.topic_ids)
    for partition in sorted(start.positions.keys() - snapshot.latest.keys()):
        if partition.topic not in recreated:
            losses.append(f"partition {partition}, read to offset {start.positions[partition]}, is not there any more")
            begin[partition] = end[partition] = start.positions[partition]
            if partition.topic in start.topic_ids:
                topic_ids[partition.topic] = start.topic_ids[partition.topic]
    return Continuation(begin, end, topic_ids, tuple(losses), tuple(lower))


def end_offset(start: SourceOffset, way: Continuation, end: Positions) -> SourceOffset:
    """The offset that ends a batch along `way` at `end`; it says where the batch began if `start` does not."""
    if start.is_initial:
        begun_from: Positions | None = way.begin
    else:
        begun_from = {p: offset for p, offset in way.begin.items() if start.positions.get(p) != offset} or None
    return SourceOffset(end, way.topic_ids, begun_from)


def stream_ranges(start: SourceOffset, end: SourceOffset) -> list[Range]:
    """The ranges of one micro-batch: a pure function of its two offsets, the same whenever it is replayed."""
    if start == end:
        return []
    begin = {**start.positions, **(end.begun_from or {})}
    return _ranges({p: begin.get(p, offset) for p, offset in end.positions.items()}, end.positions, end.topic_ids)


def share(begin: Positions, end: Positions, limit: int) -> Positions:
    """`end` lowered so that about `limit` offsets are read, in proportion to what each partition has to give.

    Each partition that has any gives at least one, so that small ones never starve; the sum may pass the limit by
    fewer than there are partitions.
    """
    total = sum(end[partition] - begin[partition] for partition in end)
    if total <= limit:
        return dict(end)
    return {
        partition: begin[partition] + min(size, max(1, limit * size // total))
        if (size := last - begin[partition])
        else last
        for partition, last in end.items()
    }


def split(ranges: Sequence[Range], min_partitions: int | None) -> list[Range]:
    """The non-empty ranges, the largest cut until there are `min_partitions` of them (or one per offset)."""
    whole = [each for each in ranges if each.size > 0]
    if not whole or min_partitions is None or len(whole) >= min_partitions:
        return whole
    wanted = min(min_partitions, sum(each.size for each in whole))
    pieces = [1] * len(whole)
    largest = [(-each.size, index) for index, each in enumerate(whole)]
    heapq.heapify(largest)
    for _ in range(wanted - len(whole)):
        _, index = largest[0]
        pieces[index] += 1
        # the ceiling of its piece's size, so that a range of single offsets comes last
        heapq.heapreplace(largest, (-whole[index].size // pieces[index], index))
    return [piece for each, count in zip(whole, pieces, strict=True) for piece in _cut(each, count)]


def _cut(whole: Range, count: int) -> list[Range]:
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [Range(whole.partition, start, end, whole.topic_id) for start, end in pairwise(bounds) if start < end]


def _ranges(start: Positions, end: Positions, topic_ids: Mapping[str, str]) -> list[Range]:
    return [
        Range(each, start[each], end[each], topic_ids.get(each.topic))
        for each in sorted(end)
        if start[each] < end[each]
    ]


def _recreated(topic: str, known: str, found: str) -> str:
    return f"topic '{topic}' was deleted and created again: the one that was read has id {known}, now it has id {found}"


def vanished(before: Snapshot, now: Snapshot) -> list[Partition]:
    """The partitions of `before` that are gone, or are those of another topic of the same name."""
    return sorted(
        each
        for each in before.latest
        if each not in now.latest or before.topic_ids[each.topic] != now.topic_ids[each.topic]
    )
