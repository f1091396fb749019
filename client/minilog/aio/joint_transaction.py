"""A joint transaction: many writers in other processes, and one program that begins it and commits it.

The program enlists first, so the attempt takes over from earlier ones before any writer begins. It writes no record
itself. Its own producer gives the signs of life between the writers, stores offsets of groups, and is one of the
winners. So a commit needs no record, and a commit of offsets has the marker of this producer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from minilog.aio.transactional_requests import TransactionalRequests
from minilog.errors import InvalidTxnState, MinilogError
from minilog.net.network_client import NetworkClient
from minilog.transactions.client import Transactions
from minilog.transactions.messages import AlreadyCommitted, Attempt, Contents, Enlistment, TransactionOutcome, Winner
from minilog.types import GroupMetadata, TopicPartition


class JointTransaction:
    """Order of calls: `begin`, then `commit` or `abort`, then `leave` in every case."""

    def __init__(self, cluster: NetworkClient) -> None:
        self._cluster = cluster
        self._transactions = Transactions(cluster)
        self._requests: TransactionalRequests | None = None
        self._failure: MinilogError | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def begin(self, attempt: Attempt) -> Enlistment | AlreadyCommitted:
        """Enlist, and give signs of life from then on. Raises the errors of Transactions.enlist."""
        answer = await self._transactions.enlist(attempt)
        if isinstance(answer, Enlistment):
            self._requests = TransactionalRequests(self._cluster, answer, self._fail)
            self._keeper = asyncio.create_task(self._transactions.keep_alive_until_fenced(answer, self._fail))
        return answer

    async def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read: `group` gets them at the commit. Raises the error of the group's coordinator,
        and then no commit is possible."""
        await self._open().commit_offsets(group, offsets)

    async def commit(
        self, winners: Sequence[Winner], contents: Contents, *, coordinator_epoch: int
    ) -> TransactionOutcome:
        """Commit the records of these writers, and the offsets. `coordinator_epoch` is the highest that a writer knows.
        Raises the errors of Transactions.commit, and the error of an earlier call of this transaction."""
        requests = self._open()
        asked = await requests.finish()
        if self._failure is not None:
            raise self._failure
        enlistment = requests.enlistment
        return await self._transactions.commit(
            enlistment.attempt,
            [Winner(enlistment.producer_id, asked), *winners],
            contents,
            coordinator_epoch=max(coordinator_epoch, enlistment.coordinator_epoch),
        )

    async def abort(self) -> TransactionOutcome:
        """Abort the records of all writers, and the offsets. COMMITTED if the commit took place before."""
        requests = self._open()
        requests.has_ended = True
        enlistment = requests.enlistment
        return await self._transactions.abort(enlistment.attempt, coordinator_epoch=enlistment.coordinator_epoch)

    async def leave(self) -> None:
        """End the signs of life. A second call does nothing."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper

    def _fail(self, error: MinilogError) -> None:
        """Keep the first error. The commit raises it."""
        self._failure = self._failure or error

    def _open(self) -> TransactionalRequests:
        if self._requests is None:
            raise InvalidTxnState("the transaction has not begun, or its generation is committed already")
        return self._requests
