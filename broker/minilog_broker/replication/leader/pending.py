"""The produce entries that wait for their condition, in the order of the offset behind the batch. Each leaves once."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from minilog.errors import MinilogError
from minilog.record_batch.header import BatchHeader, Buffer

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


class TransactionalWrite(NamedTuple):
    """The transactional id of a batch, and the epoch of the coordinator that the leader asks about it."""

    transactional_id: str
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ProduceEntry:
    """One batch that a client sent, with the condition that it waits for.

    `transaction`: the transaction that the client names. `validated`: the result of the validation, if the caller has
    validated the batch already. `now_us`: the wall clock, None if it is not trusted."""

    ticket: object
    acks: int
    deadline_ms: float
    batch: Buffer
    transaction: TransactionalWrite | None = None
    validated: BatchHeader | MinilogError | None = None
    now_us: int | None = None


@dataclass(frozen=True, slots=True)
class PendingProduce:
    """An entry that is acknowledged at `base_offset` when the end that it waits for reaches `end_offset`."""

    ticket: object
    base_offset: int
    end_offset: int
    deadline_ms: float


class PendingProduces:
    """Entries in the order of `end_offset`. Their number is bounded, because a producer may have only so many
    unanswered batches, and because each entry has a time-out."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: deque[PendingProduce] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, pending: PendingProduce) -> None:
        """Add an entry at its place. That is the end, except for a duplicate of a batch that still waits."""
        position = len(self._pending)
        while position and self._pending[position - 1].end_offset > pending.end_offset:
            position -= 1
        self._pending.insert(position, pending)

    def take_reached(self, end_offset: int) -> list[PendingProduce]:
        """Take out the entries whose condition holds."""
        reached: list[PendingProduce] = []
        while self._pending and self._pending[0].end_offset <= end_offset:
            reached.append(self._pending.popleft())
        return reached

    def take_expired(self, now_ms: float) -> list[PendingProduce]:
        """Take out the entries whose time is over."""
        expired = [pending for pending in self._pending if pending.deadline_ms <= now_ms]
        if expired:
            self._pending = deque(pending for pending in self._pending if pending.deadline_ms > now_ms)
        return expired

    def take_above(self, end_offset: int) -> list[PendingProduce]:
        """Take out the entries that end above an offset."""
        above: list[PendingProduce] = []
        while self._pending and self._pending[-1].end_offset > end_offset:
            above.append(self._pending.pop())
        return above[::-1]

    def next_deadline_ms(self) -> float:
        """The time at which the first entry times out. Infinity if no entry waits."""
        return min((pending.deadline_ms for pending in self._pending), default=math.inf)
