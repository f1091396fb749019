"""Turns a beginning or an end from the options into offsets that the logs hold. Pure.

If a log does not hold a given offset, that is data loss, and the query takes the nearest offset. A relative place or a
timestamp is never data loss, because it means the records that exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_minilog.errors import refused
from pyspark_minilog.options.limits import SizeMarks
from pyspark_minilog.options.offsets import EARLIEST, LATEST, OffsetSpec, Partition, Positions
from pyspark_minilog.options.places import AtTimestamp, LastRecords, OfGroup, Place

if TYPE_CHECKING:
    from pyspark_minilog.reading.typed_rows import TypedTopic


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster's answers at one moment, for the partitions that a query reads. Ids are hexadecimal.

    `marks` is empty unless the driver asked for bytes. `schemas` has each topic, with None for a topic without one."""

    topic_ids: dict[str, str]
    earliest: Positions
    latest: Positions
    marks: dict[Partition, SizeMarks] = field(default_factory=dict)
    schemas: dict[str, TypedTopic | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The offsets of a place, and sentences about the data that they miss."""

    place: Place
    positions: Positions
    losses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.place.option} '{self.place.text}'"


def resolve(place: Place, snapshot: Snapshot, answers: Mapping[Partition, int | None] | None = None) -> Resolved:
    """The offsets of a place. `answers`: the answers to `timestamps_ms(place, …)`, with None where no record is so
    young. For a group: its committed offsets, with None where it has committed none.

    Raises InvalidOption for partitions that do not fit, and for a timestamp without a record under strategy error.
    """
    match place:
        case OffsetSpec():
            return _resolve_offsets(place, snapshot)
        case LastRecords():
            earliest, latest = snapshot.earliest, snapshot.latest
            return Resolved(
                place, {partition: max(earliest[partition], end - place.count) for partition, end in latest.items()}
            )
        case OfGroup():
            committed = {partition: (answers or {}).get(partition) for partition in snapshot.latest}
            positions = {partition: EARLIEST if offset is None else offset for partition, offset in committed.items()}
            spec = _resolve_offsets(OffsetSpec(place.option, place.text, positions=positions), snapshot)
            return Resolved(place, spec.positions, spec.losses)
        case _:
            first_offsets = answers or {}
            _check_found(place, first_offsets)
            positions = {
                partition: _within(partition, first_offsets.get(partition), snapshot) for partition in snapshot.latest
            }
            return Resolved(place, positions)


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


def _check_found(place: Place, answers: Mapping[Partition, int | None]) -> None:
    if not isinstance(place, AtTimestamp) or place.or_latest:
        return
    missing = sorted(partition for partition, offset in answers.items() if offset is None)
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
    """Whether the options alone put the end of a partition before its start, whatever its log holds."""
    match start, end:
        case OffsetSpec(), OffsetSpec():
            first, last = start.place_of(partition), end.place_of(partition)
        case AtTimestamp(), AtTimestamp():
            first, last = start.timestamp_of(partition), end.timestamp_of(partition)
        case _:
            return False
    return first is not None and last is not None and min(first, last) >= 0 and first > last
