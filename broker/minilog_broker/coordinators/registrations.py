"""Commits that wait until their producer is registered with the coordinator of its transaction.

    a producer is     because                                                   its commits
    registered        it has pending offsets in the table                       are decided
    registering       RegisterProducer is under way, under a number             wait
    (neither)                                                                   begin a registration

A marker may come while a registration is under way. It ends the registration: the coordinator refuses the waiting
commits. The answer to RegisterProducer may be older than the marker, so it counts for nothing any more. The next
registration learns that the producer has ended. (Kafka lacked that before KIP-890: a late commit opened a transaction
that nobody ended.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from minilog.errors import InvalidTxnState
from minilog.v1 import coordinator_pb2

MAX_WAITING = 5  # of one producer; a client has one commit under way


class InTransaction(Protocol):
    """A request that is part of a transaction."""

    @property
    def transaction(self) -> coordinator_pb2.TransactionalCommit: ...


Request = TypeVar("Request", bound=InTransaction)


@dataclass(frozen=True, slots=True)
class WaitingCommit(Generic[Request]):
    """A commit, and the caller that waits for its answer."""

    ticket: object
    request: Request


@dataclass(slots=True)
class _Question(Generic[Request]):
    number: int
    waiting: list[WaitingCommit[Request]] = field(default_factory=list)


class Registrations(Generic[Request]):
    """For each producer one registration, and the commits that wait for it."""

    def __init__(self) -> None:
        self._questions: dict[int, _Question[Request]] = {}
        self._numbers = 0

    def wait(self, producer_id: int, commit: WaitingCommit[Request]) -> int | None:
        """The number of a new registration. None: one is under way. Raises InvalidTxnState if too many wait."""
        question = self._questions.get(producer_id)
        if question is not None:
            if len(question.waiting) >= MAX_WAITING:
                raise InvalidTxnState(f"producer {producer_id} has {MAX_WAITING} commits under way: one at a time")
            question.waiting.append(commit)
            return None
        self._numbers += 1
        self._questions[producer_id] = _Question(self._numbers, [commit])
        return self._numbers

    def answered(self, number: int) -> list[WaitingCommit[Request]]:
        """The commits that waited for this answer."""
        for producer_id, question in self._questions.items():
            if question.number == number:
                del self._questions[producer_id]
                return question.waiting
        return []

    def ended(self, producer_id: int) -> list[WaitingCommit[Request]]:
        """The commits whose producer has ended."""
        question = self._questions.pop(producer_id, None)
        return [] if question is None else question.waiting

    def take_all(self) -> list[WaitingCommit[Request]]:
        """All waiting commits, at the end of the term."""
        questions, self._questions = self._questions, {}
        return [commit for question in questions.values() for commit in question.waiting]
