"""Numbers over time, as viewers' looks at the cluster find them. A core: the time comes in.

A history begins with the first look, and has gaps where nobody looked. A rate is made of two looks: the records that
were written between them, counted in the partitions that both know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

MOST_POINTS = 360  # half an hour of looks, one every 5 s
MOST_SERIES = 64  # of one viewer; the one that was added to least recently makes room


@dataclass(frozen=True, slots=True)
class Series:
    """Points in order of time, seconds since 1970; what a chart is drawn of."""

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
        """Where partitions (a topic's id, a number) end: the series is of the records a second that were written
        since the last look."""
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
