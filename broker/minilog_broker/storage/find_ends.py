"""The search in a log for the markers of forgotten producers.

The state has dropped the ends of these producers, so only the log still has them (transactions.py, FORGOTTEN)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from minilog.errors import CorruptMessage
from minilog_broker.storage.producer_state import ReplayableLog, markers_in
from minilog_broker.storage.transactions import OffsetRange

STEP_BATCHES = 2_000  # headers of one step: they take some milliseconds of a disk thread, which other work needs, too


@dataclass(frozen=True, slots=True)
class FoundEnd:
    """How a producer ended, and the offset behind its marker."""

    marker_end_offset: int
    committed: bool


class EndsSearch:
    """A search in one log for the ends of some producers.

    A producer's first marker is its end. The caller calls `step` until `finished` or `damage` is set.
    """

    def __init__(self, producer_ids: Collection[int], within: OffsetRange) -> None:
        self.ends: dict[int, FoundEnd] = {}
        self.finished = False
        self.damage: CorruptMessage | None = None
        self._producer_ids = producer_ids
        self._offset, self._end = within

    def step(self, log: ReplayableLog) -> None:
        """Search the next batches. Raises OSError."""
        try:
            self._step(log)
        except CorruptMessage as error:
            self.damage = error

    def _step(self, log: ReplayableLog) -> None:
        for number, (header, batch) in enumerate(log.replay(max(self._offset, log.log_start_offset))):
            if header.base_offset >= self._end or len(self.ends) == len(self._producer_ids):
                break
            if number == STEP_BATCHES:
                self._offset = header.base_offset
                return
            if header.is_control:
                for marker in markers_in(log.key, batch, header):
                    if marker.producer_id in self._producer_ids:
                        self.ends.setdefault(marker.producer_id, FoundEnd(header.next_offset, marker.committed))
        self.finished = True
