"""Who waits for the end of a commit: answered when all its markers are below the high watermark.

at                                                       the answer is
all markers below the high watermark, decision too       COMMITTED: all of it is visible, everywhere (V15)
the caller's time-out, the decision is committed         COMMITTED_BECOMING_VISIBLE
the caller's time-out, the decision is in flight         REQUEST_TIMED_OUT: unknown, ask again (V16)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from minilog.errors import RequestTimedOut, wire_error
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator_effects import CoordinatorAnswer


@dataclass(frozen=True, slots=True)
class _Waiting:
    ticket: object
    transactional_id: str
    generation: int
    decided_at: int  # the end of the decision in the log; 0: it is committed
    deadline_ms: float


class WaitingCommits:
    """The calls that wait for the end of a commit.

    Their number is bounded by the callers: each waits for one answer until its time-out.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []

    def add(
        self, ticket: object, transactional_id: str, generation: int, *, decided_at: int, deadline_ms: float
    ) -> None:
        self._waiting.append(_Waiting(ticket, transactional_id, generation, decided_at, deadline_ms))

    def take(self) -> list[object]:
        """The tickets of all, who are to be answered otherwise."""
        waiting, self._waiting = self._waiting, []
        return [call.ticket for call in waiting]

    def look(self, committed: int, visible: Callable[[str, int], bool], now_ms: float) -> list[CoordinatorAnswer]:
        """Those who wait no more. `committed`: the high watermark; `visible(transactional id, generation)`."""
        answers, left = [], []
        for call in self._waiting:
            durable = call.decided_at <= committed
            if durable and visible(call.transactional_id, call.generation):
                outcome = coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED
            elif call.deadline_ms > now_ms:
                left.append(call)
                continue
            elif durable:
                outcome = coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED_BECOMING_VISIBLE
            else:
                answers.append(CoordinatorAnswer(call.ticket, _unknown(call)))
                continue
            answers.append(CoordinatorAnswer(call.ticket, coordinator_pb2.EndTransactionResponse(outcome=outcome)))
        self._waiting = left
        return answers

    def next_due_ms(self) -> float:
        return min((call.deadline_ms for call in self._waiting), default=math.inf)


def _unknown(call: _Waiting) -> coordinator_pb2.EndTransactionResponse:
    error = RequestTimedOut(
        f"transactional id '{call.transactional_id}': the commit of generation {call.generation} is not replicated, "
        "and its outcome not known: ask again"
    )
    return coordinator_pb2.EndTransactionResponse(error=wire_error(error))
