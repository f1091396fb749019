"""The window of the newest writes in the page cache of a broker's data disk. Older pages may leave the cache.

The kernel keeps written pages until memory is short. So each write takes a page that was not used before. On a
virtual machine whose host takes free memory back, such pages cost 2 to 3 CPU seconds a GB: four times the write. If
older pages leave the cache, the next write gets those. Followers and readers at the log's end find their pages in the
window. Readers that are further behind read from the disk.

O_DIRECT saves as much (docs/internals/departures.md has the figures). But it would need aligned copies, a tail of its
own, and a cache of its own for readers.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

UNIT_BYTES = 1 << 20  # the least range that leaves the cache at once: a smaller one costs more calls and entries


class Cached(Protocol):
    """A file whose pages can leave the page cache."""

    def forget(self, begin: int, end: int) -> None:
        """Advise the kernel to drop these bytes from the page cache. Bytes that are not on the disk yet stay.

        Raises nothing."""


class PageWindow:
    """The window. The one thread that writes calls `wrote` after each write, in order.

    If `most_bytes` is None, the window does nothing, and the kernel decides."""

    def __init__(self, most_bytes: int | None) -> None:
        self._most_bytes = most_bytes
        self._kept: deque[tuple[Cached, int, int]] = deque()
        self.kept_bytes = 0

    def wrote(self, file: Cached, position: int, size_bytes: int) -> None:
        """Take in a write of `size_bytes` at `position`. A unit counts when it is full. So each file's last unit stays
        in the page cache."""
        if self._most_bytes is None:
            return
        begin = position // UNIT_BYTES * UNIT_BYTES
        end = (position + size_bytes) // UNIT_BYTES * UNIT_BYTES
        if begin == end:
            return
        self._kept.append((file, begin, end))
        self.kept_bytes += end - begin
        while self.kept_bytes > self._most_bytes:
            oldest, begin, end = self._kept.popleft()
            self.kept_bytes -= end - begin
            oldest.forget(begin, end)
