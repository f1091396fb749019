"""TransactionService: what writers, leaders of partitions and people ask of the coordinator of a transactional id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minilog.errors import MinilogError, wire_error
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.server.services.calls import Ask, Response, UnaryCall, coordinator_call, listing, untimed
from minilog_broker.server.services.coordinator_checks import (
    OfTransaction,
    check_end,
    check_registration,
    check_transaction,
)
from minilog_broker.server.services.metadata_service import ProducerIds
from minilog_broker.server.shells.coordinators import Coordinators

_Request = TypeVar("_Request", bound=OfTransaction)


def _call(
    kind: type[Response],
    ask: Ask[TransactionCoordinator, _Request],
    check: Callable[[_Request], None] = check_transaction,
) -> UnaryCall[_Request, Response]:
    return coordinator_call(lambda here, request: here.of_transaction(request.transactional_id), kind, ask, check)


class TransactionService(coordinator_pb2_grpc.TransactionServiceServicer):
    """Each call goes to the coordinator that its transactional id hashes to."""

    def __init__(self, coordinators: Coordinators, producer_ids: ProducerIds) -> None:
        self.coordinators = coordinators
        self._producer_ids = producer_ids

    async def Enlist(  # noqa: N802
        self, request: coordinator_pb2.EnlistRequest, context: object
    ) -> coordinator_pb2.EnlistResponse:
        kind = coordinator_pb2.EnlistResponse
        try:
            check_transaction(request)
            shell = self.coordinators.of_transaction(request.transactional_id)
            producer_id = await self._producer_ids.next()
        except MinilogError as error:
            return kind(error=wire_error(error))
        now = self.coordinators.moment
        return await shell.ask(kind, lambda ticket: shell.core.enlist(ticket, request, producer_id, now()))

    RegisterPartitions = _call(
        coordinator_pb2.RegisterPartitionsResponse, TransactionCoordinator.register, check_registration
    )
    KeepAlive = _call(coordinator_pb2.KeepAliveResponse, TransactionCoordinator.keep_alive)
    EndTransaction = _call(coordinator_pb2.EndTransactionResponse, TransactionCoordinator.end, check_end)
    AbortAttempt = _call(coordinator_pb2.AbortAttemptResponse, TransactionCoordinator.abort)

    # -- people

    ListTransactions = listing(
        Coordinators.transactions_here, coordinator_pb2.ListTransactionsResponse, TransactionCoordinator.list
    )
    DescribeTransaction = _call(coordinator_pb2.DescribeTransactionResponse, TransactionCoordinator.describe)
    AbortTransaction = _call(coordinator_pb2.AbortTransactionResponse, TransactionCoordinator.abort_by_command)
    ForgetTransaction = _call(coordinator_pb2.ForgetTransactionResponse, untimed(TransactionCoordinator.forget))
