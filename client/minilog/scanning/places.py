"""Where a scan begins and ends, as the user says it, per partition. Pure.

    an offset    "earliest"    "latest"    "@1714566600000" (milliseconds since 1970)    a datetime with its zone
    {0: an offset, 1: ...}    of some partitions

The words are those of a group's seek (groups/descriptions.py), which also says which offset they mean.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from minilog.errors import InvalidArgument
from minilog.place_words import named_place
from minilog.types import GroupPosition, TopicPartition

Place: TypeAlias = GroupPosition | datetime.datetime
Places: TypeAlias = Place | Mapping[int, Place] | None
"""One for all partitions, or some for each; None: the start, or the end, of what may be read."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def places_of(
    topic: str, given: Places, default: GroupPosition, partitions: Sequence[int]
) -> dict[TopicPartition, GroupPosition]:
    """The place of each partition that is read. Raises InvalidArgument."""
    if isinstance(given, Mapping):
        if strange := sorted(number for number in given if number not in partitions):
            raise InvalidArgument(
                f"a place is given for partition {strange[0]!r} of topic {topic!r}, which the scan does not read: it "
                f"reads {', '.join(map(str, partitions))}"
            )
        places = {number: given.get(number, default) for number in partitions}
    else:
        places = dict.fromkeys(partitions, default if given is None else given)
    return {TopicPartition(topic, number): _position(topic, place) for number, place in places.items()}


def _position(topic: str, place: Place) -> GroupPosition:
    if not isinstance(place, datetime.datetime):
        return named_place(place)
    if place.tzinfo is None:
        raise InvalidArgument(f"{place.isoformat()} for topic {topic!r} has no zone: give a datetime with its zone")
    since = place - _EPOCH
    milliseconds = -(-since // datetime.timedelta(milliseconds=1))  # the first one that is not before it
    if milliseconds < 0:
        raise InvalidArgument(f"{place.isoformat()} for topic {topic!r} is before 1970: give a later time")
    return f"@{milliseconds}"


def check_order(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    """Raises InvalidArgument where a partition would end before it starts."""
    for partition, first in start.items():
        if first > end[partition]:
            raise InvalidArgument(
                f"partition {partition.partition} of topic {partition.topic!r} would end before it starts: the start "
                f"is offset {first}, the end is offset {end[partition]}; give an end at or above the start"
            )
