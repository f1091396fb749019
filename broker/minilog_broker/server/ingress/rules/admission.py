"""The way of every call into the broker. Its request is bounded (request_limits), and a large one waits for its turn.

A refusal raises InvalidArgument or CorruptMessage, which ends a stream. Calls of brokers have turns of their own: many
waiting clients must not make followers late.
"""

from __future__ import annotations

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2

from minilog.errors import InvalidArgument
from minilog.record_batch.header import Buffer
from minilog.stream_messages import STREAM_METHODS, StreamMessage, split
from minilog.v1 import (
    admin_pb2,
    authentication_pb2,
    coordinator_pb2,
    data_pb2,
    metadata_pb2,
    peer_pb2,
    queue_pb2,
    security_pb2,
)
from minilog_broker.server.ingress.rules.client_stream import LARGE_BYTES, PEER_SERVICES, Parse
from minilog_broker.server.ingress.rules.request_limits import all_limits
from minilog_broker.server.runtime.turns import Turns

_FILES = (admin_pb2, authentication_pb2, coordinator_pb2, data_pb2, metadata_pb2, peer_pb2, queue_pb2, security_pb2)


def methods() -> list[MethodDescriptor]:
    """Every call of minilog's own that a broker answers."""
    services = [service for file in _FILES for service in file.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods]


def health_methods() -> list[MethodDescriptor]:
    """The calls of grpc.health.v1, which come this way like all others."""
    return list(health_pb2.DESCRIPTOR.services_by_name["Health"].methods)


class Admission:
    """The parsers of all calls, with their limits and turns."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._turns_of_brokers = Turns()
        self._limits = all_limits([*methods(), *health_methods()])

    def parser(self, path: str) -> Parse:
        """The parser of a call, by its path such as /minilog.v1.DataService/Fetch. It makes a bounded request of
        bytes."""
        limits, method = self._limits[path], STREAM_METHODS.get(path)
        turns = self._turns_of_brokers if limits.service_name in PEER_SERVICES else self._turns

        async def parsed(data: Buffer) -> Message | StreamMessage[Message]:
            content, payloads = split(data) if method is not None else (data, [])
            if len(data) > LARGE_BYTES or limits.is_large(content):
                await turns.take()
            try:
                request = limits.parse(content)
            except DecodeError:
                raise InvalidArgument(f"the bytes of a call {limits.name} are not a valid request") from None
            return request if method is None else method.request.join(request, payloads)

        return parsed
