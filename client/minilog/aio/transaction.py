"""A program's transaction: one block of code, one generation. The program is its only writer, and commits it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from minilog.aio.participation import Participation
from minilog.aio.producer_shell import ProducerShell
from minilog.client_config import ClientConfig
from minilog.errors import InvalidTxnState, MinilogError
from minilog.groups.client import Groups
from minilog.groups.messages import Committed, committing_member
from minilog.limits import MAX_SETTLEMENTS, parts_of
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, QUEUES_TOPIC_NAME, coordinator_partition
from minilog.net.runtime import Runtime
from minilog.partition_key import PartitionKey
from minilog.queues.client import Queues
from minilog.queues.message import Message, Verdict
from minilog.queues.settling import Span, merged
from minilog.transactions.messages import Enlistment, Run, TransactionOutcome, Winner, WrittenPartition
from minilog.types import GroupMetadata, TopicPartition
from minilog.v1 import coordinator_pb2

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
        self._enlistment: Enlistment | None = None
        self._groups, self._queues = Groups(shell.cluster), Queues(shell.cluster)
        self._sequences: dict[TopicPartition, int] = {}  # the last one, by partition of an internal topic
        self._lock = asyncio.Lock()  # one request to coordinators at a time: they are numbered
        self._messages: list[Message] = []  # of queues, which this transaction settles
        self._has_ended = False

    @property
    def generation(self) -> int:
        """The generation of this transaction, which grows by one with each transaction. Raises InvalidTxnState before
        its begin."""
        return self._open().attempt.generation or 0

    async def __aenter__(self) -> Self:
        if self._enlistment is not None:
            raise InvalidTxnState(
                "this transaction has begun before: call producer.transaction() again for another one"
            )
        answer = await self._participation.begin(self._run.next_attempt())
        if not isinstance(answer, Enlistment):
            raise InvalidTxnState(f"{answer.attempt} is committed already, which is a bug of minilog: report it")
        self._run.enlisted(answer)
        self._enlistment = answer
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._commit()
            else:
                self._has_ended = True
                await self._abort()
        finally:
            self._participation.leave()

    async def abandon(self) -> None:
        """Abort the transaction after an interrupted begin or end, unless it has ended. Then another one may begin."""
        try:
            if self._enlistment is not None and not self._has_ended:
                self._has_ended = True
                await self._abort()
        finally:
            self._participation.leave()

    async def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read as part of the transaction: `group` gets them at its commit, and not before.
        A member of a group gives `Consumer.group_metadata()`.

        Raises the error of the group's coordinator, and then the transaction is aborted. It is also aborted if the
        caller cancels this call: the offsets may be stored, and then the coordinator refuses a commit without them.
        """
        self._open()
        if not offsets:
            return
        committer = GroupMetadata(group) if isinstance(group, str) else group

        async def commit(part: coordinator_pb2.TransactionalCommit) -> None:
            keys, member = await self._keys(offsets), committing_member(committer)
            await self._groups.commit(committer.group_id, keys, part, member)

        what = f"a commit of offsets for group '{committer.group_id}'"
        await self._ask(GROUPS_TOPIC_NAME, committer.group_id, what, commit)

    async def settle(self, messages: Iterable[Message]) -> None:
        """Accept messages of queues as part of the transaction: they are settled at its commit, and not before. If the
        transaction is not committed, they are delivered again.

        Raises InvalidRecordState if a message is settled already or its lock has ended, and the error of the queue's
        coordinator. Then the transaction is aborted. It is also aborted if the caller cancels this call."""
        self._open()
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
            await self._settle(queue, settled)

    async def _settle(self, queue: str, messages: Sequence[Message]) -> None:
        singles = (Span(message.held, message.offset, message.offset, Verdict.ACCEPT) for message in messages)
        for spans in parts_of(merged(singles), MAX_SETTLEMENTS):
            settlements = [span.to_wire() for span in spans]
            settle = partial(self._queues.settle_in_transaction, queue, settlements)
            await self._ask(QUEUES_TOPIC_NAME, queue, f"a settlement of queue '{queue}'", settle)

    async def _ask(
        self,
        topic_name: str,
        name: str,
        what: str,
        ask: Callable[[coordinator_pb2.TransactionalCommit], Awaitable[None]],
    ) -> None:
        """One request to the coordinator of a name, with its number. A request that fails aborts the transaction: the
        coordinator may have it, and then refuses a commit without it."""
        enlistment, partition = self._open(), TopicPartition(topic_name, coordinator_partition(name))
        async with self._lock:
            if self._has_ended:
                raise InvalidTxnState(f"the transaction has ended: make {what}, and await it, inside of its block")
            sequence = self._sequences.get(partition, -1) + 1
            part = coordinator_pb2.TransactionalCommit(
                transactional_id=enlistment.attempt.transactional_id,
                producer_id=enlistment.producer_id,
                sequence=sequence,
                producer_proof=enlistment.producer_proof,
            )
            try:
                await ask(part)
            except BaseException as error:
                if not self._has_ended:  # otherwise the producer may be in another transaction
                    given_up = InvalidTxnState(f"the program cancelled {what}")
                    self._shell.fail(error if isinstance(error, MinilogError) else given_up)
                raise
            self._sequences[partition] = sequence

    async def _keys(self, offsets: Mapping[TopicPartition, int]) -> dict[PartitionKey, Committed]:
        cluster = self._shell.cluster
        for topic in {partition.topic for partition in offsets}:
            await cluster.topic(topic, cluster.deadline())
        return {cluster.cache.key(partition): Committed(offset) for partition, offset in offsets.items()}

    def _open(self) -> Enlistment:
        if self._enlistment is None:
            raise InvalidTxnState(
                "the transaction has not begun: use it as `with producer.transaction() as transaction:`"
            )
        return self._enlistment

    async def _commit(self) -> None:
        enlistment = self._open()
        try:
            async with self._lock:
                self._has_ended = True
            winner = self._with_coordinators(await self._participation.finish())
            outcome = await self._participation.transactions.commit(
                enlistment.attempt, [winner], coordinator_epoch=enlistment.coordinator_epoch
            )
        except BaseException:
            await self._abort()
            raise
        self._tell_queues(committed=True)
        if outcome is not TransactionOutcome.COMMITTED:
            _log.warning("%s is committed, but some partitions do not show it yet", enlistment.attempt)

    def _with_coordinators(self, winner: Winner) -> Winner:
        topics = self._shell.cluster.cache.topics
        asked = (
            WrittenPartition(topics[partition.topic].topic_id, partition.partition, last)
            for partition, last in self._sequences.items()
        )
        return Winner(winner.producer_id, (*winner.partitions, *asked))

    def _tell_queues(self, *, committed: bool) -> None:
        """Tell the consumers of the messages how the transaction has ended."""
        messages, self._messages = self._messages, []
        for message in messages:
            message.settler.transaction_ended(message, committed=committed)

    async def _abort(self) -> None:
        """Abort the whole attempt, with any producer of it whose enlistment was answered too late."""
        enlistment = self._open()
        self._shell.drop()
        try:
            await self._participation.transactions.abort(
                enlistment.attempt, coordinator_epoch=enlistment.coordinator_epoch
            )
        except MinilogError as error:
            _log.debug("%s is not aborted yet, and its time-out will abort it: %s", enlistment.attempt, error)
        finally:
            self._tell_queues(committed=False)
