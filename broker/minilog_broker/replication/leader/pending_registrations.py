"""Transactional producers that a leader does not know. Their batches wait until the coordinator has registered them.

    a producer    entered when                               left by
    REGISTERING   its first batch here came                  registered: its batches are appended, or refused, in order
                                                             its marker: PRODUCER_FENCED
                                                             all its batches timed out, or the leader resigned

No batch that waits here has been written. The leader asks the coordinator once for a producer, even if many batches
follow. The shell repeats the call as long as batches wait (`is_asked`), and decides how often.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from minilog.errors import CoordinatorLoadInProgress, OutOfOrderSequenceNumber
from minilog.partition_key import PartitionKey
from minilog_broker.replication.context import ReplicationContext, TimerKind
from minilog_broker.replication.leader.pending import ProduceEntry
from minilog_broker.replication.replica_effects import RegisterPartition

# Of one producer: its unanswered batches, the same batches again after a broken connection, and some more.
MAX_WAITING = 16
# Of the whole broker: the batches are in memory, and a coordinator that does not answer must not fill it.
MAX_WAITING_BYTES = 64 << 20


@dataclass(slots=True)
class _PendingRegistration:
    """A question to the coordinator, and the entries that wait for the answer."""

    number: int
    entries: list[ProduceEntry] = field(default_factory=list)


class PendingRegistrations:
    """The batches of one led partition that wait for the registration of their producers, for one leader epoch."""

    def __init__(self, context: ReplicationContext, name: str, key: PartitionKey) -> None:
        self._context = context
        self._name = name
        self._key = key
        self._waiting: dict[int, _PendingRegistration] = {}

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._waiting

    def wait(self, producer_id: int, entry: ProduceEntry) -> None:
        """Let a batch wait. The first batch of a producer asks the coordinator. Raises a retriable error if too much
        waits already."""
        context, size_bytes = self._context, len(entry.batch)
        if context.waiting_bytes and context.waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            raise CoordinatorLoadInProgress(
                f"{self._name}: {context.waiting_bytes} bytes of batches already wait for the coordinators of their "
                f"transactions: retry"
            )
        registering = self._waiting.get(producer_id)
        if registering is not None and len(registering.entries) >= MAX_WAITING:
            raise OutOfOrderSequenceNumber(
                f"{self._name}: {MAX_WAITING} batches of producer {producer_id} already wait for the coordinator of "
                f"its transaction"
            )
        if registering is None:
            registering = self._waiting[producer_id] = _PendingRegistration(context.next_number())
            assert entry.transaction is not None
            transactional_id, epoch = entry.transaction
            number = registering.number
            context.emit(RegisterPartition(number, self._key, transactional_id, producer_id, epoch))
        registering.entries.append(entry)
        context.waiting_bytes += size_bytes
        context.timers.arm(TimerKind.PRODUCE, self._key, entry.deadline_ms)

    def is_asked(self, number: int) -> bool:
        """Whether a batch still waits for this answer."""
        return any(registering.number == number for registering in self._waiting.values())

    def take(self, producer_id: int) -> list[ProduceEntry]:
        """Take out all entries of a producer."""
        registering = self._waiting.pop(producer_id, None)
        return [] if registering is None else self._let_go(registering.entries)

    def take_answered(self, number: int) -> list[ProduceEntry]:
        """Take out the entries that wait for this answer. None if it comes too late."""
        for producer_id, registering in self._waiting.items():
            if registering.number == number:
                return self.take(producer_id)
        return []

    def take_all(self) -> list[ProduceEntry]:
        """Take out the entries of all producers."""
        return [entry for producer_id in list(self._waiting) for entry in self.take(producer_id)]

    def take_expired(self, now_ms: float) -> list[ProduceEntry]:
        """Take out the entries whose time is over."""
        expired: list[ProduceEntry] = []
        for producer_id, registering in list(self._waiting.items()):
            late = [entry for entry in registering.entries if entry.deadline_ms <= now_ms]
            if late:
                expired += self._let_go(late)
                registering.entries = [entry for entry in registering.entries if entry.deadline_ms > now_ms]
            if not registering.entries:
                del self._waiting[producer_id]
        return expired

    def next_deadline_ms(self) -> float:
        """The time at which the first entry times out. Infinity if no entry waits."""
        return min((entry.deadline_ms for entry in self._entries()), default=math.inf)

    def _entries(self) -> Iterator[ProduceEntry]:
        for registering in self._waiting.values():
            yield from registering.entries

    def _let_go(self, entries: Iterable[ProduceEntry]) -> list[ProduceEntry]:
        gone = list(entries)
        self._context.waiting_bytes -= sum(len(entry.batch) for entry in gone)
        return gone
