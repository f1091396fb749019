"""Calls to the coordinators of transactions. They live on one event loop. minilog.transactions describes their
meaning."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from minilog.errors import InvalidTxnState, MinilogError, ProducerFenced, UnknownOutcome
from minilog.net.coordinator_client import CoordinatorClient
from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.transactions.messages import (
    AlreadyCommitted,
    Attempt,
    Contents,
    Ending,
    Enlistment,
    TransactionOutcome,
    Winner,
    abort_request,
    end_request,
    enlist_request,
    enlisted,
    keep_alive_request,
    outcome_of,
)
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc

_log = logging.getLogger(__name__)
_MARKERS_SHARE = 2  # of request.timeout.ms: the answer "becoming visible" is to arrive before the call is given up
_AGAIN_S = 0.05  # between two questions, where the first one took no time


class Transactions:
    """The calls of a client to coordinators of transactions.

    A call is repeated until its time is over. Each attempt asks the coordinator of that moment.
    """

    def __init__(self, cluster: NetworkClient) -> None:
        self._config = cluster.config
        self._coordinators = CoordinatorClient(cluster)

    async def enlist(
        self, attempt: Attempt, *, task: int | None = None, expires: bool = False
    ) -> Enlistment | AlreadyCommitted:
        """Take part in the attempt. A repeated call enlists one more producer, which writes nothing and ends with the
        rest.

        Raises StaleGeneration (with both numbers), ProducerFenced, InvalidTxnState, InvalidTransactionTimeout.
        """
        timeout_ms = self._config.transaction_timeout_ms
        response = await self._coordinators.call(
            TRANSACTIONS_TOPIC_NAME,
            attempt.transactional_id,
            lambda channel: coordinator_pb2_grpc.TransactionServiceStub(channel).Enlist,
            enlist_request(attempt, task=task, timeout_ms=timeout_ms, expires=expires),
            timeout_ms=self._config.request_timeout_ms,
        )
        return enlisted(attempt, response)

    async def keep_alive(self, enlistment: Enlistment) -> None:
        """Send a sign of life. Raises ProducerFenced if the producer has ended, and can write nothing more."""
        await self._coordinators.call(
            TRANSACTIONS_TOPIC_NAME,
            enlistment.attempt.transactional_id,
            lambda channel: coordinator_pb2_grpc.TransactionServiceStub(channel).KeepAlive,
            keep_alive_request(enlistment),
            timeout_ms=self._config.request_timeout_ms,
            changes=False,
        )

    async def keep_alive_until_fenced(self, enlistment: Enlistment, fenced: Callable[[ProducerFenced], None]) -> None:
        """Send signs of life until the caller cancels this call. `fenced` gets the error of a producer that has ended,
        and then this call returns."""
        while True:
            await asyncio.sleep(enlistment.keep_alive_ms / 1000.0)
            try:
                await self.keep_alive(enlistment)
            except ProducerFenced as error:
                fenced(error)
                return
            except MinilogError as error:
                _log.debug("the sign of life of producer %d failed, trying again: %s", enlistment.producer_id, error)

    async def commit(
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
        try:
            return await self.end(attempt, winners, contents, coordinator_epoch=coordinator_epoch)
        except UnknownOutcome as error:
            try:
                outcome = await self.abort(attempt, coordinator_epoch=coordinator_epoch)
            except MinilogError:
                raise error from None
            if outcome is TransactionOutcome.COMMITTED:
                return TransactionOutcome.BECOMING_VISIBLE
            raise InvalidTxnState(f"{attempt} is aborted, and no reader will see its records: {error}") from error

    async def end(
        self,
        attempt: Attempt,
        winners: Sequence[Winner],
        contents: Contents | None = None,
        *,
        coordinator_epoch: int = 0,
    ) -> TransactionOutcome:
        """Commit. The outcome is COMMITTED, or BECOMING_VISIBLE if the markers take longer than delivery.timeout.ms.

        The call asks until the outcome is known. Raises ProducerFenced and InvalidTxnState, after which nothing is or
        will be committed, and UnknownOutcome.
        """
        ending = Ending(attempt)
        within_ms = max(self._config.delivery_timeout_ms, self._config.request_timeout_ms)
        deadline_s = now_s() + within_ms / 1000.0
        while (remaining_ms := (deadline_s - now_s()) * 1000.0) > 0:
            call_ms = max(1, int(min(self._config.request_timeout_ms, remaining_ms)))
            request = end_request(
                attempt,
                winners,
                contents,
                timeout_ms=call_ms // _MARKERS_SHARE,
                coordinator_epoch=coordinator_epoch,
            )
            asked_s = now_s()
            try:
                outcome = ending.answered(await self._end_once(request, call_ms))
            except MinilogError as error:
                outcome = ending.failed(error)
            if outcome is not None:
                return outcome
            if now_s() < asked_s + _AGAIN_S:  # refused at once: the time left is too short to wait in there
                await asyncio.sleep(_AGAIN_S)
        return ending.out_of_time(within_ms)

    async def _end_once(self, request: coordinator_pb2.EndTransactionRequest, timeout_ms: int) -> TransactionOutcome:
        response = await self._coordinators.call(
            TRANSACTIONS_TOPIC_NAME,
            request.transactional_id,
            lambda channel: coordinator_pb2_grpc.TransactionServiceStub(channel).EndTransaction,
            request,
            timeout_ms=timeout_ms,
        )
        return outcome_of(response.outcome)

    async def abort(
        self, attempt: Attempt, producer_ids: Iterable[int] = (), *, coordinator_epoch: int = 0
    ) -> TransactionOutcome:
        """Abort these producers, or without any the whole attempt, which ends then. The outcome is COMMITTED if the
        generation was committed before, and then nothing changes. Raises StaleGeneration if a later generation is
        committed."""
        response = await self._coordinators.call(
            TRANSACTIONS_TOPIC_NAME,
            attempt.transactional_id,
            lambda channel: coordinator_pb2_grpc.TransactionServiceStub(channel).AbortAttempt,
            abort_request(attempt, list(producer_ids), coordinator_epoch=coordinator_epoch),
            timeout_ms=self._config.request_timeout_ms,
        )
        return outcome_of(response.outcome)
