"""A producer's part in an attempt at a transaction, from its enlisting to its last acknowledgement or its abort.

A Spark task does this, and a program does it as half of its transaction. It lives on the producer's event loop. A task
of its own keeps the transaction alive, even while the caller is busy.
"""

from __future__ import annotations

import asyncio
import logging

from minilog.aio.producer_shell import ProducerShell
from minilog.errors import InvalidTxnState, MinilogError
from minilog.transactions.client import Transactions
from minilog.transactions.messages import AlreadyCommitted, Attempt, Enlistment, Winner

_log = logging.getLogger(__name__)


class Participation:
    """A producer's membership in one transaction at a time.

    Order of calls: `begin`, then `finish` or `abort`, then `leave` in every case. Then `begin` may follow again.
    """

    def __init__(self, shell: ProducerShell) -> None:
        self._shell = shell
        self._transactions = Transactions(shell.cluster)
        self._enlistment: Enlistment | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def transactions(self) -> Transactions:
        """The calls to the coordinator."""
        return self._transactions

    async def begin(
        self, attempt: Attempt, *, task: int | None = None, expires: bool = False
    ) -> Enlistment | AlreadyCommitted:
        """Enlist. From then on the producer's records belong to this transaction.

        Raises the errors of Transactions.enlist."""
        self._shell.start()
        self._shell.reserve(self)
        try:
            answer = await self._transactions.enlist(attempt, task=task, expires=expires)
            if isinstance(answer, Enlistment):
                self._shell.begin(answer)
                self._keeper = self._shell.spawn(self._transactions.keep_alive_until_fenced(answer, self._shell.fail))
                self._enlistment = answer
                return answer
        finally:
            if self._enlistment is None:
                self._shell.release()
        return answer

    async def finish(self) -> Winner:
        """Wait until all records are acknowledged. Raises the error of a failed batch: then call `abort`."""
        if self._enlistment is None:
            raise InvalidTxnState("no transaction is open: it has not begun, or has ended")
        return Winner(self._enlistment.producer_id, await self._shell.finish())

    async def abort(self) -> None:
        """Abort the batches of this producer, so no reader sees them. If the coordinator does not answer, the time-out,
        a take-over, or a commit without this producer aborts them."""
        enlistment = self._enlistment
        if enlistment is None:
            return
        self._shell.drop()
        try:
            await self._transactions.abort(
                enlistment.attempt, [enlistment.producer_id], coordinator_epoch=enlistment.coordinator_epoch
            )
        except MinilogError as error:
            _log.debug(
                "the abort of producer %d failed, and its time-out will abort it: %s", enlistment.producer_id, error
            )

    def leave(self) -> None:
        """End the membership and the signs of life. A second call does nothing."""
        if self._enlistment is None:
            return
        self._enlistment = None
        self._shell.drop()
        self._shell.release()
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None
