"""Whose turn it is with the cleaner's one thread. Pure.

    due ──► its turn ──► done
                └── its time is over ──► it waits with what it has read, behind the others ──► its turn goes on

Topics of the cluster itself go first in each round. So nobody's records keep the cleaner from them, or from the other
topics, for longer than a round. A copy that waits keeps its table of keys in memory, so only `MOST_WAITING` do. Another
one that needs more than one turn begins anew, until one of these is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from minilog.partition_key import PartitionKey

TURN_S = 10.0  # reads and writes 640 MiB at the default rate, so most cleanings take one turn
ROUND_S = 60.0  # the longest wait of a topic of the cluster itself, but for one turn
MOST_WAITING = 2  # tables of log.cleaner.dedupe.buffer.size, beside that of the copy whose turn it is

Work = TypeVar("Work")
Copy = TypeVar("Copy")


@dataclass(frozen=True, slots=True)
class _Paused(Generic[Work]):
    since_s: float
    work: Work | None


class CleanerTurns(Generic[Work]):
    """See the module. `is_internal(topic_id)` names the topics of the cluster itself."""

    def __init__(self, is_internal: Callable[[bytes], bool]) -> None:
        self._is_internal = is_internal
        self._paused: dict[PartitionKey, _Paused[Work]] = {}

    @property
    def has_paused(self) -> bool:
        """Whether a copy waits for its next turn."""
        return bool(self._paused)

    def in_order(self, due: Iterable[Copy], key: Callable[[Copy], PartitionKey]) -> list[Copy]:
        """The copies that are due, those first whose turn comes first."""
        return sorted(due, key=lambda copy: self._place(key(copy)))

    def take(self, key: PartitionKey) -> Work | None:
        """The work that this copy goes on with, if it waits with some."""
        paused = self._paused.pop(key, None)
        return None if paused is None else paused.work

    def pause(self, key: PartitionKey, work: Work, now_s: float) -> bool:
        """The time of this copy is over. False if the caller must give up the work, because too many others wait."""
        waiting = sum(paused.work is not None for paused in self._paused.values())
        self._paused[key] = _Paused(now_s, work if waiting < MOST_WAITING else None)
        return waiting < MOST_WAITING

    def forget_all_but(self, due: Iterable[PartitionKey]) -> list[Work]:
        """The work of copies that are not due any more, for the caller to give up."""
        gone = self._paused.keys() - set(due)
        return [work for key in sorted(gone) if (work := self._paused.pop(key).work) is not None]

    def _place(self, key: PartitionKey) -> tuple[bool, float]:
        paused = self._paused.get(key)
        return not self._is_internal(key.topic_id), -1.0 if paused is None else paused.since_s
