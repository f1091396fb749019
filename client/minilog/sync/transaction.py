"""Transactions for blocking programs. The classes of minilog.aio do the work, on the background loop of the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from minilog.aio.joint_transaction import JointTransaction as AsyncJointTransaction
from minilog.aio.participation import Participation as AsyncParticipation
from minilog.aio.producer_shell import ProducerShell
from minilog.aio.transaction import Transaction as AsyncTransaction
from minilog.config import parse_config
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.queues.message import Message
from minilog.sync.loop import LoopThread, shared_loop
from minilog.transactions.client import Transactions as AsyncTransactions
from minilog.transactions.messages import AlreadyCommitted, Attempt, Contents, Enlistment, TransactionOutcome, Winner
from minilog.types import GroupMetadata, TopicPartition


class Transaction:
    """A transaction of this producer, for one `with` block. Producer.transaction makes it and describes it."""

    def __init__(self, loop: LoopThread, transaction: AsyncTransaction) -> None:
        self._loop = loop
        self._transaction = transaction

    @property
    def generation(self) -> int:
        """The generation of this transaction. It grows by one with each transaction."""
        return self._transaction.generation

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._transaction.__aenter__())
        except BaseException:
            self._loop.run(self._transaction.abandon())  # it may have begun, and no other call would end it
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self._transaction.__aexit__(kind, error, trace))
        except BaseException:
            self._loop.run(self._transaction.abandon())
            raise

    def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read as part of the transaction: `group` gets them at its commit, and not before.
        A member of a group gives `Consumer.group_metadata()`.

        Raises the error of the group's coordinator, and then the transaction is aborted.
        """
        self._loop.run(self._transaction.commit_offsets(group, offsets))

    def settle(self, messages: Iterable[Message]) -> None:
        """Accept messages of queues as part of the transaction: they are settled at its commit, and not before. So what
        the transaction writes and what it has read are done both, or neither. If the transaction is not committed, the
        messages are delivered again.

        Raises InvalidRecordState if a message is settled already or its lock has ended, and the error of the queue's
        coordinator. Then the transaction is aborted."""
        self._loop.run(self._transaction.settle(list(messages)))


class Participation:
    """A producer's part in a transaction. Producer.participation makes it and describes it. An exception in its block
    aborts the records of the block."""

    def __init__(self, loop: LoopThread, shell: ProducerShell) -> None:
        self._loop = loop
        self._participation = AsyncParticipation(shell)

    def begin(
        self, attempt: Attempt, *, task: int | None = None, expires: bool = False
    ) -> Enlistment | AlreadyCommitted:
        """Enlist. From now on the producer's records belong to this transaction."""
        return self._loop.run(self._participation.begin(attempt, task=task, expires=expires))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                self.abort()
        finally:
            self.leave()

    def finish(self) -> Winner:
        """Wait until all records are acknowledged. Raises the error of a batch that failed."""
        return self._loop.run(self._participation.finish())

    def abort(self) -> None:
        """Abort the records of this producer, so no reader sees them."""
        self._loop.run(self._participation.abort())

    def leave(self) -> None:
        """End the part and its signs of life."""
        self._loop.run(self._leave())

    async def _leave(self) -> None:
        self._participation.leave()


class Transactions:
    """The calls of a program that commits the records of other writers, such as Spark's driver.
    minilog.transactions.client describes them."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = shared_loop()
        self._cluster = NetworkClient(parse_config(config), SYSTEM_RUNTIME)
        self._transactions = AsyncTransactions(self._cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A second call does nothing."""
        self._loop.close(self._cluster.close)

    def enlist(
        self, attempt: Attempt, *, task: int | None = None, expires: bool = False
    ) -> Enlistment | AlreadyCommitted:
        """Enlist without writing. The attempt takes over from earlier attempts."""
        return self._loop.run(self._transactions.enlist(attempt, task=task, expires=expires))

    def commit(
        self,
        attempt: Attempt,
        winners: Sequence[Winner],
        contents: Contents | None = None,
        *,
        coordinator_epoch: int = 0,
    ) -> TransactionOutcome:
        """Commit, and wait until the outcome is known and readers see all records, but at most delivery.timeout.ms. The
        coordinator keeps `contents` with the generation."""
        return self._loop.run(
            self._transactions.commit(attempt, winners, contents, coordinator_epoch=coordinator_epoch)
        )

    def abort(
        self, attempt: Attempt, producer_ids: Iterable[int] = (), *, coordinator_epoch: int = 0
    ) -> TransactionOutcome:
        """Abort these producers, or without any the whole attempt."""
        return self._loop.run(
            self._transactions.abort(attempt, list(producer_ids), coordinator_epoch=coordinator_epoch)
        )


class JointTransaction:
    """A transaction with many writers, at the program that begins it and commits it, such as Spark's driver.
    minilog.aio.joint_transaction describes it."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = shared_loop()
        self._cluster = NetworkClient(parse_config(config), SYSTEM_RUNTIME)
        self._transaction = AsyncJointTransaction(self._cluster)

    def begin(self, attempt: Attempt) -> Enlistment | AlreadyCommitted:
        """Enlist, and give signs of life from then on. The attempt takes over from earlier attempts."""
        return self._loop.run(self._transaction.begin(attempt))

    def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read: `group` gets them at the commit, and not before."""
        self._loop.run(self._transaction.commit_offsets(group, offsets))

    def commit(self, winners: Sequence[Winner], contents: Contents, *, coordinator_epoch: int) -> TransactionOutcome:
        """Commit the records of these writers, and the offsets. Waits like Transactions.commit."""
        return self._loop.run(self._transaction.commit(winners, contents, coordinator_epoch=coordinator_epoch))

    def abort(self) -> TransactionOutcome:
        """Abort the records of all writers, and the offsets. COMMITTED if the commit took place before."""
        return self._loop.run(self._transaction.abort())

    def close(self) -> None:
        """End the signs of life, and close the connections. A second call does nothing."""
        self._loop.close(self._close)

    async def _close(self) -> None:
        try:
            await self._transaction.leave()
        finally:
            await self._cluster.close()
