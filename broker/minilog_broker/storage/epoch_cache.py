"""The leader epochs of a log, each with the offset at which it began. The log keeps them in the file `leader-epoch`.

Rule V3: both columns increase strictly. If an epoch has no records, the next epoch replaces it at the same offset.
A change replaces an immutable pair of columns. So a reader on another thread sees the old pair or the new one. Pure:
the log writes the file. The vocabulary and the answers are those of KIP-101 and KIP-279.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

NO_EPOCH = -1
_ENTRY = struct.Struct("<iq")

Entries: TypeAlias = tuple[tuple[int, int], ...]  # (epoch, start offset)


class EpochCache:
    """Entries (epoch, start offset). An epoch ends where the next one starts. The latest one ends at the log's end."""

    __slots__ = ("_columns",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._columns: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def __repr__(self) -> str:
        return f"EpochCache({list(self.entries)})"

    @property
    def entries(self) -> Entries:
        return tuple(zip(*self._columns, strict=True))

    @property
    def latest_epoch(self) -> int | None:
        epochs = self._columns[0]
        return epochs[-1] if epochs else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which a leader wrote the record at `offset`. None if `offset` is below the first entry."""
        epochs, starts = self._columns
        index = bisect_right(starts, offset) - 1
        return epochs[index] if index >= 0 else None

    def start_offset_of(self, epoch: int) -> int | None:
        """The offset at which exactly this epoch began. None if the cache does not have the epoch."""
        epochs, starts = self._columns
        index = bisect_left(epochs, epoch)
        return starts[index] if index < len(epochs) and epochs[index] == epoch else None

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and the offset at which it ends.

        If all epochs are larger, the answer is (-1, the offset at which the first one starts)."""
        epochs, starts = self._columns
        index = bisect_right(epochs, epoch)
        end_offset = starts[index] if index < len(starts) else log_end
        return (epochs[index - 1] if index else NO_EPOCH), end_offset

    def agrees(self, starts: Sequence[tuple[int, int]], end_offset: int, log_start: int) -> bool:
        """Whether this cache has the epochs of some adjacent batches, which end at `end_offset`.

        `starts` has an entry (epoch, start offset) for the first batch and for each later batch that begins an epoch.
        Offsets below `log_start` do not count."""
        if not starts:
            return True
        first_offset = max(starts[0][1], log_start)
        batches = EpochCache(starts)
        if first_offset < end_offset and batches.epoch_for_offset(first_offset) != self.epoch_for_offset(first_offset):
            return False
        within = [entry for entry in self.entries if first_offset < entry[1] < end_offset]
        return within == [entry for entry in batches.entries if entry[1] > first_offset]

    def copy(self) -> EpochCache:
        """Another cache with the same entries."""
        copy = EpochCache()
        copy._columns = self._columns
        return copy

    def replace(self, other: EpochCache) -> None:
        """Take the entries of `other`. The log does this after it has written them to the disk."""
        self._columns = other._columns

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` starts at `start_offset`, the log's end. Returns whether anything changed.

        Entries at or above `start_offset` have no records, so the cache drops them. Raises ValueError if `epoch` is
        below the latest epoch that is left.
        """
        epochs, starts = self._columns
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return False
        kept = bisect_left(starts, start_offset)
        if kept and epochs[kept - 1] == epoch:
            self._columns = (epochs[:kept], starts[:kept])
            return True
        if epoch < 0 or (kept and epochs[kept - 1] > epoch):
            raise ValueError(f"leader epoch {epoch} cannot start at offset {start_offset}: {self!r} has a later one")
        self._columns = ((*epochs[:kept], epoch), (*starts[:kept], start_offset))
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that start at or above `end_offset`, the log's new end. Returns whether there were any."""
        epochs, starts = self._columns
        kept = bisect_left(starts, end_offset)
        self._columns = (epochs[:kept], starts[:kept])
        return kept < len(epochs)

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop the epochs that end at or below `start_offset`, the log's new start. The first one left starts there.

        Returns whether anything changed."""
        epochs, starts = self._columns
        index = bisect_right(starts, start_offset) - 1
        if index < 0 or (index == 0 and starts[0] == start_offset):
            return False
        self._columns = (epochs[index:], (start_offset, *starts[index + 1 :]))
        return True

    def clear(self) -> None:
        self._columns = ((), ())

    def encode(self) -> bytes:
        """The content of the file."""
        return b"".join(_ENTRY.pack(epoch, start) for epoch, start in self.entries)

    @classmethod
    def decode(cls, content: bytes) -> EpochCache:
        """Make a cache of a file's content. Raises ValueError if the content is not a list of epochs."""
        if len(content) % _ENTRY.size:
            raise ValueError(f"a list of leader epochs cannot have {len(content)} bytes")
        entries = list(_ENTRY.iter_unpack(content))
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in itertools.pairwise(entries)):
            raise ValueError("leader epochs do not increase")
        return cls(entries)
