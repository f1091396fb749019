"""The ends of a log over time. They give an estimate of the age of a record. To read it from the log costs too much."""

from __future__ import annotations

MAX_POINTS = 32


class EndHistory:
    """The ends of a log over time: at most MAX_POINTS points."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def note(self, now_s: float, end: int) -> None:
        """Note an end. Where the history is full, every other point of the older half goes."""
        if len(self._points) == MAX_POINTS:
            half = MAX_POINTS // 2
            self._points = [*self._points[:half:2], *self._points[half:]]
        self._points.append((now_s, end))

    def seconds_since(self, offset: int, now_s: float) -> float:
        """The time since the log ended at `offset`, when the record there came. 0 where that record is not there
        yet."""
        points = self._points
        if not points or points[-1][1] <= offset:
            return 0.0
        behind = next(index for index, (_, end) in enumerate(points) if end > offset)
        after_s, after = points[behind]
        if behind == 0:
            return now_s - after_s
        before_s, before = points[behind - 1]
        return now_s - (before_s + (after_s - before_s) * (offset - before) / (after - before))
