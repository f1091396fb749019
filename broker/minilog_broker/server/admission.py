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
from minilog_broker.server.request_limits import all_limits
from minilog_broker.server.turns import Turns

OF_BROKERS = ("PeerService", "MarkerService")
_FILES = (admin_pb2, coordinator_pb2, data_pb2, metadata_pb2, peer_pb2)


def methods() -> list[MethodDescriptor]:
    """Every call that a broker answers."""
    services = [service for file in _FILES for service in file.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods]


class Admission:
    """See the module's text."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._turns_of_brokers = Turns()
        self._limits = all_limits(methods())

    async def admit(self, path: str, data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
        """The request of the call `path` that came as `data`, in its turn; aborts the call where it is refused."""
        limits = self._limits[path]
        if limits.is_large(data):
            await (self._turns_of_brokers if limits.service in OF_BROKERS else self._turns).take()
        try:
            return limits.parse(data)
        except InvalidArgument as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"what came for {limits.name} is no request of it")
        raise AssertionError("abort raises")

    def knows(self, path: str) -> bool:
        """Is it a call of ours?"""
        return path in self._limits


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """Has every request of a server admitted."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler, path = await continuation(handler_call_details), handler_call_details.method
        if handler is None or not self._admission.knows(path):
            return handler
        kinds = {
            (False, False): (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
            (False, True): (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
            (True, True): (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
        }
        make, behaviour = kinds[handler.request_streaming, handler.response_streaming]
        admit = self._admit_stream if handler.request_streaming else self._admit_one
        return make(admit(path, behaviour), response_serializer=handler.response_serializer)

    def _admit_one(self, path: str, behaviour: Callable[..., Awaitable[Any]]) -> Any:
        async def call(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            return await behaviour(await self._admission.admit(path, data, context), context)

        return call

    def _admit_stream(self, path: str, behaviour: Callable[..., Awaitable[Any]]) -> Any:
        async def call(incoming: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            async def admitted() -> AsyncIterator[Message]:
                async for data in incoming:
                    yield await self._admission.admit(path, data, context)

            return await behaviour(admitted(), context)

        return call
