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
    its validation, where whoever gave it has done that."""

    ticket: object
    acks: int
    deadline_ms: float
    batch: Buffer
    transaction: TransactionalWrite | None = None
    validated: BatchHeader | MinilogError | None = None


@dataclass(frozen=True, slots=True)
class ParkedProduce:
    """Acknowledged at `base_offset` when the end that is waited for reaches `end_offset`."""

    ticket: object
    base_offset: int
    end_offset: int
    deadline_ms: float


class ParkedProduces:
    """In order of `end_offset`. Bounded by what producers may have unanswered, and by their time-outs."""

    __slots__ = ("_parked",)

    def __init__(self) -> None:
        self._parked: deque[ParkedProduce] = deque()

    def __len__(self) -> int:
        return len(self._parked)

    def add(self, parked: ParkedProduce) -> None:
        """At its place: at the end, but for a duplicate of a batch that is still waited for."""
        position = len(self._parked)
        while position and self._parked[position - 1].end_offset > parked.end_offset:
            position -= 1
        self._parked.insert(position, parked)

    def take_reached(self, end_offset: int) -> list[ParkedProduce]:
        """Those whose condition holds."""
        reached: list[ParkedProduce] = []
        while self._parked and self._parked[0].end_offset <= end_offset:
            reached.append(self._parked.popleft())
        return reached

    def take_expired(self, now_ms: float) -> list[ParkedProduce]:
        """Those whose time is over."""
        expired = [parked for parked in self._parked if parked.deadline_ms <= now_ms]
        if expired:
            self._parked = deque(parked for parked in self._parked if parked.deadline_ms > now_ms)
        return expired

    def take_above(self, end_offset: int) -> list[ParkedProduce]:
        """Those that end above an offset."""
        above: list[ParkedProduce] = []
        while self._parked and self._parked[-1].end_offset > end_offset:
            above.append(self._parked.pop())
        return above[::-1]

    def next_deadline_ms(self) -> float:
        """When the first one times out; infinity where nothing is parked."""
        return min((parked.deadline_ms for parked in self._parked), default=math.inf)
