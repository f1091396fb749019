"""Produce entries that wait for their condition, by the offset behind the batch: each is taken out once."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from minilog.errors import MinilogError
from minilog.record_batch.header import BatchHeader, Buffer

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


class TransactionalWrite(NamedTuple):
    """Whom to ask about a transactional batch."""

    transactional_id: str
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ProduceEntry:
    """One batch that a client sent, and what it waits for. `transaction`: said to be of it. `validated`: what came of
    its validation, where whoever gave it has done that. `now_us`: the wall clock, None where it is not trusted."""

    ticket: object
    acks: int
    deadline_ms: float
    batch: Buffer
    transaction: TransactionalWrite | None = None
    validated: BatchHeader | MinilogError | None = None
    now_us: int | None = None


@dataclass(frozen=True, slots=True)
class PendingProduce:
    """Acknowledged at `base_offset` when the end that is waited for reaches `end_offset`."""

    ticket: object
    base_offset: int
    end_offset: int
    deadline_ms: float


class PendingProduces:
    """In order of `end_offset`. Bounded by what producers may have unanswered, and by their time-outs."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: deque[PendingProduce] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, pending: PendingProduce) -> None:
        """At its place: at the end, but for a duplicate of a batch that is still waited for."""
        position = len(self._pending)
        while position and self._pending[position - 1].end_offset > pending.end_offset:
            position -= 1
        self._pending.insert(position, pending)

    def take_reached(self, end_offset: int) -> list[PendingProduce]:
        """Those whose condition holds."""
        reached: list[PendingProduce] = []
        while self._pending and self._pending[0].end_offset <= end_offset:
            reached.append(self._pending.popleft())
        return reached

    def take_expired(self, now_ms: float) -> list[PendingProduce]:
        """Those whose time is over."""
        expired = [pending for pending in self._pending if pending.deadline_ms <= now_ms]
        if expired:
            self._pending = deque(pending for pending in self._pending if pending.deadline_ms > now_ms)
        return expired

    def take_above(self, end_offset: int) -> list[PendingProduce]:
        """Those that end above an offset."""
        above: list[PendingProduce] = []
        while self._pending and self._pending[-1].end_offset > end_offset:
            above.append(self._pending.pop())
        return above[::-1]

    def next_deadline_ms(self) -> float:
        """When the first one times out; infinity where nothing is pending."""
        return min((pending.deadline_ms for pending in self._pending), default=math.inf)
