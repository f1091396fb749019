"""The interface of the long-lived streams (produce, fetch, replicate, heartbeats). A stream carries messages with
payloads, in order, in both directions.

Both sides have a PayloadStream: the client by `open_stream`, the broker by minilog_broker.server.ingress. Each stream
has a connection of its own (stream_connection.py). So TCP's flow control is the flow control of the stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from minilog.errors import CorruptMessage, MinilogError, error_from_wire
from minilog.net.running_time import RunningTime, running_within
from minilog.net.stream_connection import ConnectionEnded, StreamConnection
from minilog.net.stream_frames import Frame, FrameKind
from minilog.stream_messages import Framing, StreamMessage, StreamMethod
from minilog.tracing import process_tracing
from minilog.tracing.interfaces import StreamSpans
from minilog.v1 import common_pb2, stream_pb2
from minilog.versions import PROTOCOL

STREAM_ERRORS = (MinilogError, OSError)
"""The errors of a stream: the other side is gone, has refused the stream, or has sent bytes that are no message
(CorruptMessage)."""
Connect = Callable[[], Awaitable[StreamConnection]]
"""Makes the connection. Raises OSError."""


class PayloadStream(Protocol):
    """One end of a stream."""

    async def write(self, sent: StreamMessage[Any]) -> None:
        """Send a message after the earlier ones. Returns when the network has taken it over.

        So the call waits while the other side does not read."""

    def received(self) -> AsyncIterator[StreamMessage[Any]]:
        """The messages from the other side, in order, until that side ends its half. The caller iterates once."""


class OpenedStream:
    """The end of the stream at the side that opened it.

    `write` and `received` raise ConnectionEnded if the connection is gone. `received` raises the MinilogError with
    which the broker ended the stream, and CorruptMessage for bytes that are no message."""

    def __init__(self, connection: StreamConnection, method: StreamMethod) -> None:
        self._connection = connection
        self._compose: Framing[Any] = method.request
        self._parse: Framing[Any] = method.response

    @property
    def heard_ms(self) -> float:
        """The time of the last received bytes, by the event loop's clock. Each part of a long message counts."""
        return self._connection.heard_s * 1000.0

    async def write(self, sent: StreamMessage[Any]) -> None:
        self._connection.send(FrameKind.MESSAGE, self._compose.parts(sent))
        del sent
        await self._connection.drained()

    async def received(self) -> AsyncIterator[StreamMessage[Any]]:
        while (frame := await self._connection.frame()).kind is FrameKind.MESSAGE:
            message = [self._parse.decode(frame.body)]
            del frame
            yield message.pop()  # so this generator does not keep the message in memory while the caller handles it
        check_end(frame)

    def done_writing(self) -> None:
        """End this side of the stream. The other side may still send."""
        self._connection.send(FrameKind.DONE)

    def cancel(self) -> None:
        """End the stream in both directions, and its connection, at once."""
        self._connection.abort()


def check_end(frame: Frame) -> None:
    """Checks the frame with which the broker ended the stream. Raises the MinilogError in it, if there is one."""
    if frame.kind is not FrameKind.END:
        raise CorruptMessage(f"a frame {frame.kind.name} came where a broker sends none")
    try:
        error = error_from_wire(common_pb2.Error.FromString(bytes(frame.body)))
    except DecodeError as failure:
        raise CorruptMessage(f"a stream ended with bytes that are no Error message: {failure}") from failure
    if error is not None:
        raise error


class _TracedStream(OpenedStream):
    """A stream that reports its messages to `spans`."""

    def __init__(self, connection: StreamConnection, method: StreamMethod, spans: StreamSpans) -> None:
        super().__init__(connection, method)
        self._spans = spans

    async def write(self, sent: StreamMessage[Any]) -> None:
        self._spans.sending(sent)
        await super().write(sent)
        self._spans.sent()

    async def received(self) -> AsyncIterator[StreamMessage[Any]]:
        try:
            async for came in watched(super().received(), self._spans):
                held = [came]
                del came
                yield held.pop()
        finally:
            self._spans.closed()


async def watched(incoming: AsyncIterator[StreamMessage[Any]], spans: StreamSpans) -> AsyncIterator[StreamMessage[Any]]:
    """Yield the incoming messages, and report them to `spans`. The generator does not keep a message in memory while
    the caller handles it."""
    async for came in incoming:
        spans.came(came)
        held = [came]
        del came
        yield held.pop()
        spans.handled()


async def open_stream(
    connect: Connect, method: StreamMethod, client_version: str, session: bytes = b""
) -> OpenedStream:
    """A new stream on a connection of its own, after the broker accepted it. Raises OSError without a connection, the
    MinilogError with which the broker refuses the stream, and CorruptMessage if the other side is no broker of this
    version."""
    tracing = process_tracing()
    spans = None if tracing is None else tracing.opened(method)
    connection = await connect()
    try:
        connection.send(FrameKind.HELLO, [_hello(method, client_version, session, spans).SerializeToString()])
        await _welcomed(connection)
    except BaseException:
        connection.abort()
        raise
    return OpenedStream(connection, method) if spans is None else _TracedStream(connection, method, spans)


def _hello(
    method: StreamMethod, client_version: str, session: bytes, spans: StreamSpans | None
) -> stream_pb2.StreamHello:
    trace = {} if spans is None else dict(spans.metadata)
    return stream_pb2.StreamHello(
        protocol=PROTOCOL.to_wire(), client_version=client_version, method=method.path, session=session, **trace
    )


async def _welcomed(connection: StreamConnection) -> None:
    """Return when the broker has accepted the stream."""
    try:
        frame = await connection.frame()
    except ConnectionEnded as error:
        raise ConnectionAbortedError(
            f"it was closed before the broker answered ({error}): is this the broker's port of streams, and is its "
            "security.protocol this client's?"
        ) from None
    if frame.kind is not FrameKind.WELCOME:
        check_end(frame)
        raise ConnectionAbortedError("the broker ended the stream before it took it")


async def opened_within(opening: Awaitable[OpenedStream], within_s: float) -> OpenedStream:
    """The opened stream. Raises TimeoutError, with the reason, if it is not open within `within_s`."""
    left: RunningTime | None = None
    try:
        async with running_within(within_s) as left:
            return await opening
    except TimeoutError:
        raise TimeoutError(f"no connection {left}") from None
