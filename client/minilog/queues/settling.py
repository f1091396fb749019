"""The verdicts on their way to the coordinator. No I/O.

    noted      by a thread of the program, or by the worker itself; waits a few milliseconds for company
    waiting    the worker's loop has taken it in
    sent       in the request under way. There is one at most
    again      sent in a request without a certain outcome: the same spans go again, as they were

Each offset is in one verdict, and each verdict in one span. Neighbouring offsets of one verdict are one span. A span
that goes again keeps its borders: the coordinator refuses it if the first request was done (INVALID_RECORD_STATE).
While the lock lasts that refusal means that it is done. After the lock it may also mean that the lock had ended before
a request came there: then the outcome is unknown.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from minilog.consumer.requests import name_of
from minilog.errors import InvalidRecordState, MinilogError, UnknownOutcome
from minilog.limits import settlement_parts
from minilog.queues.leases import HeldRange, Lease
from minilog.queues.message import Verdict
from minilog.v1 import queue_pb2

GATHER_MS = 5.0  # a verdict waits so long for others
AGAIN_MS = 100.0  # after a request without a certain outcome. The call itself has tried for seconds


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring offsets of one range with one verdict. Without `tells` no error of it comes to the program: the
    worker settles by itself offsets without a record, and what it gives back."""

    held: HeldRange
    first_offset: int
    last_offset: int
    verdict: Verdict
    delay_ms: int = 0
    tells: bool = True
    reason: str = ""  # of a rejection
    is_repeat: bool = False  # an earlier request with it may be done

    @property
    def count(self) -> int:
        return self.last_offset - self.first_offset + 1

    def to_wire(self) -> queue_pb2.Settlement:
        return queue_pb2.Settlement(
            lease_id=self.held.lease.lease_id,
            partition_id=self.held.key.to_wire(),
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            verdict=self.verdict.value,
            delay_ms=self.delay_ms,
            reason=self.reason,
        )

    def __str__(self) -> str:
        return f"{self.verdict.name.lower()} of offsets {self.first_offset} to {self.last_offset} of " + name_of(
            self.held.partition
        )


@dataclass(frozen=True, slots=True)
class Enlisted:
    """A transaction settles this offset: the worker neither settles it nor gives it back."""

    held: HeldRange
    offset: int


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The transaction that settles this offset has ended. Without a commit the worker gives the offset back."""

    held: HeldRange
    offset: int
    committed: bool


Noted: TypeAlias = Span | Enlisted | TransactionEnded


def merged(spans: Iterable[Span]) -> list[Span]:
    """The fewest spans with the same verdict for each offset."""
    ordered = sorted(spans, key=lambda span: (span.held.lease.lease_id, span.held.key, span.first_offset))
    result: list[Span] = []
    begin = 0
    for end in range(1, len(ordered) + 1):
        if end == len(ordered) or not _continues(ordered[end - 1], ordered[end]):
            first, last = ordered[begin], ordered[end - 1]
            tells = any(span.tells for span in ordered[begin:end])
            result.append(first if first is last else replace(first, last_offset=last.last_offset, tells=tells))
            begin = end
    return result


def _continues(last: Span, span: Span) -> bool:
    same = (span.held, span.verdict, span.delay_ms, span.reason, span.is_repeat)
    return same == (last.held, last.verdict, last.delay_ms, last.reason, last.is_repeat) and (
        span.first_offset == last.last_offset + 1
    )


class Settling:
    """The verdicts of one worker. `note` is for any thread, and the rest for the worker's loop."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._noted: deque[Noted] = deque()
        self._waiting: list[Span] = []
        self._again: list[Span] = []
        self._sent: list[Span] = []
        self._due_ms = math.inf
        self._is_hurried = False

    def note(self, noted: Noted) -> bool:
        """Note what the program does. True if nothing else waits: then the loop must learn of it."""
        self._noted.append(noted)
        return len(self._noted) == 1

    def take_noted(self) -> list[Noted]:
        """The verdicts that were noted since the last call. It ends at an empty list alone: who notes the next one is
        the first again, and says so."""
        noted = []
        while self._noted:
            noted.append(self._noted.popleft())
        return noted

    def add(self, span: Span, now_ms: float) -> None:
        """Send this verdict soon."""
        self._waiting.append(span)
        self._due_ms = min(self._due_ms, now_ms + GATHER_MS)

    def hurry(self) -> None:
        """Send at the next occasion what waits: the program will hardly give more verdicts now."""
        self._is_hurried = True

    def is_idle(self) -> bool:
        """Whether each verdict has its outcome."""
        return not (self._noted or self._waiting or self._again or self._sent)

    def next_ms(self) -> float:
        """The time of the next request. Without one it is infinite."""
        return math.inf if self._sent else self._due_ms

    def next_spans(self, now_ms: float) -> list[Span]:
        """The spans to send now, as a request. Spans without a certain outcome go alone, as they went before."""
        if self._sent or not (self._waiting or self._again):
            self._is_hurried = False
            return []
        if now_ms < self._due_ms and not (self._is_hurried and not self._again):
            return []
        every = self._again or merged(self._waiting)
        self._sent = list(next(settlement_parts(every, lambda span: span.held.key)))
        rest = every[len(self._sent) :]
        if self._again:
            self._again = rest
        else:
            self._waiting = rest
        self._due_ms = now_ms if self._waiting or self._again else math.inf
        return self._sent

    def answered(self, refused: Mapping[int, MinilogError], now_ms: float, *, is_repeat: bool) -> list[MinilogError]:
        """The answer to the request under way. `refused` has errors by the number of the span. With `is_repeat` the
        call was made more than once. Returns the errors for the program."""
        errors: list[MinilogError] = []
        for number, span in enumerate(self._sent):
            error = refused.get(number)
            if error is None or not span.tells:
                continue
            if not (is_repeat or span.is_repeat) or not isinstance(error, InvalidRecordState):
                errors.append(type(error)(f"queue {self._queue!r} refused the {span}: {error}"))
            elif not span.held.lease.is_locked(now_ms):
                errors.append(self._too_late(replace(span, is_repeat=True)))
        self._end()
        return errors

    def failed(self, error: MinilogError, now_ms: float) -> list[MinilogError]:
        """The request under way got no certain answer, or a refusal as a whole. Returns the errors for the program."""
        maybe_done = isinstance(error, UnknownOutcome)
        if not error.retriable and not maybe_done:
            told = any(span.tells for span in self._sent)
            self._end()
            return [error] if told else []
        again = [replace(span, is_repeat=span.is_repeat or maybe_done) for span in self._sent]
        self._again = [span for span in again if not span.held.lease.is_lost] + self._again
        lost = [span for span in again if span.held.lease.is_lost]
        self._sent = []
        self._due_ms = now_ms + AGAIN_MS if self._waiting or self._again else math.inf
        return self._lost(lost)

    def forget(self, lease: Lease) -> list[MinilogError]:
        """Drop the verdicts for a lost lease that are not under way. Returns the errors for the program."""
        gone = [span for span in (*self._waiting, *self._again) if span.held.lease is lease]
        self._waiting = [span for span in self._waiting if span.held.lease is not lease]
        self._again = [span for span in self._again if span.held.lease is not lease]
        return self._lost(gone)

    def _lost(self, spans: list[Span]) -> list[MinilogError]:
        told = [span for span in merged(spans) if span.tells]
        for span in spans:
            span.held.unsettled -= span.count
        return [self._too_late(span) for span in told]

    def _too_late(self, span: Span) -> MinilogError:
        if span.is_repeat:
            return UnknownOutcome(
                f"queue {self._queue!r} gave no answer to the {span} before the lock ended: it may be done, or these "
                "messages are delivered again"
            )
        return too_late(self._queue, span)

    def _end(self) -> None:
        """Each span under way has its outcome."""
        for span in self._sent:
            span.held.unsettled -= span.count
        self._sent = []


def too_late(queue: str, span: Span) -> InvalidRecordState:
    """The error for a verdict that could not be sent while the lock lasted."""
    return InvalidRecordState(
        f"the {span} in queue {queue!r} did not reach the coordinator before the lock ended: these messages are "
        "delivered again"
    )
