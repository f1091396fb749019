"""What the calls of each connection took from it and gave to it, and what the broker's memory allows.

gRPC hands over whole messages. What it holds besides, parts of messages that came and messages that nobody takes, is
what the kernel counts on the socket less what is counted here (connections.py): so nothing it holds is out of sight.

    kernel ──received──► gRPC ──taken──► a call ──given──► gRPC ──acknowledged──► kernel
              half-received                         unsent
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message

from minilog.errors import AuthenticationFailed, AuthorizationFailed, MinilogError, ResourceExhausted, ResourceNotFound
from minilog.net.payload_stream import messages, watched
from minilog.security.quota_keys import (
    CONNECTIONS,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_RATE,
)
from minilog.stream_messages import FETCH, PRODUCE, STREAM_METHODS, StreamMessage
from minilog.tracing import StreamSpans, Tracing, process_tracing
from minilog_broker.security.principal import ANONYMOUS, Principal
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.costs import Cost
from minilog_broker.server.access.table import ROWS
from minilog_broker.server.ingress.budget import Budget
from minilog_broker.server.ingress.gate import Gate, details_of, status_of
from minilog_broker.server.ingress.throttle import MAX_DELAY_S, Throttle, has_quotas
from minilog_broker.server.runtime.observer import UNOBSERVED_CALL, CallObserver, Observer
from minilog_broker.server.runtime.turns import Turns

_COPIES = 2  # of a message while it is written: serialized, and gRPC's own
_OF_ONE_LINE = 8  # a part of the budget of requests may wait for one quota of one principal: others have the rest
MAX_STRANGERS_BYTES = 64 << 10  # of one message before it is known whose it is
LARGE_BYTES = 2 << 20  # to compose or parse so much holds the loop for some milliseconds: a message is up to 4 MiB
Parse: TypeAlias = Callable[[bytes, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[Any]]
"""What makes a request of its bytes (ingress/admission.py); what it refuses ends the call."""
_OWN_SERVICES = "/minilog."  # health is asked for each second, by whoever watches
PEER_SERVICES = frozenset({"minilog.v1.PeerService", "minilog.v1.MarkerService"})


@dataclass(slots=True)
class Traffic:
    """One connection, since it was opened. `broker_calls`: streams of another broker that are open on it."""

    taken_bytes: int = 0
    taken_messages: int = 0
    given_bytes: int = 0
    broker_calls: int = 0
    principal: Principal | None = None
    """Whose calls come on it, where clients are known."""
    receiving_since_s: float | None = None
    """Since when more than a little of a message has come, and not all of it."""

    def took(self, size_bytes: int) -> None:
        self.taken_bytes += size_bytes
        self.taken_messages += 1


class Flow:
    """All traffic of one port: by the other side's address as gRPC names it, the two budgets, which the ports of one
    kind share, turns for what is large, and where quotas are waited for. `together`: the flows of those ports; this one
    is added."""

    def __init__(self, requests: Budget, responses: Budget, turns: Turns, together: list[Flow] | None = None) -> None:
        self.requests = requests
        self.responses = responses
        self.turns = turns
        self.by_peer: dict[str, Traffic] = {}
        self._together = [] if together is None else together
        first = self._together[0] if self._together else None
        self.throttle: Throttle = Throttle(requests.limit_bytes // _OF_ONE_LINE) if first is None else first.throttle
        self._together.append(self)

    @property
    def connections(self) -> int:
        """Of all ports that share the budgets."""
        return sum(len(each.by_peer) for each in self._together)

    def of(self, peer: str) -> Traffic:
        traffic = self.by_peer.get(peer)
        if traffic is None:
            traffic = self.by_peer[peer] = Traffic()
        return traffic

    def belongs_to(self, peer: str, caller: Caller) -> None:
        """A call of this caller has come on it. Raises ResourceExhausted where he has too many connections: those that
        were closed a moment ago count, until the kernel is looked at again."""
        traffic = self.of(peer)
        if traffic.principal == caller.principal:
            return
        most = caller.most(CONNECTIONS)
        if most is not None and self._connections_of(caller.principal) >= most:
            raise ResourceExhausted(f"{caller.principal} has {most} connections to this broker, its quota: close some")
        traffic.principal = caller.principal

    def _connections_of(self, principal: Principal) -> int:
        """On whichever port."""
        every = (traffic for each in self._together for traffic in each.by_peer.values())
        return sum(traffic.principal == principal for traffic in every)

    def keep_only(self, peers: Iterable[str]) -> None:
        """All other connections are gone."""
        for peer in self.by_peer.keys() - set(peers):
            del self.by_peer[peer]


class ClientStream:
    """A bidirectional call of a client: its messages are read and composed as the budgets allow. Where the call is one
    of the long-lived streams, a minilog.net.payload_stream.PayloadStream; else it takes and gives messages alone.

    Messages are parsed and serialized here, not by gRPC: their sizes cost nothing then (protobuf finds a size out by
    serializing), and what is not needed any more is let go.
    """

    def __init__(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        traffic: Traffic,
        flow: Flow,
        parse: Parse,
        compose: Callable[[Any], bytes],
        caller: Caller,
        observer: CallObserver = UNOBSERVED_CALL,
        spans: StreamSpans | None = None,
    ) -> None:
        self.caller = caller
        self._spans = spans
        self._context = context
        self._observer = observer
        self._traffic = traffic
        self._flow = flow
        self._parse = parse
        self._compose = compose
        self._composed_bytes: int | None = None  # of the message before: the next one is most likely as large

    async def received(self) -> AsyncIterator[Any]:
        """The messages; each counts until it was dealt with, and none is asked for while the budget is spent."""
        budget = self._flow.requests
        await self._room_to_read()
        async for content in messages(self._context):
            size_bytes = len(content)
            self._traffic.took(size_bytes)
            self._observer.received(size_bytes)
            with budget.holding(size_bytes):
                await self._charge(size_bytes)
                message = [await self._parse(content, self._context)]
                del content
                yield message.pop()  # handed on: while it is dealt with, nothing here holds it
            await self._room_to_read()

    async def _room_to_read(self) -> None:
        """Nothing is read while something is owed: gRPC's flow control makes the client wait, and nothing is held."""
        for key in self._quotas():
            await self._flow.throttle.pay(self.caller, key, 0)
        await self._flow.requests.room()

    async def _charge(self, size_bytes: int) -> None:
        """A message is here: others of the same principal may have come before it. Raises ResourceExhausted."""
        for key in self._quotas():
            amount = size_bytes if key == PRODUCER_BYTE_RATE else 1
            await self._flow.throttle.pay(self.caller, key, amount, size_bytes)

    def _quotas(self) -> tuple[str, ...]:
        """Those that a message which comes is counted against."""
        return (REQUEST_RATE, PRODUCER_BYTE_RATE) if self.caller.path == PRODUCE.path else (REQUEST_RATE,)

    @property
    def turns(self) -> Turns:
        """Those of the port, for what is costly."""
        return self._flow.turns

    async def room(self, *, is_costly: bool = False) -> None:
        """Return when another message may be composed: nothing is owed of what was read, and there is room for it. What
        is composed then is charged before anybody else is asked (`write`)."""
        while True:
            await self._room_to_compose(is_costly=is_costly)
            if self.caller.path != FETCH.path or not has_quotas(self.caller):
                return
            if self.caller.owed_s(CONSUMER_BYTE_RATE) <= 0:
                return
            await self._flow.throttle.pay(self.caller, CONSUMER_BYTE_RATE, 0)

    async def _room_to_compose(self, *, is_costly: bool) -> None:
        """A large one, and one that is costly for another reason, takes its turn, however many streams are ready, and
        those that had their turns before it may have left no room."""
        responses = self._flow.responses
        await responses.room()
        if is_costly or self._composed_bytes is None or self._composed_bytes > LARGE_BYTES:
            await self._flow.turns.take()
            while responses.is_spent:
                await responses.room()
                await self._flow.turns.take()

    async def write(self, message: Any) -> None:
        """Returns when gRPC has handed it on: the other side reads."""
        if self._spans is not None:
            self._spans.sending(message)
        content = self._compose(message)
        del message
        self._traffic.given_bytes += len(content)
        self._observer.sent(len(content))
        self._composed_bytes = len(content)
        size_bytes = len(content)
        if self.caller.path == FETCH.path and has_quotas(self.caller):
            self.caller.charge(CONSUMER_BYTE_RATE, size_bytes)
        with self._flow.responses.holding(_COPIES * size_bytes):
            await self._context.write(content)
        if self._spans is not None:
            self._spans.sent()


class BrokerStream(ClientStream):
    """The same for another broker: it waits for nobody."""

    async def received(self) -> AsyncIterator[Any]:
        self._traffic.broker_calls += 1
        try:
            async for content in messages(self._context):
                self._traffic.took(len(content))
                self._observer.received(len(content))
                yield await self._parse(content, self._context)
        finally:
            self._traffic.broker_calls -= 1


class CountedServer:
    """Takes services as a grpc.aio.Server does, and has all their messages counted.

    `parser` gives what makes requests of bytes, by the path of the call."""

    def __init__(
        self,
        server: grpc.aio.Server,
        flow: Flow,
        parser: Callable[[str], Parse],
        gate: Gate,
        observer: Observer,
    ) -> None:
        self._gate = gate
        self._server = server
        self._observer = observer
        self._flow = flow
        self._parser = parser
        self._tracing = process_tracing()

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same handlers come by name as well: those are taken."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        stream = BrokerStream if service in PEER_SERVICES else ClientStream
        counted = {
            name: self._counted(handler, stream, f"/{service}/{name}")._replace(
                request_deserializer=None, response_serializer=None
            )
            for name, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, counted),))
        self._server.add_registered_method_handlers(service, counted)

    def refuse_the_rest(self) -> None:
        """After the last service: calls of others are refused by the gate, which tells the audit log of them."""
        self._server.add_generic_rpc_handlers((_ServedElsewhere(self._gate, self._flow),))

    def _counted(self, handler: Any, stream: type[ClientStream], path: str) -> Any:
        flow, gate, parse, method = self._flow, self._gate, self._parser(path), STREAM_METHODS.get(path)
        compose = _serialized if method is None else method.response.encode
        observer, tracing = self._observer.call(path.rpartition("/")[2]), self._tracing

        async def streaming(_: object, context: Any) -> None:
            caller = await _admitted(gate, flow, path, context)
            checked = _checked(gate, path, caller, parse)
            spans = None if tracing is None or method is None else tracing.served(method, context.invocation_metadata())
            counted = stream(context, flow.of(context.peer()), flow, checked, compose, caller, observer, spans)
            incoming = counted.received() if spans is None else watched(counted.received(), spans)
            try:
                with gate.stream(caller):
                    await handler.stream_stream(incoming, counted)
            except (AuthenticationFailed, AuthorizationFailed, ResourceExhausted) as error:
                await context.abort(status_of(error), details_of(error))
            finally:
                if spans is not None:
                    spans.closed()

        async def pieces(content: bytes, context: Any) -> None:
            traffic = flow.of(context.peer())
            traffic.took(len(content))
            observer.received(len(content))
            caller = await _admitted(gate, flow, path, context, len(content))
            request = await _checked(gate, path, caller, parse)(content, context)
            counted = stream(context, traffic, flow, parse, compose, caller, observer)
            await handler.unary_stream(request, counted)

        async def unary(content: bytes, context: Any) -> bytes:
            traffic, clock = flow.of(context.peer()), asyncio.get_running_loop().time
            came_s = clock()
            traffic.took(len(content))
            observer.received(len(content))
            caller = await _admitted(gate, flow, path, context, len(content))
            with flow.requests.holding(len(content)):
                request = await _checked(gate, path, caller, parse)(content, context)
                cost = await _charged(flow, caller, request, context, len(content))
                answer = await _answered(handler, request, caller, context)
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
    """Calls that brokers answer on another listener. Of a name that no call has gRPC says so, and nobody is told: who
    makes names up fills no log."""

    def __init__(self, gate: Gate, flow: Flow) -> None:
        self._gate = gate
        self._flow = flow

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        path = handler_call_details.method
        if path not in ROWS:
            return None

        async def refused(_: object, context: Any) -> None:
            await _admitted(self._gate, self._flow, path, context)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{path} is not answered on this listener")

        return grpc.stream_stream_rpc_method_handler(refused)


def _traced(
    tracing: Tracing, path: str, unary: Callable[[bytes, Any], Awaitable[bytes]]
) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """The same call, in a span."""

    async def traced(content: bytes, context: Any) -> bytes:
        with tracing.serving(path, context.invocation_metadata()):
            return await unary(content, context)

    return traced


async def _answered(handler: Any, request: Any, caller: Caller, context: Any) -> Message:
    """What the service answers; where the protocol has a status for what is not there, that ends the call."""
    try:
        answer: Message = await handler.unary_unary(request, caller)
    except ResourceNotFound as error:
        await context.abort(status_of(error), details_of(error))
        raise AssertionError("abort raises") from error
    return answer


async def _charged(flow: Flow, caller: Caller, request: Any, context: Any, held_bytes: int) -> Cost | None:
    """What a call is charged besides itself. A refusal ends the call."""
    cost = caller.cost(request)
    if cost is not None and cost.total:
        try:
            await flow.throttle.pay(caller, cost.key, cost.total, held_bytes, MAX_DELAY_S)
        except ResourceExhausted as error:
            await context.abort(status_of(error), details_of(error))
    return cost


async def _admitted(gate: Gate, flow: Flow, path: str, context: Any, held_bytes: int = 0) -> Caller:
    """Who calls; the call is charged, whatever becomes of it. A refusal ends the call."""
    try:
        caller = gate.admit(path, context)
        await flow.throttle.pay(caller, REQUEST_RATE, 1, held_bytes, MAX_DELAY_S)
        if has_quotas(caller):
            flow.belongs_to(context.peer(), caller)
        return caller
    except MinilogError as error:
        await context.abort(status_of(error), details_of(error))
        raise AssertionError("abort raises") from error


def _checked(gate: Gate, path: str, caller: Caller, parse: Parse) -> Parse:
    """`parse`, and then what is asked for is looked at. A refusal ends the call."""
    if caller.is_everybody:
        return parse
    is_first = True

    async def checked(content: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        nonlocal is_first
        if caller.principal == ANONYMOUS and len(content) > MAX_STRANGERS_BYTES:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"a message of {len(content)} bytes came of a stranger"
            )
        request = await parse(content, context)
        try:
            asked = request.message if isinstance(request, StreamMessage) else request
            gate.check(path, caller, asked, is_first=is_first)
        except MinilogError as error:
            await context.abort(status_of(error), details_of(error))
        is_first = False
        return request

    return checked


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
