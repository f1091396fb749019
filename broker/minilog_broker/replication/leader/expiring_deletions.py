"""When deletions expire: `delete.retention.ms` after their leader has removed the older records of their keys.

A reader that has seen an older record of a key has this time to see the deletion, too. The leader counts it from the
moment at which its cleaner finds its own copy clean. A new leader does not know that moment. So it counts from the
begin of its own epoch: deletions may stay longer, but never shorter.
"""

from __future__ import annotations

from collections import deque

from minilog_broker.storage.compaction_point import NOT_COMPACTED, CompactionPoint

MOST_REMEMBERED = 10_000  # above that each second one is dropped, not the last: its deletions wait for the next one


class ExpiringDeletions:
    """The values of `clean_to` that the copy of one leader epoch has carried out, with their times.

    All times are monotonic, in milliseconds."""

    def __init__(self, done: CompactionPoint, now_ms: float) -> None:
        """`done` is the point that the copy has carried out when the epoch begins."""
        self._cleaned: deque[tuple[int, float]] = deque()
        self._deletes_before = NOT_COMPACTED.deletes_before
        self.cleaned(done, now_ms)

    def cleaned(self, done: CompactionPoint, now_ms: float) -> None:
        """Note that the copy has carried out this point. The first time counts."""
        self._deletes_before = done.deletes_before
        while self._cleaned and self._cleaned[0][0] <= done.deletes_before:
            self._cleaned.popleft()
        last = self._cleaned[-1][0] if self._cleaned else done.deletes_before
        if done.clean_to > last:
            self._cleaned.append((done.clean_to, now_ms))
        if len(self._cleaned) > MOST_REMEMBERED:
            self._cleaned = deque(list(self._cleaned)[::-2][::-1])

    def deletes_before(self, now_ms: float, delete_retention_ms: float) -> int:
        """The offset below which deletions have had their time. It never goes back."""
        expired = [clean_to for clean_to, since_ms in self._cleaned if since_ms + delete_retention_ms <= now_ms]
        return max(expired, default=self._deletes_before)
