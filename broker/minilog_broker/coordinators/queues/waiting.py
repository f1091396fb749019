"""The lease calls that wait for records, of each queue the oldest first."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from minilog.v1 import queue_pb2


@dataclass(slots=True, eq=False)
class WaitingLease:
    """A call, since when it is here, and until when it waits. `is_over`: it was answered, or its caller is gone.
    `turn`: the place of the partition at which its search began. None: it searches for nothing now. `looked_at`: the
    partitions that it has seen since."""

    ticket: object
    request: queue_pb2.LeaseRequest
    began_ms: float
    deadline_ms: float
    principal: str = ""
    is_over: bool = False
    turn: int | None = None
    looked_at: int = 0

    @property
    def topics(self) -> tuple[bytes, ...]:
        return tuple(self.request.topic_ids)

    def begin_again(self) -> None:
        """Something has changed: a search under way goes once around from where it is."""
        if self.turn is not None:
            self.turn, self.looked_at = self.turn + self.looked_at, 0

    def end_search(self) -> None:
        self.turn, self.looked_at = None, 0

    @property
    def kind(self) -> CallKind:
        return CallKind(self.topics, self.request.takes_dead_letters, self.principal)


class CallKind(NamedTuple):
    """Calls of one kind wait for the same records and locks: what the first of them does not get, no other one gets."""

    topics: tuple[bytes, ...]
    takes_dead_letters: bool
    principal: str = ""


class WaitingLeases:
    """By queue and kind."""

    def __init__(self) -> None:
        self._by_queue: dict[str, dict[CallKind, deque[WaitingLease]]] = {}
        self._by_ticket: dict[object, WaitingLease] = {}
        self._heap: list[tuple[float, int, WaitingLease]] = []
        self._count = itertools.count()

    def add(self, call: WaitingLease) -> None:
        self._by_queue.setdefault(call.request.queue, {}).setdefault(call.kind, deque()).append(call)
        self._by_ticket[call.ticket] = call
        heapq.heappush(self._heap, (call.deadline_ms, next(self._count), call))

    def queues(self) -> list[str]:
        """The queues for which calls wait."""
        return list(self._by_queue)

    def kinds(self, queue: str) -> list[CallKind]:
        """The kinds of the calls of a queue that wait."""
        return list(self._by_queue.get(queue, {}))

    def first(self, queue: str, kind: CallKind) -> WaitingLease | None:
        """The call that waits longest."""
        calls = self._by_queue.get(queue, {}).get(kind)
        while calls:
            if not calls[0].is_over:
                return calls[0]
            calls.popleft()
        return None

    def waiting(self, queue: str, kind: CallKind) -> list[WaitingLease]:
        """All of them, the oldest first."""
        return [call for call in self._by_queue.get(queue, {}).get(kind, ()) if not call.is_over]

    def over(self, call: WaitingLease) -> None:
        """The call waits no more."""
        call.is_over = True
        self._by_ticket.pop(call.ticket, None)
        if self.first(call.request.queue, call.kind) is None:
            by_kind = self._by_queue.get(call.request.queue, {})
            by_kind.pop(call.kind, None)
            if not by_kind:
                self._by_queue.pop(call.request.queue, None)

    def of_ticket(self, ticket: object) -> WaitingLease | None:
        return self._by_ticket.get(ticket)

    def late(self, now_ms: float) -> Iterator[WaitingLease]:
        """The calls that have waited as long as they may. They wait no more."""
        while self.next_ms() <= now_ms:
            _, _, call = heapq.heappop(self._heap)
            self.over(call)
            yield call

    def take_all(self) -> list[WaitingLease]:
        """All calls, at the end of the term."""
        calls = [call for _, _, call in sorted(self._heap, key=lambda entry: entry[:2]) if not call.is_over]
        for call in calls:
            call.is_over = True
        self._by_queue.clear()
        self._by_ticket.clear()
        self._heap.clear()
        return calls

    def next_ms(self) -> float:
        """The first deadline."""
        while self._heap and self._heap[0][2].is_over:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf
