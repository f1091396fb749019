"""Commits that wait until their producer is registered with the coordinator of its transaction.

    a producer is     because                                                   its commits
    known             it has pending offsets in the table                       are decided
    asked for         RegisterProducer is under way, under a number             wait
    (neither)                                                                   ask

A marker that comes while it is asked for ends it: those who wait are refused, and the answer to the question, which may
have been given before the marker was decided, is answer to nothing any more. Asked again, the coordinator says that the
producer has ended. (What Kafka lacked before KIP-890: a late commit opened a transaction that nobody ended.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minilog.errors import InvalidTxnState
from minilog.v1 import coordinator_pb2

MAX_WAITING = 5  # of one producer; a client has one commit under way


@dataclass(frozen=True, slots=True)
class WaitingCommit:
    """A commit, and who waits for its answer."""

    ticket: object
    request: coordinator_pb2.CommitOffsetsRequest


@dataclass(slots=True)
class _Question:
    number: int
    waiting: list[WaitingCommit] = field(default_factory=list)


class Registrations:
    """By producer: one question, and the commits that wait for its answer."""

    def __init__(self) -> None:
        self._questions: dict[int, _Question] = {}
        self._numbers = 0

    def wait(self, producer_id: int, commit: WaitingCommit) -> int | None:
        """The number to ask under; None: it is asked for already. Raises InvalidTxnState where too many wait."""
        question = self._questions.get(producer_id)
        if question is not None:
            if len(question.waiting) >= MAX_WAITING:
                raise InvalidTxnState(f"producer {producer_id} has {MAX_WAITING} commits under way: one at a time")
            question.waiting.append(commit)
            return None
        self._numbers += 1
        self._questions[producer_id] = _Question(self._numbers, [commit])
        return self._numbers

    def answered(self, number: int) -> list[WaitingCommit]:
        """Those who waited for this answer."""
        for producer_id, question in self._questions.items():
            if question.number == number:
                del self._questions[producer_id]
                return question.waiting
        return []

    def ended(self, producer_id: int) -> list[WaitingCommit]:
        """Those whose producer has ended."""
        question = self._questions.pop(producer_id, None)
        return [] if question is None else question.waiting

    def take_all(self) -> list[WaitingCommit]:
        """All of them: the term is over."""
        questions, self._questions = self._questions, {}
        return [commit for question in questions.values() for commit in question.waiting]
