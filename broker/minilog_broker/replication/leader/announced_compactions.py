"""When deletions expire: `delete.retention.ms` after their leader has announced that the records before them go.

A reader that has seen an older record of a key has this time to see the deletion, too. The leader counts it from the
moment at which it announced `clean_to`. A new leader does not know that moment. So it counts from the begin of its own
epoch: deletions may stay longer, but never shorter.
"""

from __future__ import annotations

from collections import deque

from minilog_broker.storage.compaction_point import NOT_COMPACTED, CompactionPoint

MOST_REMEMBERED = 10_000  # above that each second one is dropped, not the last: its deletions wait for the next one


class AnnouncedCompactions:
    """The values of `clean_to` that one leader epoch has announced, with their times (monotonic, in ms)."""

    def __init__(self, point: CompactionPoint, now_ms: float) -> None:
        """`point` is the known point when the epoch begins."""
        self._announced: deque[tuple[int, float]] = deque()
        self._deletes_before = NOT_COMPACTED.deletes_before
        self.announced(point, now_ms)

    def announced(self, point: CompactionPoint, now_ms: float) -> None:
        """Note a point that the leader announces now."""
        self._deletes_before = point.deletes_before
        while self._announced and self._announced[0][0] <= point.deletes_before:
            self._announced.popleft()
        last = self._announced[-1][0] if self._announced else point.deletes_before
        if point.clean_to > last:
            self._announced.append((point.clean_to, now_ms))
        if len(self._announced) > MOST_REMEMBERED:
            self._announced = deque(list(self._announced)[::-2][::-1])

    def deletes_before(self, now_ms: float, delete_retention_ms: float) -> int:
        """The offset below which deletions have had their time. It never goes back."""
        due = [clean_to for clean_to, since_ms in self._announced if since_ms + delete_retention_ms <= now_ms]
        return max(due, default=self._deletes_before)
