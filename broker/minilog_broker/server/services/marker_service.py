"""MarkerService: coordinators write the ends of transactions to the partitions of their producers.

The leader of a topic's partition writes the marker. For a partition of `__groups` or `__queues` its coordinator does.
The service takes markers only from the coordinator that the image names, in its own epoch (marker_checks.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from minilog.errors import MinilogError, wire_error
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, QUEUES_TOPIC_NAME
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc
from minilog_broker.controller.image import MetadataImage
from minilog_broker.replication.replica_effects import AnswerMarkers
from minilog_broker.server.clients.partition_registrations import Leading
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.services.marker_checks import check_markers, markers_request

Request: TypeAlias = coordinator_pb2.WriteMarkersRequest
Response: TypeAlias = coordinator_pb2.WriteMarkersResponse
WriteMarkers: TypeAlias = Callable[[Request], Awaitable[Response]]


def answer_markers(effect: AnswerMarkers) -> None:
    """Carry out AnswerMarkers: give the result to the waiting call, if there still is one."""
    assert isinstance(effect.ticket, asyncio.Future)
    if not effect.ticket.done():
        effect.ticket.set_result(effect.error)


class MarkerService(coordinator_pb2_grpc.MarkerServiceServicer):
    """The gRPC service that writes the markers of coordinators.

    `of_coordinators` answers for the partitions of `__groups` and `__queues`.
    """

    def __init__(
        self, replicas: Leading, image: MetadataImage, of_coordinators: WriteMarkers, wall_us: Callable[[], int]
    ) -> None:
        self._wall_us = wall_us
        self._replicas = replicas
        self._image = image
        self._of_coordinators = of_coordinators

    async def WriteMarkers(self, request: Request, context: object) -> Response:  # noqa: N802
        return await self.write(request)

    async def write(self, request: Request) -> Response:
        """Answered when the markers are below the high watermark, or will not be."""
        key = PartitionKey.of(request.partition_id)
        try:
            check_markers(self._image, request)
        except MinilogError as error:
            return Response(error=wire_error(error))
        if any(key.topic_id == self._image.topic_ids.get(name) for name in (GROUPS_TOPIC_NAME, QUEUES_TOPIC_NAME)):
            return await self._of_coordinators(request)
        answered: asyncio.Future[MinilogError | None] = asyncio.get_running_loop().create_future()
        wanted = markers_request(request, answered, self._wall_us())
        self._replicas.manager.write_markers(key, wanted, now_ms())
        self._replicas.run()
        refusal = await answered
        return Response(error=None if refusal is None else wire_error(refusal))
