"""QueueService: leases of records and their settlement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minilog.errors import wire_error
from minilog.v1 import queue_pb2, queue_pb2_grpc
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.producer_owners import Claim, ProducerOwners
from minilog_broker.server.services.calls import Ask, Response, UnaryCall, coordinator_call, listing, untimed
from minilog_broker.server.services.coordinator_checks import (
    QueueRequest,
    check_lease,
    check_queue,
    check_settlements,
)
from minilog_broker.server.shells.coordinators import Coordinators

_Request = TypeVar("_Request", bound=QueueRequest)


def _call(
    kind: type[Response], ask: Ask[QueueCoordinator, _Request], check: Callable[[_Request], None] = check_queue
) -> UnaryCall[_Request, Response]:
    return coordinator_call(lambda here, request: here.of_queue(request.queue), kind, ask, check)


class QueueService(queue_pb2_grpc.QueueServiceServicer):
    """The gRPC service for queues. Each call goes to the coordinator of the hash of the queue's name."""

    def __init__(self, coordinators: Coordinators, image: MetadataImage) -> None:
        self.coordinators = coordinators
        self._owners = ProducerOwners(image)

    async def Settle(  # noqa: N802
        self, request: queue_pb2.SettleRequest, context: object
    ) -> queue_pb2.SettleResponse:
        if request.HasField("transaction"):
            assert isinstance(context, Caller)
            refusal = self._owners.refusal(context, Claim.of_commit(request.transaction))
            if refusal is not None:
                return queue_pb2.SettleResponse(error=wire_error(refusal))
        return await self._settle(request, context)

    Lease = _call(queue_pb2.LeaseResponse, QueueCoordinator.lease, check_lease)
    RenewLeases = _call(queue_pb2.RenewLeasesResponse, QueueCoordinator.renew)
    _settle = _call(queue_pb2.SettleResponse, QueueCoordinator.settle, check_settlements)
    DescribeQueue = _call(queue_pb2.DescribeQueueResponse, QueueCoordinator.describe)
    AlterQueue = _call(queue_pb2.AlterQueueResponse, QueueCoordinator.alter)
    DeleteQueue = _call(queue_pb2.DeleteQueueResponse, untimed(QueueCoordinator.delete))
    ListQueues = listing(Coordinators.queues_here, queue_pb2.ListQueuesResponse, QueueCoordinator.list)
