"""From what users say of a beginning or an end to offsets that the logs hold. Pure.

An offset that a log does not hold is data loss, and the nearest is taken; a relative place never is, nor a timestamp:
they mean what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_minilog.errors import refused
from pyspark_minilog.limits import SizeMarks
from pyspark_minilog.offsets import EARLIEST, LATEST, OffsetSpec, Partition, Positions
from pyspark_minilog.places import AtTimestamp, LastRecords, OfGroup, Place

if TYPE_CHECKING:
    from pyspark_minilog.typed_rows import TypedTopic


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the cluster said at one moment of the partitions that a query reads. Ids in hexadecimal.

    `marks` are there where bytes were asked for. `schemas`: of each topic, None where it has none."""

    topic_ids: dict[str, str]
    earliest: Positions
    latest: Positions
    marks: dict[Partition, SizeMarks] = field(default_factory=dict)
    schemas: dict[str, TypedTopic | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The offsets of a place, and sentences about the data that is missed by them."""

    place: Place
    positions: Positions
    losses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.place.option} '{self.place.text}'"


def resolve(place: Place, snapshot: Snapshot, found: Mapping[Partition, int | None] | None = None) -> Resolved:
    """The offsets meant. `found`: the answers to `timestamps_ms(place, …)`, None where no record is as young; of a
    group what it has committed, None where that is nothing.

    Raises InvalidOption for partitions that do not fit, and for a timestamp without a record under strategy error.
    """
    match place:
        case OffsetSpec():
            return _resolve_offsets(place, snapshot)
        case LastRecords():
            earliest = snapshot.earliest
            return Resolved(
                place, {each: max(earliest[each], end - place.count) for each, end in snapshot.latest.items()}
            )
        case OfGroup():
            committed = {each: (found or {}).get(each) for each in snapshot.latest}
            positions = {each: EARLIEST if offset is None else offset for each, offset in committed.items()}
            spec = _resolve_offsets(OffsetSpec(place.option, place.text, positions=positions), snapshot)
            return Resolved(place, spec.positions, spec.losses)
        case _:
            answers = found or {}
            _check_found(place, answers)
            return Resolved(place, {each: _within(each, answers.get(each), snapshot) for each in snapshot.latest})


def _resolve_offsets(spec: OffsetSpec, snapshot: Snapshot) -> Resolved:
    spec.check_names(snapshot.latest)
    losses = [
        f"{spec.option} is for topic '{topic}' with id {given}, but the topic has id {snapshot.topic_ids[topic]} now: "
        "it was deleted and created again"
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
    return Resolved(spec, positions, tuple(losses))


def _check_found(place: Place, found: Mapping[Partition, int | None]) -> None:
    if not isinstance(place, AtTimestamp) or place.or_latest:
        return
    missing = sorted(each for each, offset in found.items() if offset is None)
    if missing:
        raise refused(
            place.option,
            place.text,
            f"all records of {', '.join(map(str, missing))} are older: give an earlier timestamp, or set "
            "startingOffsetsByTimestampStrategy to latest to begin behind the last record",
        )


def _within(partition: Partition, offset: int | None, snapshot: Snapshot) -> int:
    latest = snapshot.latest[partition]
    return latest if offset is None else min(max(offset, snapshot.earliest[partition]), latest)


def upside_down(start: Place, end: Place, partition: Partition) -> bool:
    """Whether the end of a partition is before its start already as given, whatever its log holds."""
    match start, end:
        case OffsetSpec(), OffsetSpec():
            first, last = start.place_of(partition), end.place_of(partition)
        case AtTimestamp(), AtTimestamp():
            first, last = start.timestamp_of(partition), end.timestamp_of(partition)
        case _:
            return False
    return first is not None and last is not None and min(first, last) >= 0 and first > last
