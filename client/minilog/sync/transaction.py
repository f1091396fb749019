"""Transactions for blocking programs: the same as in minilog.aio, run on the background loop of the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from minilog.aio.participation import Participation as AsyncParticipation
from minilog.aio.producer_shell import ProducerShell
from minilog.aio.transaction import Transaction as AsyncTransaction
from minilog.config import parse_config
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.sync.loop import LoopThread, shared_loop
from minilog.transactions.client import Transactions as AsyncTransactions
from minilog.transactions.messages import AlreadyCommitted, Attempt, Contents, Enlistment, TransactionOutcome, Winner
from minilog.types import TopicPartition


class Transaction:
    """See Producer.transaction."""

    def __init__(self, loop: LoopThread, transaction: AsyncTransaction) -> None:
        self._loop = loop
        self._transaction = transaction

    @property
    def generation(self) -> int:
        """Of this transaction; one more with each."""
        return self._transaction.generation

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._transaction.__aenter__())
        except BaseException:
            self._loop.run(self._transaction.abandon())  # it may have begun, and nobody else would end it
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

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """The next offsets to read, as part of the transaction: `group` has them when it is committed, and not before.

        Raises what the group's coordinator answers; the transaction is aborted then.
        """
        self._loop.run(self._transaction.commit_offsets(group, offsets))


class Participation:
    """See Producer.participation. An exception in its block aborts what was written in it."""

    def __init__(self, loop: LoopThread, shell: ProducerShell) -> None:
        self._loop = loop
        self._participation = AsyncParticipation(shell)

    def begin(
        self, attempt: Attempt, *, task: int | None = None, expires: bool = False
    ) -> Enlistment | AlreadyCommitted:
        """Enlist; what the producer sends from now on is of this transaction."""
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
        """Everything is acknowledged. Raises why something is not."""
        return self._loop.run(self._participation.finish())

    def abort(self) -> None:
        """Nothing of what this producer wrote will be seen."""
        self._loop.run(self._participation.abort())

    def leave(self) -> None:
        """The end, also of the signs of life."""
        self._loop.run(self._leave())

    async def _leave(self) -> None:
        self._participation.leave()


class Transactions:
    """The calls of who commits what others wrote: Spark's driver. See minilog.transactions.client."""

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
        """Close the connections. Idempotent."""
        self._loop.close(self._cluster.close)

    def enlist(
        self, attempt: Attempt, *, task: int | None = None, expires: bool = False
    ) -> Enlistment | AlreadyCommitted:
        """Take part, and write nothing: the attempt takes over from those before."""
        return self._loop.run(self._transactions.enlist(attempt, task=task, expires=expires))

    def commit(
        self,
        attempt: Attempt,
        winners: Sequence[Winner],
        contents: Contents | None = None,
        *,
        coordinator_epoch: int = 0,
    ) -> TransactionOutcome:
        """End, and wait until the outcome is known and all of it visible, while there is time. `contents` are kept with
        the generation."""
        return self._loop.run(
            self._transactions.commit(attempt, winners, contents, coordinator_epoch=coordinator_epoch)
        )

    def abort(
        self, attempt: Attempt, producer_ids: Iterable[int] = (), *, coordinator_epoch: int = 0
    ) -> TransactionOutcome:
        """Abort these producers; without any the whole attempt."""
        return self._loop.run(
            self._transactions.abort(attempt, list(producer_ids), coordinator_epoch=coordinator_epoch)
        )
