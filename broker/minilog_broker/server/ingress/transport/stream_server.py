"""A port of streams: each connection carries one stream, which begins with a hello (minilog.net.stream_frames).

    event                                 the broker
    no hello in HELLO_S                   ends the connection, with a sentence
    an invalid or too long hello          the same: before the answer to the hello a frame has at most 64 KiB
    a hello that the gate refuses         the same, and the audit log gets it
    a hello                               answers it, and hands the stream to its service
    the stream's end, by either side      sends the reason, and waits LINGER_S for the other side to read it

A connection knows the bytes that it holds. So its guard (connection_guard.py) needs no look at the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from minilog.errors import (
    AuthorizationFailed,
    BrokerNotAvailable,
    CorruptMessage,
    InvalidArgument,
    MinilogError,
    UnknownServerError,
    wire_error,
)
from minilog.net.payload_stream import watched
from minilog.net.stream_connection import ConnectionEnded, StreamConnection
from minilog.net.stream_frames import STRANGERS_BYTES, FrameKind, SharedMemory
from minilog.record_batch.header import Buffer
from minilog.stream_messages import STREAM_METHODS
from minilog.tracing import process_tracing
from minilog.v1 import common_pb2, stream_pb2
from minilog.versions import PROTOCOL, check_protocol, range_from_wire
from minilog_broker.security.audit import Audit, refused_call
from minilog_broker.security.principal import ANONYMOUS
from minilog_broker.server.clients.channels import MAX_FRAME_BYTES
from minilog_broker.server.ingress.rules.admitting import admitted, checked_parse
from minilog_broker.server.ingress.rules.arrival import Arrival, arrival_on
from minilog_broker.server.ingress.rules.client_stream import PEER_SERVICES, BrokerStream, ClientStream, Parse
from minilog_broker.server.ingress.rules.gate import Gate
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.runtime.observer import BrokerObserver
from minilog_broker.version import CLIENT_VERSION

logger = structlog.get_logger()

HELLO_S = 5.0  # the limit of a TLS handshake, and then of the hello
LINGER_S = 1.0
WINDOW_BYTES = 256 << 10  # whole messages that are not taken yet; the kernel holds further bytes
Handler = Callable[[AsyncIterator[Any], ClientStream], Awaitable[None]]
"""A streaming method of a generated servicer."""


class StreamServer:
    """The streams of one port. `connection` makes the protocol object for a listening socket. Above `most_connections`
    the server closes a new connection at once. The guard makes better choices, but looks only at times."""

    def __init__(
        self,
        flow: Flow,
        parser: Callable[[str], Parse],
        gate: Gate,
        observer: BrokerObserver,
        audit: Audit,
        *,
        most_connections: int,
    ) -> None:
        self._most_connections = most_connections
        self._flow = flow
        self._parser = parser
        self._gate = gate
        self._observer = observer
        self._audit = audit
        self._tracing = process_tracing()
        self._shared = SharedMemory()
        self._methods: dict[str, _Method] = {}
        self._tasks: dict[StreamConnection, asyncio.Task[None]] = {}
        self._peers: dict[StreamConnection, str] = {}

    def add(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Take the methods of a service that have connections of their own, by the names of its generated
        `add_..._to_server`."""
        kind = BrokerStream if service in PEER_SERVICES else ClientStream
        for name, handler in handlers.items():
            path = f"/{service}/{name}"
            if path in STREAM_METHODS:
                self._methods[path] = _Method(path, handler.stream_stream, kind, self._parser(path))

    def connection(self) -> StreamConnection:
        """A new connection."""
        return StreamConnection(
            self._shared,
            most_frame_bytes=STRANGERS_BYTES,
            window_bytes=WINDOW_BYTES,
            made=self._made,
            ended=self._ended,
        )

    @property
    def connections(self) -> Mapping[StreamConnection, str]:
        """The open connections, with their names in traffic.py."""
        return self._peers

    async def stop(self, grace_s: float) -> None:
        """End all streams that have not ended by themselves after `grace_s`."""
        tasks = list(self._tasks.values())
        if tasks and grace_s:
            await asyncio.wait(tasks, timeout=grace_s)
        for connection, task in list(self._tasks.items()):
            if connection.is_open:
                with contextlib.suppress(ConnectionEnded):
                    _end(connection, BrokerNotAvailable("the broker stops"))
                connection.close()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._peers):
            connection.abort()

    def _made(self, connection: StreamConnection) -> None:
        if len(self._peers) >= self._most_connections:
            connection.abort()
            return
        try:
            arrival = arrival_on(connection)
        except ConnectionEnded:
            connection.abort()
            return
        self._peers[connection] = arrival.peer
        self._flow.of(arrival.peer)
        task = asyncio.get_running_loop().create_task(self._serve(connection, arrival))
        self._tasks[connection] = task
        task.add_done_callback(lambda task: self._tasks.pop(connection, None))

    def _ended(self, connection: StreamConnection) -> None:
        if (peer := self._peers.pop(connection, None)) is not None:
            self._flow.gone(peer)
        if (task := self._tasks.get(connection)) is not None:
            task.cancel()

    async def _serve(self, connection: StreamConnection, arrival: Arrival) -> None:
        """Serve a connection from its first byte to its last."""
        error: MinilogError | None = None
        try:
            hello = await self._hello(connection, arrival)
            await self._converse(
                connection, hello, Arrival(arrival.peer, arrival.host, arrival.common_name, hello.session)
            )
        except MinilogError as refusal:
            error = refusal
        except ConnectionEnded:
            connection.abort()  # also where a service has lost another connection
            return
        except Exception as fault:
            logger.error("a fault in the broker's own code ended a stream", peer=arrival.peer, exc_info=fault)
            error = UnknownServerError(f"the broker met {type(fault).__name__}: see its log")
        with contextlib.suppress(ConnectionEnded):
            _end(connection, error)
            connection.read_no_more()
            # A close with unread bytes would take back what was sent. Cancelled when the other side closes.
            await asyncio.sleep(LINGER_S)
        connection.close()

    async def _hello(self, connection: StreamConnection, arrival: Arrival) -> stream_pb2.StreamHello:
        """The hello of the other side. Raises MinilogError, with an event of the audit log, where there is no valid
        one."""
        try:
            async with asyncio.timeout(HELLO_S):
                frame = await connection.frame()
            if frame.kind is not FrameKind.HELLO:
                raise CorruptMessage(
                    f"a connection began with a frame {frame.kind.name}: the first frame has to be HELLO"
                )
            return stream_pb2.StreamHello.FromString(bytes(frame.body))
        except TimeoutError:
            refusal: MinilogError = InvalidArgument(f"the other side sent no hello in {HELLO_S:.0f} s")
        except DecodeError:
            refusal = CorruptMessage("the hello of a connection is not valid")
        except CorruptMessage as error:
            refusal = error
        self._audit(refused_call("", arrival.host, str(ANONYMOUS), str(refusal)))
        raise refusal

    async def _converse(self, connection: StreamConnection, hello: stream_pb2.StreamHello, arrival: Arrival) -> None:
        """The stream, from the answer to its hello on."""
        path, gate, flow = hello.method, self._gate, self._flow
        other = f"the other side (version {hello.client_version[:100] or 'unknown'})"
        own = f"the broker (version {CLIENT_VERSION})"
        check_protocol(PROTOCOL, own, range_from_wire(hello.protocol), other)
        if path not in STREAM_METHODS:
            raise InvalidArgument(f"{path[:100]!r} is not a stream: use the port of calls")
        caller = await admitted(gate, flow, path, arrival)
        method = self._methods.get(path)
        if method is None:
            raise AuthorizationFailed(f"{path} is not served on this listener")
        observer = self._observer.call(path.rpartition("/")[2])
        context = (("traceparent", hello.traceparent), ("tracestate", hello.tracestate))
        spans = None if self._tracing is None else self._tracing.served(STREAM_METHODS[path], context)
        connection.take_frames_up_to(MAX_FRAME_BYTES)
        welcome = stream_pb2.StreamWelcome(protocol=PROTOCOL.to_wire(), broker_version=CLIENT_VERSION)
        connection.send(FrameKind.WELCOME, [welcome.SerializeToString()])
        stream = method.kind(
            _Connection(connection),
            flow.of(arrival.peer),
            flow,
            checked_parse(gate, path, caller, method.parse),
            STREAM_METHODS[path].response.parts,
            caller,
            observer,
            spans,
        )
        incoming = stream.received() if spans is None else watched(stream.received(), spans)
        try:
            with gate.stream(caller):
                await method.handler(incoming, stream)
        finally:
            if spans is not None:
                spans.closed()


@dataclass(frozen=True, slots=True)
class _Method:
    path: str
    handler: Handler
    kind: type[ClientStream]
    parse: Parse


class _Connection:
    """A connection as a Carrier."""

    def __init__(self, connection: StreamConnection) -> None:
        self._connection = connection

    async def read(self) -> Buffer | None:
        frame = await self._connection.frame()
        if frame.kind is FrameKind.MESSAGE:
            return frame.body
        if frame.kind is FrameKind.DONE:
            return None
        raise CorruptMessage(f"the other side sent a frame {frame.kind.name} in the middle of a stream")

    async def write(self, content: Sequence[Buffer]) -> None:
        self._connection.send(FrameKind.MESSAGE, content)
        await self._connection.drained()


def _end(connection: StreamConnection, error: MinilogError | None) -> None:
    """Send the reason of the stream's end."""
    message = common_pb2.Error() if error is None else wire_error(error)
    connection.send(FrameKind.END, [message.SerializeToString()])
