"""grpc.health.v1 on the broker's port: "" (the whole server) and "minilog" are SERVING while the broker is ready.

The library's own servicer needs a task that watches all the time. This one looks at each call, and watches only while a
caller does: an idle broker does no work for it. A Watch has the limits of any other stream. An unknown name gets the
answer of the protocol.
"""

from __future__ import annotations

import asyncio
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from minilog.errors import ResourceNotFound
from minilog_broker.server.health import Look, not_ready

SERVICES = frozenset({"", "minilog"})
LOOK_EVERY_S = 0.5
MAX_WATCHES = 100  # each wakes twice a second, and holds its request
MAX_NAME_CHARACTERS = 255


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """The gRPC health service of a broker. `look` gives the state that decides whether the broker is ready."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._watches = 0

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: object
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in SERVICES:
            raise ResourceNotFound("the only services with a health are '' and 'minilog'")  # gRPC's NOT_FOUND
        return health_pb2.HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802
        """Write each change, until the caller goes away."""
        if self._watches >= MAX_WATCHES or len(request.service) > MAX_NAME_CHARACTERS:
            return  # the end of the stream: the protocol has its caller try again later
        self._watches += 1
        written = None
        try:
            while True:
                if (status := self._status(request.service)) != written:
                    await context.write(health_pb2.HealthCheckResponse(status=status))
                    written = status
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._watches -= 1

    def _status(self, service: str) -> health_pb2.HealthCheckResponse.ServingStatus:
        if service not in SERVICES:
            return health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        if not_ready(self._look()):
            return health_pb2.HealthCheckResponse.NOT_SERVING
        return health_pb2.HealthCheckResponse.SERVING
