"""Numbers over time, one of each look at the cluster. A core: the time comes in.

A history begins with the first look, and has gaps where nobody looked. A rate comes from two looks: the records that
were written between them, in the partitions that both looks have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

MOST_POINTS = 360  # half an hour of looks, one every 5 s
MOST_SERIES = 64  # of one viewer: the one without a new value for longest makes room


@dataclass(frozen=True, slots=True)
class Series:
    """The points of a chart in order of time. `times_s`: seconds since 1970."""

    times_s: list[float]
    values: list[float]

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None


@dataclass(slots=True)
class _Track:
    points: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    ends_at_s: float | None = None


class History:
    """Series of numbers over time, for the charts of one view."""

    def __init__(self) -> None:
        self._tracks: dict[Hashable, _Track] = {}

    def add(self, name: Hashable, at_s: float, value: float) -> None:
        """A value of a series."""
        self._track(name).points.append((at_s, value))

    def add_ends(self, name: Hashable, at_s: float, ends: Mapping[tuple[str, int], int]) -> None:
        """The ends of partitions, by topic id and number. The series has the records a second between two looks."""
        track = self._track(name)
        if track.ends_at_s is not None and at_s > track.ends_at_s:
            written = sum(max(0, end - track.ends[key]) for key, end in ends.items() if key in track.ends)
            track.points.append((at_s, written / (at_s - track.ends_at_s)))
        track.ends, track.ends_at_s = ends, at_s

    def series(self, name: Hashable) -> Series:
        track = self._tracks.get(name)
        points = [] if track is None else list(track.points)
        return Series([round(at_s, 1) for at_s, _ in points], [round(value, 2) for _, value in points])

    def _track(self, name: Hashable) -> _Track:
        track = self._tracks.pop(name, None) or _Track()
        while len(self._tracks) >= MOST_SERIES:
            del self._tracks[next(iter(self._tracks))]
        self._tracks[name] = track
        return track
