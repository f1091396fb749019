"""QueueService: leases of records and their settlement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minilog.errors import wire_error
from minilog.v1 import queue_pb2, queue_pb2_grpc
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.lease_owners import LeaseOwners
from minilog_broker.server.access.producer_owners import Claim, ProducerOwners
from minilog_broker.server.services.calls import (
    Ask,
    Response,
    UnaryCall,
    callers_call,
    charged_call,
    coordinator_call,
    listing,
    untimed,
)
from minilog_broker.server.services.coordinator_checks import (
    QueueRequest,
    check_lease,
    check_queue,
    check_redrive,
    check_settlements,
)
from minilog_broker.server.shells.coordinators import Coordinators
from minilog_broker.server.shells.queue_shell import QueueShell

_Request = TypeVar("_Request", bound=QueueRequest)


def _call(
    kind: type[Response], ask: Ask[QueueCoordinator, _Request], check: Callable[[_Request], None] = check_queue
) -> UnaryCall[_Request, Response]:
    return coordinator_call(_of_queue, kind, ask, check)


def _of_queue(here: Coordinators, request: QueueRequest) -> QueueShell:
    return here.of_queue(request.queue)


class QueueService(queue_pb2_grpc.QueueServiceServicer):
    """The gRPC service for queues. Each call goes to the coordinator of the hash of the queue's name."""

    def __init__(self, coordinators: Coordinators, image: MetadataImage) -> None:
        self.coordinators = coordinators
        self._leases = LeaseOwners(image)
        self._owners = ProducerOwners(image)

    async def Settle(  # noqa: N802
        self, request: queue_pb2.SettleRequest, context: object
    ) -> queue_pb2.SettleResponse:
        assert isinstance(context, Caller)
        if request.HasField("transaction"):
            refusal = self._owners.refusal(context, Claim.of_commit(request.transaction))
            if refusal is not None:
                return queue_pb2.SettleResponse(error=wire_error(refusal))
        return await self._settle(self._leases.settlement(request, str(context.principal)), context)

    async def RenewLeases(  # noqa: N802
        self, request: queue_pb2.RenewLeasesRequest, context: object
    ) -> queue_pb2.RenewLeasesResponse:
        assert isinstance(context, Caller)
        own, others = self._leases.renewal(request, str(context.principal))
        response = await self._renew(own, context)
        if not response.HasField("error"):
            response.ended_lease_ids.extend(others)
        return response

    Lease = callers_call(_of_queue, queue_pb2.LeaseResponse, QueueCoordinator.lease, check_lease)
    _renew = charged_call(_of_queue, queue_pb2.RenewLeasesResponse, QueueCoordinator.renew, check_queue)
    _settle = charged_call(_of_queue, queue_pb2.SettleResponse, QueueCoordinator.settle, check_settlements)
    Redrive = charged_call(_of_queue, queue_pb2.RedriveResponse, QueueCoordinator.redrive, check_redrive)
    DescribeQueue = _call(queue_pb2.DescribeQueueResponse, QueueCoordinator.describe)
    AlterQueue = _call(queue_pb2.AlterQueueResponse, QueueCoordinator.alter)
    DeleteQueue = _call(queue_pb2.DeleteQueueResponse, untimed(QueueCoordinator.delete))
    ListQueues = listing(Coordinators.queues_here, queue_pb2.ListQueuesResponse, QueueCoordinator.list)
