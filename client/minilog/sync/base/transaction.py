"""Transactions of threads: each begins, ends and is abandoned on the background loop."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from minilog.aio.joint_transaction import JointTransaction as AsyncJointTransaction
from minilog.aio.participation import Participation as AsyncParticipation
from minilog.aio.producer_shell import ProducerShell
from minilog.aio.transaction import Transaction as AsyncTransaction
from minilog.config import parse_config
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.sync.base import Blocking, called
from minilog.sync.loop import LoopThread, shared_loop
from minilog.transactions.client import Transactions as AsyncTransactions


class TransactionBase:
    """The block of a transaction."""

    def __init__(self, loop: LoopThread, transaction: AsyncTransaction) -> None:
        self._loop = loop
        self._inner = transaction

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._inner.__aenter__())
        except BaseException:
            self._loop.run(self._inner.abandon())  # it may have begun, and no other call would end it
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self._inner.__aexit__(kind, error, trace))
        except BaseException:
            self._loop.run(self._inner.abandon())
            raise


class ParticipationBase:
    """The block of a part. An exception in it aborts the records of the block."""

    def __init__(self, loop: LoopThread, shell: ProducerShell) -> None:
        self._loop = loop
        self._inner = AsyncParticipation(shell)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                self._loop.run(self._inner.abort())
        finally:
            self._loop.run(called(self._inner.leave))


class TransactionsBase(Blocking):
    """The connections of a program that ends transactions of others."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = shared_loop()
        self._cluster = NetworkClient(parse_config(config), SYSTEM_RUNTIME)
        self._inner = AsyncTransactions(self._cluster)

    def close(self) -> None:
        """Close the connections. A second call does nothing."""
        self._loop.close(self._cluster.close)


class JointTransactionBase:
    """The connections of a program that begins and commits a joint transaction."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = shared_loop()
        self._cluster = NetworkClient(parse_config(config), SYSTEM_RUNTIME)
        self._inner = AsyncJointTransaction(self._cluster)

    def close(self) -> None:
        """End the signs of life, and close the connections. A second call does nothing."""
        self._loop.close(self._close)

    async def _close(self) -> None:
        try:
            await self._inner.leave()
        finally:
            await self._cluster.close()
