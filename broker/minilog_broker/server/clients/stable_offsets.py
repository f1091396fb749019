"""The questions of this broker's queue coordinators for stable offsets, gathered into calls to the leaders.

    ask ──► gathered for a millisecond, by leader ──► AwaitStableOffsets ──► news, an error: the answer
               ▲                                          │
               └──────── no news: asked again ────────────┘

A new question never waits for a call under way: it goes in another call. The questions that a call leaves without news
go together in a call of their own, so a partition with much news does not bring the quiet ones along each time. Where
a leader has MAX_CALLS under way, the smallest one is cancelled, and its questions go with the new ones.

A leader that hangs does not hold a question up for long: while a call is under way, the image is looked at each half
second. If it names another leader for a partition, the call is cancelled, and its questions go to their leaders.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from minilog.errors import MinilogError, error_from_wire
from minilog.limits import MAX_STABLE_OFFSETS, parts_of
from minilog.partition_key import PartitionKey
from minilog.v1 import peer_pb2
from minilog_broker.replication.stable_offsets import Question, StableOffset

GATHERED_S = 0.001  # coordinators ask for many partitions after one event
MAX_WAIT_MS = 2_000  # a leader answers by then
LOOK_S = 0.5  # at the image, for another leader
MAX_CALLS = 8  # to one leader at a time: a connection has room for a hundred calls

Answer: TypeAlias = Callable[[StableOffset | MinilogError], None]
Request: TypeAlias = peer_pb2.AwaitStableOffsetsRequest
Response: TypeAlias = peer_pb2.AwaitStableOffsetsResponse


class Leaders(Protocol):
    """The calls to leaders: CoordinatorCalls."""

    def leader_of(self, key: PartitionKey) -> tuple[int, int]: ...

    def await_stable_offsets(self, broker_id: int, request: Request) -> Coroutine[Any, Any, Response]: ...


class _Call:
    """A call under way."""

    def __init__(self, leader_id: int, questions: Sequence[Question]) -> None:
        self.leader_id = leader_id
        self.questions = {question.key: question for question in questions}
        self.task: asyncio.Task[None] | None = None


class StableOffsets:
    """All questions of this broker's coordinators. `spawn` begins a task that ends with the broker."""

    def __init__(self, leaders: Leaders, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._leaders = leaders
        self._spawn = spawn
        self._answers: dict[Question, list[Answer]] = {}  # of all questions without an answer
        self._new: list[Question] = []
        self._again: list[Question] = []
        self._calls: defaultdict[int, dict[_Call, None]] = defaultdict(dict)  # under way, by leader
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def ask(self, question: Question, answer: Answer) -> Callable[[], None]:
        """Ask until there is news of the partition, or an error. `answer` gets it, once, and never before `ask` has
        returned. The result withdraws the question: then nothing is answered.

        The errors are those of the leader (replication/stable_offsets.py), UnknownTopicId and LeaderNotAvailable of
        this broker's image, and BrokerNotAvailable. The caller pauses and asks again."""
        answers = self._answers.get(question)
        if answers is None:
            answers = self._answers[question] = []
            self._new.append(question)
            self._gather()
        answers.append(answer)

        def withdraw() -> None:
            if answer in answers:
                answers.remove(answer)

        return withdraw

    def stop(self) -> None:
        """End all calls. Nothing is answered from now on."""
        self._stopped = True
        self._answers.clear()
        if self._timer is not None:
            self._timer.cancel()
        for calls in self._calls.values():
            for call in calls:
                if call.task is not None:
                    call.task.cancel()

    def _gather(self) -> None:
        if self._timer is None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(GATHERED_S, self._call_all)

    def _call_all(self) -> None:
        self._timer = None
        new, self._new, again, self._again = self._new, [], self._again, []
        for questions in (again, new):  # the old ones first: where a leader has too many calls, the smallest one ends
            for leader_id, of_leader in self._by_leader(questions).items():
                self._call_leader(leader_id, of_leader)

    def _by_leader(self, questions: Iterable[Question]) -> dict[int, list[Question]]:
        found: defaultdict[int, list[Question]] = defaultdict(list)
        for question in questions:
            if not self._answers.get(question):
                self._answers.pop(question, None)  # it was withdrawn
                continue
            try:
                found[self._leaders.leader_of(question.key)[0]].append(question)
            except MinilogError as error:
                self._answer(question, error)
        return found

    def _call_leader(self, leader_id: int, questions: list[Question]) -> None:
        calls = self._calls[leader_id]
        if len(calls) >= MAX_CALLS:
            smallest = min(calls, key=lambda call: len(call.questions))
            del calls[smallest]
            if smallest.task is not None:
                smallest.task.cancel()
            questions = [*smallest.questions.values(), *questions]
        for part in _requests_of(questions):
            call = _Call(leader_id, part)
            calls[call] = None
            call.task = self._spawn(self._carry_out(call))

    async def _carry_out(self, call: _Call) -> None:
        try:
            response = await self._response(call)
            if refusal := error_from_wire(response.error):
                raise refusal
            self._take(call, response)
        except MinilogError as error:
            self._answer_all(call, error)
        finally:
            self._calls[call.leader_id].pop(call, None)
        self._again += call.questions.values()
        if self._again:
            self._gather()

    async def _response(self, call: _Call) -> Response:
        """The leader's response. An empty one where the image names another leader by now."""
        request = Request(max_wait_ms=MAX_WAIT_MS)
        for key, (leader_epoch, last_stable_offset, log_start_offset) in call.questions.values():
            request.partitions.add(
                partition_id=key.to_wire(),
                leader_epoch=leader_epoch,
                last_stable_offset=last_stable_offset,
                log_start_offset=log_start_offset,
            )
        calling = asyncio.get_running_loop().create_task(self._leaders.await_stable_offsets(call.leader_id, request))
        calling.add_done_callback(_take_error)
        try:
            while not (await asyncio.wait((calling,), timeout=LOOK_S))[0]:
                if not all(self._still_leads(call.leader_id, key) for key in call.questions):
                    return Response()
            return calling.result()
        finally:
            calling.cancel()

    def _still_leads(self, leader_id: int, key: PartitionKey) -> bool:
        try:
            return self._leaders.leader_of(key)[0] == leader_id
        except MinilogError:
            return False

    def _take(self, call: _Call, response: Response) -> None:
        """Answer the questions that have news. The others stay in the call."""
        for news in response.partitions:
            question = call.questions.pop(PartitionKey.of(news.partition_id), None)
            if question is None:
                continue
            offset = StableOffset(
                news.leader_epoch,
                news.log_start_offset,
                news.last_stable_offset,
                news.end_of_epoch,
                news.record_bytes,
            )
            self._answer(question, error_from_wire(news.error) or offset)

    def _answer_all(self, call: _Call, error: MinilogError) -> None:
        questions, call.questions = call.questions, {}
        for question in questions.values():
            self._answer(question, error)

    def _answer(self, question: Question, news: StableOffset | MinilogError) -> None:
        for answer in self._answers.pop(question, ()):
            answer(news)


def _take_error(calling: asyncio.Task[Response]) -> None:
    """Take the error of a call that nobody waits for any more. Else the loop reports it as lost."""
    if not calling.cancelled():
        calling.exception()


def _requests_of(questions: Iterable[Question]) -> list[Sequence[Question]]:
    """The questions of each request. A request names a partition once, because an answer has only its name."""
    rounds: list[list[Question]] = []
    count_of: defaultdict[PartitionKey, int] = defaultdict(int)
    for question in questions:
        turn = count_of[question.key]
        count_of[question.key] += 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(question)
    return [part for one_round in rounds for part in parts_of(one_round, MAX_STABLE_OFFSETS)]
