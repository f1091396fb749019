"""The calls of one port of gRPC: each is admitted, counted, bounded and checked before its service sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
from google.protobuf.message import Message

from minilog.errors import MinilogError
from minilog.record_batch.header import Buffer
from minilog.stream_messages import STREAM_METHODS
from minilog.tracing import process_tracing
from minilog.tracing.interfaces import Tracing
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.costs import Cost
from minilog_broker.server.access.table import ROWS
from minilog_broker.server.ingress.rules.admitting import admitted, checked_parse
from minilog_broker.server.ingress.rules.arrival import arrival_of
from minilog_broker.server.ingress.rules.client_stream import PEER_SERVICES, BrokerStream, ClientStream, Parse
from minilog_broker.server.ingress.rules.gate import Gate, details_of, status_of
from minilog_broker.server.ingress.rules.throttle import MAX_DELAY_S
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.runtime.observer import BrokerObserver

_OWN_SERVICES = "/minilog."  # not health, which watchers ask for each second


class CountedServer:
    """Takes services like a grpc.aio.Server, and counts all their messages. Streams have another server
    (stream_server.py).

    `parser` gives the parser of requests, by the path of the call.
    """

    def __init__(
        self,
        server: grpc.aio.Server,
        flow: Flow,
        parser: Callable[[str], Parse],
        gate: Gate,
        observer: BrokerObserver,
    ) -> None:
        self._gate = gate
        self._server = server
        self._observer = observer
        self._flow = flow
        self._parser = parser
        self._tracing = process_tracing()

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Does nothing: the same handlers come by name as well."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        stream = BrokerStream if service in PEER_SERVICES else ClientStream
        counted = {
            name: self._counted(handler, stream, f"/{service}/{name}")._replace(
                request_deserializer=None, response_serializer=None
            )
            for name, handler in handlers.items()
            if f"/{service}/{name}" not in STREAM_METHODS
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, counted),))
        self._server.add_registered_method_handlers(service, counted)

    def refuse_the_rest(self) -> None:
        """Have the gate refuse all other calls, with events in the audit log. Called after the last service."""
        self._server.add_generic_rpc_handlers((_ServedElsewhere(self._gate, self._flow),))

    def _counted(self, handler: Any, stream: type[ClientStream], path: str) -> Any:
        flow, gate, parse = self._flow, self._gate, self._parser(path)
        observer, tracing = self._observer.call(path.rpartition("/")[2]), self._tracing

        async def streaming(_: object, context: Any) -> None:
            async with _ends_call(context):
                arrival = arrival_of(context)
                caller = await admitted(gate, flow, path, arrival)
                checked = checked_parse(gate, path, caller, parse)
                traffic = flow.of(arrival.peer)
                counted = stream(_Call(context), traffic, flow, checked, _serialized, caller, observer)
                with gate.stream(caller):
                    await handler.stream_stream(counted.received(), counted)

        async def pieces(content: bytes, context: Any) -> None:
            async with _ends_call(context):
                arrival = arrival_of(context)
                traffic = flow.of(arrival.peer)
                traffic.took(len(content))
                observer.received(len(content))
                caller = await admitted(gate, flow, path, arrival, len(content))
                request = await checked_parse(gate, path, caller, parse)(content)
                counted = stream(_Call(context), traffic, flow, parse, _serialized, caller, observer)
                await handler.unary_stream(request, counted)

        async def unary(content: bytes, context: Any) -> bytes:
            arrival = arrival_of(context)
            traffic, clock = flow.of(arrival.peer), asyncio.get_running_loop().time
            came_s = clock()
            traffic.took(len(content))
            observer.received(len(content))
            async with _ends_call(context):
                caller = await admitted(gate, flow, path, arrival, len(content))
                with flow.requests.holding(len(content)):
                    request = await checked_parse(gate, path, caller, parse)(content)
                    cost = await _charged(flow, caller, request, len(content))
                    answer: Message = await handler.unary_unary(request, caller)
                if cost is not None:
                    caller.give_back(cost.key, cost.unused(answer))
            gate.redact(path, caller, answer)
            serialized = answer.SerializeToString()
            traffic.given_bytes += len(serialized)
            observer.sent(len(serialized))
            observer.took(clock() - came_s)
            return serialized

        if handler.stream_stream is not None:
            return handler._replace(stream_stream=streaming)
        if handler.unary_stream is not None:
            return handler._replace(unary_stream=pieces)
        if tracing is not None and path.startswith(_OWN_SERVICES):
            return handler._replace(unary_unary=_traced(tracing, path, unary))
        return handler._replace(unary_unary=unary)


class _ServedElsewhere(grpc.GenericRpcHandler):
    """Refuses calls that brokers answer on another listener. Invented names are not among them: gRPC refuses these
    without a line in any log, so they fill no log."""

    def __init__(self, gate: Gate, flow: Flow) -> None:
        self._gate = gate
        self._flow = flow

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        path = handler_call_details.method
        if path not in ROWS:
            return None

        async def refused(_: object, context: Any) -> None:
            async with _ends_call(context):
                await admitted(self._gate, self._flow, path, arrival_of(context))
            words = "is a stream: use the port of streams" if path in STREAM_METHODS else ""
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{path} {words or 'is not answered on this listener'}")

        return grpc.stream_stream_rpc_method_handler(refused)


def _traced(
    tracing: Tracing, path: str, unary: Callable[[bytes, Any], Awaitable[bytes]]
) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """The same call, in a span."""

    async def traced(content: bytes, context: Any) -> bytes:
        with tracing.serving(path, context.invocation_metadata()):
            return await unary(content, context)

    return traced


@contextlib.asynccontextmanager
async def _ends_call(context: Any) -> AsyncIterator[None]:
    """End the call with a status and words, for a refusal inside the block."""
    try:
        yield
    except MinilogError as error:
        await context.abort(status_of(error), details_of(error))


class _Call:
    """A call of gRPC as a Carrier."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def read(self) -> Buffer | None:
        content = await self._context.read()
        return None if content is grpc.aio.EOF else content

    async def write(self, content: Sequence[Buffer]) -> None:
        await self._context.write(b"".join(content))


async def _charged(flow: Flow, caller: Caller, request: Any, held_bytes: int) -> Cost | None:
    """Charge the cost of a call beside the call itself. Raises ResourceExhausted."""
    cost = caller.cost(request)
    if cost is not None and (cost.total or cost.has_more):
        await flow.throttle.pay(caller, cost.key, cost.total, held_bytes, MAX_DELAY_S)
    return cost


def _serialized(message: Message) -> Sequence[Buffer]:
    return (message.SerializeToString(),)
