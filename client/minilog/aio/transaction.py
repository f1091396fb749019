"""A program's transaction: one block of code, one generation. The program is its only writer, and commits it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from minilog.aio.participation import Participation
from minilog.aio.producer_shell import ProducerShell
from minilog.aio.transactional_requests import TransactionalRequests
from minilog.client_config import ClientConfig
from minilog.errors import InvalidTxnState, MinilogError
from minilog.net.runtime import Runtime
from minilog.queues.message import Message
from minilog.transactions.messages import Enlistment, Run, TransactionOutcome, Winner
from minilog.types import GroupMetadata, TopicPartition
from minilog.v1 import queue_pb2

_log = logging.getLogger(__name__)


def run_of(config: ClientConfig, runtime: Runtime) -> Run | None:
    """The run of a producer, or None without a transactional.id."""
    if not config.transactional_id:
        return None
    return Run(config.transactional_id, runtime.unique_bytes(16), lambda: runtime.unique_bytes(16))


def no_transactional_id() -> InvalidTxnState:
    """The error of a producer without a transactional.id that begins a transaction."""
    return InvalidTxnState("this producer has no transactional.id: give it one in its configuration")


class Transaction:
    """A transaction of a producer, for one `async with` block. minilog.Producer.transaction has the meaning."""

    def __init__(self, shell: ProducerShell, run: Run) -> None:
        self._shell = shell
        self._run = run
        self._participation = Participation(shell)
        self._requests: TransactionalRequests | None = None  # since the begin
        self._messages: list[Message] = []  # of queues, which this transaction settles

    @property
    def generation(self) -> int:
        """The generation of this transaction, which grows by one with each transaction. Raises InvalidTxnState before
        its begin."""
        return self._open().enlistment.attempt.generation or 0

    async def __aenter__(self) -> Self:
        if self._requests is not None:
            raise InvalidTxnState(
                "this transaction has begun before: call producer.transaction() again for another one"
            )
        answer = await self._participation.begin(self._run.next_attempt())
        if not isinstance(answer, Enlistment):
            raise InvalidTxnState(f"{answer.attempt} is committed already, which is a bug of minilog: report it")
        self._run.enlisted(answer)
        self._requests = TransactionalRequests(self._shell.cluster, answer, self._shell.fail)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._commit()
            else:
                self._open().has_ended = True
                await self._abort()
        finally:
            self._participation.leave()

    async def abandon(self) -> None:
        """Abort the transaction after an interrupted begin or end, unless it has ended. Then another one may begin."""
        try:
            if self._requests is not None and not self._requests.has_ended:
                self._requests.has_ended = True
                await self._abort()
        finally:
            self._participation.leave()

    async def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read as part of the transaction: `group` gets them at its commit, and not before.
        A member of a group gives `Consumer.group_metadata()`.

        Raises the error of the group's coordinator, and then the transaction is aborted. It is also aborted if the
        caller cancels this call: the offsets may be stored, and then the coordinator refuses a commit without them.
        """
        await self._open().commit_offsets(group, offsets)

    async def settle(self, messages: Iterable[Message]) -> None:
        """Accept messages of queues as part of the transaction: they are settled at its commit, and not before. If the
        transaction is not committed, they are delivered again.

        Raises InvalidRecordState if a message is settled already or its lock has ended, and the error of the queue's
        coordinator. Then the transaction is aborted. It is also aborted if the caller cancels this call."""
        requests = self._open()
        by_queue: dict[str, list[Message]] = {}
        try:
            for message in messages:
                message.settler.enlist(message)
                self._messages.append(message)
                by_queue.setdefault(message.settler.queue, []).append(message)
        except MinilogError as error:
            self._shell.fail(error)
            raise
        for queue, settled in by_queue.items():
            await requests.settle(queue, settled)

    async def _rewrite_letters(self, queue: str, letters: queue_pb2.RewrittenLetters) -> None:
        """Of a redrive, whose transaction has written these letters anew (redrive.py)."""
        await self._open().rewrite_letters(queue, letters)

    def _open(self) -> TransactionalRequests:
        if self._requests is None:
            raise InvalidTxnState(
                "the transaction has not begun: use it as `with producer.transaction() as transaction:`"
            )
        return self._requests

    async def _commit(self) -> None:
        requests = self._open()
        enlistment = requests.enlistment
        try:
            asked = await requests.finish()
            winner = await self._participation.finish()
            outcome = await self._participation.transactions.commit(
                enlistment.attempt,
                [Winner(winner.producer_id, (*winner.partitions, *asked))],
                coordinator_epoch=enlistment.coordinator_epoch,
            )
        except BaseException:
            await self._abort()
            raise
        self._tell_queues(committed=True)
        if outcome is not TransactionOutcome.COMMITTED:
            _log.warning("%s is committed, but some partitions do not show it yet", enlistment.attempt)

    def _tell_queues(self, *, committed: bool) -> None:
        """Tell the consumers of the messages how the transaction has ended."""
        messages, self._messages = self._messages, []
        for message in messages:
            message.settler.transaction_ended(message, committed=committed)

    async def _abort(self) -> None:
        """Abort the whole attempt, with any producer of it whose enlistment was answered too late."""
        enlistment = self._open().enlistment
        self._shell.drop()
        try:
            await self._participation.transactions.abort(
                enlistment.attempt, coordinator_epoch=enlistment.coordinator_epoch
            )
        except MinilogError as error:
            _log.debug("%s is not aborted yet, and its time-out will abort it: %s", enlistment.attempt, error)
        finally:
            self._tell_queues(committed=False)
