"""What every call passes on its way in: its request is bounded (request_limits), and a large one waits for its turn.

A refusal is gRPC's INVALID_ARGUMENT with the words; a stream ends with it. What brokers ask of each other has turns of
its own: however many clients wait for theirs, followers are not taken for late.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message

from minilog.errors import InvalidArgument
from minilog.v1 import admin_pb2, coordinator_pb2, data_pb2, metadata_pb2, peer_pb2
from minilog_broker.server.request_limits import RequestLimits, all_limits
from minilog_broker.server.turns import Turns

OF_BROKERS = ("PeerService", "MarkerService")
_FILES = (admin_pb2, coordinator_pb2, data_pb2, metadata_pb2, peer_pb2)


def methods() -> list[MethodDescriptor]:
    """Every call that a broker answers."""
    services = [service for file in _FILES for service in file.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods]


class Admission(grpc.aio.ServerInterceptor):
    """See the module's text."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._turns_of_brokers = Turns()
        self._limits = all_limits(methods())

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        limits = self._limits.get(handler_call_details.method)
        if handler is None or limits is None:
            return handler
        kinds = {
            (False, False): (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
            (False, True): (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
            (True, False): (grpc.stream_unary_rpc_method_handler, handler.stream_unary),
            (True, True): (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
        }
        make, behaviour = kinds[handler.request_streaming, handler.response_streaming]
        admit = self._admit_stream if handler.request_streaming else self._admit_one
        return make(admit(limits, behaviour), response_serializer=handler.response_serializer)

    def _admit_one(self, limits: RequestLimits, behaviour: Callable[..., Awaitable[Any]]) -> Any:
        async def call(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            return await behaviour(await self._parsed(limits, data, context), context)

        return call

    def _admit_stream(self, limits: RequestLimits, behaviour: Callable[..., Awaitable[Any]]) -> Any:
        async def call(incoming: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            async def admitted() -> AsyncIterator[Message]:
                async for data in incoming:
                    yield await self._parsed(limits, data, context)

            return await behaviour(admitted(), context)

        return call

    async def _parsed(self, limits: RequestLimits, data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
        if limits.is_large(data):
            await (self._turns_of_brokers if limits.service in OF_BROKERS else self._turns).take()
        try:
            return limits.parse(data)
        except InvalidArgument as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"what came for {limits.name} is no request of it")
        raise AssertionError("abort raises")
