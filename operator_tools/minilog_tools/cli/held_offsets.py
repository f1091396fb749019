"""The offsets that a partition holds, and where in them a command begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minilog_broker.failure import CommandFailed


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """The offsets that one partition holds now: from `start`, and below `end`."""

    start: int
    end: int


def begin_offsets(topic: str, offset: str, ranges: Mapping[int, HeldOffsets]) -> dict[int, int]:
    """The first offset of each partition for earliest, latest, N or -N.

    Raises CommandFailed, which names a partition that does not hold N.
    """
    begins = {}
    for partition, held in ranges.items():
        if offset == "earliest":
            begins[partition] = held.start
        elif offset == "latest":
            begins[partition] = held.end
        elif offset.startswith("-"):
            begins[partition] = max(held.start, held.end + int(offset))
        elif held.start <= int(offset) <= held.end:
            begins[partition] = int(offset)
        else:
            raise CommandFailed(
                f"offset {offset} is outside {topic}-{partition}, whose log goes from {held.start} to {held.end}: "
                f"choose one inside, or name another partition with -p"
            )
    return begins
