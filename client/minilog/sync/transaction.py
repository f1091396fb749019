"""Transactions for blocking programs. The classes of minilog.aio do the work, on the background loop.

Generated from the classes for asyncio by tools/generate_sync.py: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minilog.queues.message import Message
from minilog.sync.base import called, own
from minilog.sync.base.transaction import JointTransactionBase, ParticipationBase, TransactionBase, TransactionsBase
from minilog.transactions.messages import AlreadyCommitted, Attempt, Contents, Enlistment, TransactionOutcome, Winner
from minilog.types import GroupMetadata, TopicPartition


class Transaction(TransactionBase):
    """A transaction of a producer, for one `with` block. minilog.Producer.transaction has the meaning."""

    @property
    def generation(self) -> int:
        """The generation of this transaction, which grows by one with each transaction. Raises InvalidTxnState before
        its begin."""
        return self._inner.generation

    def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read as part of the transaction: `group` gets them at its commit, and not before.
        A member of a group gives `Consumer.group_metadata()`.

        Raises the error of the group's coordinator, and then the transaction is aborted. It is also aborted if the
        caller cancels this call: the offsets may be stored, and then the coordinator refuses a commit without them.
        """
        self._loop.run(self._inner.commit_offsets(group, own(offsets)))

    def settle(self, messages: Iterable[Message]) -> None:
        """Accept messages of queues as part of the transaction: they are settled at its commit, and not before. If the
        transaction is not committed, they are delivered again.

        Raises InvalidRecordState if a message is settled already or its lock has ended, and the error of the queue's
        coordinator. Then the transaction is aborted. It is also aborted if the caller cancels this call."""
        self._loop.run(self._inner.settle(own(messages)))


class Participation(ParticipationBase):
    """A producer's membership in one transaction at a time.

    Order of calls: `begin`, then `finish` or `abort`, then `leave` in every case. Then `begin` may follow again.
    """

    def begin(
        self, attempt: Attempt, *, task: int | None = None, expires: bool = False
    ) -> Enlistment | AlreadyCommitted:
        """Enlist. From then on the producer's records belong to this transaction.

        Raises the errors of Transactions.enlist."""
        return self._loop.run(self._inner.begin(attempt, task=task, expires=expires))

    def finish(self) -> Winner:
        """Wait until all records are acknowledged. Raises the error of a failed batch: then call `abort`."""
        return self._loop.run(self._inner.finish())

    def abort(self) -> None:
        """Abort the batches of this producer, so no reader sees them. If the coordinator does not answer, the time-out,
        a take-over, or a commit without this producer aborts them."""
        self._loop.run(self._inner.abort())

    def leave(self) -> None:
        """End the membership and the signs of life. A second call does nothing."""
        self._loop.run(called(lambda: self._inner.leave()))


class Transactions(TransactionsBase):
    """The calls of a client to coordinators of transactions.

    A call is repeated until its time is over. Each attempt asks the coordinator of that moment.
    """

    def enlist(
        self, attempt: Attempt, *, task: int | None = None, expires: bool = False
    ) -> Enlistment | AlreadyCommitted:
        """Take part in the attempt. A repeated call enlists one more producer, which writes nothing and ends with the
        rest.

        Raises StaleGeneration (with both numbers), ProducerFenced, InvalidTxnState, InvalidTransactionTimeout.
        """
        return self._loop.run(self._inner.enlist(attempt, task=task, expires=expires))

    def commit(
        self,
        attempt: Attempt,
        winners: Sequence[Winner],
        contents: Contents | None = None,
        *,
        coordinator_epoch: int = 0,
    ) -> TransactionOutcome:
        """Call `end`. If its outcome stays unknown, call `abort`, whose answer shows which of the two happened.

        Raises the errors of `end`, and InvalidTxnState if the transaction was not committed in time and is aborted now.
        """
        return self._loop.run(self._inner.commit(attempt, own(winners), contents, coordinator_epoch=coordinator_epoch))

    def abort(
        self, attempt: Attempt, producer_ids: Iterable[int] = (), *, coordinator_epoch: int = 0
    ) -> TransactionOutcome:
        """Abort these producers, or without any the whole attempt, which ends then. The outcome is COMMITTED if the
        generation was committed before, and then nothing changes. Raises StaleGeneration if a later generation is
        committed."""
        return self._loop.run(self._inner.abort(attempt, own(producer_ids), coordinator_epoch=coordinator_epoch))


class JointTransaction(JointTransactionBase):
    """Order of calls: `begin`, then `commit` or `abort`, then `leave` in every case."""

    def begin(self, attempt: Attempt) -> Enlistment | AlreadyCommitted:
        """Enlist, and give signs of life from then on. Raises the errors of Transactions.enlist."""
        return self._loop.run(self._inner.begin(attempt))

    def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read: `group` gets them at the commit. Raises the error of the group's coordinator,
        and then no commit is possible."""
        self._loop.run(self._inner.commit_offsets(group, own(offsets)))

    def commit(self, winners: Sequence[Winner], contents: Contents, *, coordinator_epoch: int) -> TransactionOutcome:
        """Commit the records of these writers, and the offsets. `coordinator_epoch` is the highest that a writer knows.
        Raises the errors of Transactions.commit, and the error of an earlier call of this transaction."""
        return self._loop.run(self._inner.commit(own(winners), contents, coordinator_epoch=coordinator_epoch))

    def abort(self) -> TransactionOutcome:
        """Abort the records of all writers, and the offsets. COMMITTED if the commit took place before."""
        return self._loop.run(self._inner.abort())
