"""The offsets that a partition holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """The offsets that one partition holds now: from `start`, and below `end`."""

    start: int
    end: int
