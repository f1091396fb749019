"""TransactionService: calls of writers, leaders of partitions and people to the coordinator of a transactional id.

A user with as many open transactions as its quota allows waits for the answer: until one has ended, or for ROOM_WAIT_S.
Then the client gets a refusal, which it retries.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, cast

from minilog.errors import MinilogError, ResourceExhausted, wire_error
from minilog.security.quota_keys import OPEN_TRANSACTIONS, OPEN_TRANSACTIONS_AGE_MS
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.security.open_transactions import OpenTransactions, excess
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.services.calls import Ask, Response, UnaryCall, coordinator_call, listing, untimed
from minilog_broker.server.services.coordinator_checks import (
    OfTransaction,
    check_end,
    check_registration,
    check_transaction,
)
from minilog_broker.server.services.producer_ids import ProducerIds
from minilog_broker.server.shells.coordinators import Coordinators

ROOM_WAIT_S = 10.0  # below the clients' request.timeout.ms, as the delays of rates are
LOOK_S = 0.1
MOST_WAITING = 64  # calls of one principal: at most some thousand looks a second

_Request = TypeVar("_Request", bound=OfTransaction)


def _call(
    kind: type[Response],
    ask: Ask[TransactionCoordinator, _Request],
    check: Callable[[_Request], None] = check_transaction,
) -> UnaryCall[_Request, Response]:
    return coordinator_call(lambda here, request: here.of_transaction(request.transactional_id), kind, ask, check)


def _writers_call(kind: type[Response], ask: Ask[TransactionCoordinator, _Request]) -> UnaryCall[_Request, Response]:
    """The same for a call of a writer, which shows the owner of the transaction."""
    answered = cast("Any", _call(kind, ask))

    async def call(service: TransactionService, request: _Request, context: object) -> Response:
        service.still_open(context, request.transactional_id)
        return cast("Response", await answered(service, request, context))

    return cast("UnaryCall[_Request, Response]", call)  # the class binds the service


class TransactionService(coordinator_pb2_grpc.TransactionServiceServicer):
    """The gRPC service for transactions. Each call goes to the coordinator of the hash of its transactional id."""

    def __init__(self, coordinators: Coordinators, producer_ids: ProducerIds) -> None:
        self.coordinators = coordinators
        self._producer_ids = producer_ids
        self._open = OpenTransactions()
        self._waiting: Counter[str] = Counter()  # calls of principals that wait for room

    def still_open(self, caller: object, transactional_id: str) -> None:
        """Note a call of a writer: the transaction is its caller's, where it is open."""
        assert isinstance(caller, Caller)
        if not caller.is_everybody and self._age_ms(transactional_id) is not None:
            self._open.heard(str(caller.principal), transactional_id)

    async def Enlist(  # noqa: N802
        self, request: coordinator_pb2.EnlistRequest, context: object
    ) -> coordinator_pb2.EnlistResponse:
        kind = coordinator_pb2.EnlistResponse
        assert isinstance(context, Caller)
        try:
            check_transaction(request)
            shell = self.coordinators.of_transaction(request.transactional_id)
            given = await self._producer_ids.next(context, request.transactional_id)
            await self._room(context, request.transactional_id)  # last: the call takes the room at once
        except MinilogError as error:
            return kind(error=wire_error(error))
        self._begin(context, request.transactional_id)
        now = self.coordinators.moment
        producer_id = given.name.producer_id
        answer = await shell.ask(kind, lambda ticket: shell.core.enlist(ticket, request, producer_id, now()))
        if answer.producer_id == producer_id:
            answer.producer_proof = given.proof
        return answer

    def _begin(self, caller: Caller, transactional_id: str) -> None:
        if not caller.is_everybody:
            self._open.heard(str(caller.principal), transactional_id)

    async def _room(self, caller: Caller, transactional_id: str) -> None:
        """Wait until the caller's quotas allow one more transaction.

        Raises ResourceExhausted after a while. Raises it at once where many calls of the principal wait already, since
        each of them looks again and again.
        """
        principal, deadline_s = str(caller.principal), asyncio.get_running_loop().time() + ROOM_WAIT_S
        while (why := self._excess(caller, transactional_id)) is not None:
            if asyncio.get_running_loop().time() >= deadline_s or self._waiting[principal] >= MOST_WAITING:
                raise ResourceExhausted(
                    f"{principal}: {why}. End or abort one of them (minilog transaction list), or try again"
                )
            self._waiting[principal] += 1
            try:
                await asyncio.sleep(LOOK_S)
            finally:
                self._waiting[principal] -= 1
                if not self._waiting[principal]:
                    del self._waiting[principal]

    def _excess(self, caller: Caller, transactional_id: str) -> str | None:
        most, most_age_ms = caller.most(OPEN_TRANSACTIONS), caller.most(OPEN_TRANSACTIONS_AGE_MS)
        if most is None and most_age_ms is None:
            return None
        ages_ms = self._open.ages_ms(str(caller.principal), self._age_ms)
        return excess(ages_ms, transactional_id, most, most_age_ms)

    def _age_ms(self, transactional_id: str) -> float | None:
        try:
            core = self.coordinators.of_transaction(transactional_id).core
        except MinilogError:
            return None  # another broker has it now
        return core.open_age_ms(transactional_id, self.coordinators.moment().wall_us)

    # Calls of leaders: the caller is their broker, and not the owner of the transaction.
    RegisterPartitions = _call(
        coordinator_pb2.RegisterPartitionsResponse, TransactionCoordinator.register, check_registration
    )
    KeepAlive = _writers_call(coordinator_pb2.KeepAliveResponse, TransactionCoordinator.keep_alive)
    EndTransaction = _call(coordinator_pb2.EndTransactionResponse, TransactionCoordinator.end, check_end)
    AbortAttempt = _call(coordinator_pb2.AbortAttemptResponse, TransactionCoordinator.abort)

    # -- people

    ListTransactions = listing(
        Coordinators.transactions_here, coordinator_pb2.ListTransactionsResponse, TransactionCoordinator.list
    )
    DescribeTransaction = _call(coordinator_pb2.DescribeTransactionResponse, TransactionCoordinator.describe)
    AbortTransaction = _call(coordinator_pb2.AbortTransactionResponse, TransactionCoordinator.abort_by_command)
    ForgetTransaction = _call(coordinator_pb2.ForgetTransactionResponse, untimed(TransactionCoordinator.forget))
