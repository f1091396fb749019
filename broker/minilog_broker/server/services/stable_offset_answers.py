"""The answers of this broker to AwaitStableOffsets: coordinators of queues wait for news of partitions that it leads.

A call names many partitions. Its answer has all those with news at one moment: another stable offset, or an error. The
call waits for the first of them, and is answered without any when its time is over. While it waits, the core reports
each time to look again (StableOffsetMoved).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from minilog.errors import InvalidArgument, MinilogError, wire_error
from minilog.partition_key import PartitionKey
from minilog.v1 import peer_pb2
from minilog_broker.replication.stable_offsets import KnownPartition, Question
from minilog_broker.server.clients.partition_registrations import Leading
from minilog_broker.server.runtime.timer import now_ms

MAX_WAIT_MS = 2_000  # so long a call may go on for a coordinator that is gone


class _WaitingCall:
    """A call without an answer. `moved`: the partitions to look at again."""

    def __init__(self) -> None:
        self.moved: dict[PartitionKey, None] = {}
        self.woken = asyncio.Event()


class StableOffsetAnswers:
    """All calls of AwaitStableOffsets that wait here. `replicas`: the partitions that this broker leads."""

    def __init__(self, replicas: Leading) -> None:
        self._replicas = replicas
        self._waiting: defaultdict[PartitionKey, dict[_WaitingCall, None]] = defaultdict(dict)

    @property
    def waiting_partitions(self) -> int:
        """The number of partitions that calls wait for."""
        return len(self._waiting)

    def moved(self, key: PartitionKey) -> None:
        """Carry out StableOffsetMoved."""
        for call in self._waiting.get(key, ()):
            call.moved[key] = None
            call.woken.set()

    async def answer(self, request: peer_pb2.AwaitStableOffsetsRequest) -> peer_pb2.AwaitStableOffsetsResponse:
        """The partitions with news. The call waits for the first one, for at most `max_wait_ms`."""
        questions = {
            PartitionKey.of(entry.partition_id): KnownPartition(
                entry.leader_epoch, entry.last_stable_offset, entry.log_start_offset
            )
            for entry in request.partitions
        }
        if len(questions) < len(request.partitions):
            error = InvalidArgument("one request names a partition once: ask in another request what else is known")
            return peer_pb2.AwaitStableOffsetsResponse(error=wire_error(error))
        news = self._news(questions, questions)
        if not news:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(request.max_wait_ms, MAX_WAIT_MS) / 1000.0):
                    news = await self._later_news(questions)
        return peer_pb2.AwaitStableOffsetsResponse(partitions=news)

    async def _later_news(self, questions: Mapping[PartitionKey, KnownPartition]) -> list[peer_pb2.StableOffset]:
        with self._call_waits(questions) as call:
            while True:
                await call.woken.wait()
                call.woken.clear()
                moved, call.moved = call.moved, {}
                if news := self._news(questions, moved):
                    return news

    @contextmanager
    def _call_waits(self, keys: Iterable[PartitionKey]) -> Iterator[_WaitingCall]:
        call = _WaitingCall()
        for key in keys:
            self._waiting[key][call] = None
            self._replicas.manager.watch(key)
        try:
            yield call
        finally:
            for key in keys:
                self._replicas.manager.unwatch(key)
                del self._waiting[key][call]
                if not self._waiting[key]:
                    del self._waiting[key]

    def _news(
        self, questions: Mapping[PartitionKey, KnownPartition], keys: Iterable[PartitionKey]
    ) -> list[peer_pb2.StableOffset]:
        answers = (self._answer_of(Question(key, questions[key])) for key in keys)
        return [answer for answer in answers if answer is not None]

    def _answer_of(self, question: Question) -> peer_pb2.StableOffset | None:
        partition_id = question.key.to_wire()
        try:
            offset = self._replicas.manager.stable_offset(question, now_ms())
        except MinilogError as error:
            return peer_pb2.StableOffset(partition_id=partition_id, error=wire_error(error))
        return None if offset is None else peer_pb2.StableOffset(partition_id=partition_id, **offset._asdict())
