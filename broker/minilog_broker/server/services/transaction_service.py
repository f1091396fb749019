"""TransactionService: what writers, leaders of partitions and people ask of the coordinator of a transactional id."""

from __future__ import annotations

from collections.abc import Callable

from minilog.errors import MinilogError, wire_error
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.server.services.coordinator_checks import check_end, check_partitions, check_transactional_id
from minilog_broker.server.services.metadata_service import ProducerIds
from minilog_broker.server.shells.coordinator_shell import Response
from minilog_broker.server.shells.coordinators import Coordinators


class TransactionService(coordinator_pb2_grpc.TransactionServiceServicer):
    """Each call goes to the coordinator that its transactional id hashes to."""

    def __init__(self, coordinators: Coordinators, producer_ids: ProducerIds) -> None:
        self._coordinators = coordinators
        self._moment = coordinators.moment
        self._producer_ids = producer_ids

    async def Enlist(  # noqa: N802
        self, request: coordinator_pb2.EnlistRequest, context: object
    ) -> coordinator_pb2.EnlistResponse:
        kind = coordinator_pb2.EnlistResponse
        try:
            check_transactional_id(request.transactional_id)
            shell = self._coordinators.of_transaction(request.transactional_id)
            producer_id = await self._producer_ids.next()
        except MinilogError as error:
            return kind(error=wire_error(error))
        return await shell.ask(kind, lambda ticket: shell.core.enlist(ticket, request, producer_id, self._moment()))

    async def RegisterPartitions(  # noqa: N802
        self, request: coordinator_pb2.RegisterPartitionsRequest, context: object
    ) -> coordinator_pb2.RegisterPartitionsResponse:
        try:
            check_transactional_id(request.transactional_id)
            check_partitions(request.partitions)
        except MinilogError as error:
            return coordinator_pb2.RegisterPartitionsResponse(error=wire_error(error))
        return await self._coordinators.register(request)

    async def KeepAlive(  # noqa: N802
        self, request: coordinator_pb2.KeepAliveRequest, context: object
    ) -> coordinator_pb2.KeepAliveResponse:
        return await self._ask(
            coordinator_pb2.KeepAliveResponse,
            request.transactional_id,
            lambda: check_transactional_id(request.transactional_id),
            lambda core, ticket: core.keep_alive(ticket, request, self._moment()),
        )

    async def EndTransaction(  # noqa: N802
        self, request: coordinator_pb2.EndTransactionRequest, context: object
    ) -> coordinator_pb2.EndTransactionResponse:
        return await self._ask(
            coordinator_pb2.EndTransactionResponse,
            request.transactional_id,
            lambda: check_end(request),
            lambda core, ticket: core.end(ticket, request, self._moment()),
        )

    async def AbortAttempt(  # noqa: N802
        self, request: coordinator_pb2.AbortAttemptRequest, context: object
    ) -> coordinator_pb2.AbortAttemptResponse:
        return await self._ask(
            coordinator_pb2.AbortAttemptResponse,
            request.transactional_id,
            lambda: check_transactional_id(request.transactional_id),
            lambda core, ticket: core.abort(ticket, request, self._moment()),
        )

    # -- people

    async def ListTransactions(  # noqa: N802
        self, request: coordinator_pb2.ListTransactionsRequest, context: object
    ) -> coordinator_pb2.ListTransactionsResponse:
        kind = coordinator_pb2.ListTransactionsResponse
        whole = kind()
        for shell in self._coordinators.transactions_here():
            found = await shell.ask(kind, lambda ticket, core=shell.core: core.list(ticket, request))  # type: ignore[misc]
            if found.error.code:
                return kind(error=found.error)
            whole.transactions.extend(found.transactions)
        return whole

    async def DescribeTransaction(  # noqa: N802
        self, request: coordinator_pb2.DescribeTransactionRequest, context: object
    ) -> coordinator_pb2.DescribeTransactionResponse:
        return await self._ask(
            coordinator_pb2.DescribeTransactionResponse,
            request.transactional_id,
            lambda: check_transactional_id(request.transactional_id),
            lambda core, ticket: core.describe(ticket, request, self._moment()),
        )

    async def AbortTransaction(  # noqa: N802
        self, request: coordinator_pb2.AbortTransactionRequest, context: object
    ) -> coordinator_pb2.AbortTransactionResponse:
        return await self._ask(
            coordinator_pb2.AbortTransactionResponse,
            request.transactional_id,
            lambda: check_transactional_id(request.transactional_id),
            lambda core, ticket: core.abort_by_command(ticket, request, self._moment()),
        )

    async def ForgetTransaction(  # noqa: N802
        self, request: coordinator_pb2.ForgetTransactionRequest, context: object
    ) -> coordinator_pb2.ForgetTransactionResponse:
        return await self._ask(
            coordinator_pb2.ForgetTransactionResponse,
            request.transactional_id,
            lambda: check_transactional_id(request.transactional_id),
            lambda core, ticket: core.forget(ticket, request),
        )

    async def _ask(
        self,
        kind: type[Response],
        transactional_id: str,
        check: Callable[[], None],
        ask: Callable[[TransactionCoordinator, object], None],
    ) -> Response:
        """What the coordinator answers; or why it is not asked."""
        try:
            check()
            shell = self._coordinators.of_transaction(transactional_id)
        except MinilogError as error:
            return kind(error=wire_error(error))
        return await shell.ask(kind, lambda ticket: ask(shell.core, ticket))
