"""The interface of the long-lived streams (produce, fetch, replicate): messages with payloads in order, each way.

Both sides have a PayloadStream: the client by `open_stream`, the broker by minilog_broker.server.ingress.traffic.
How messages and payloads travel is behind it: as frames (stream_messages.py), each one message of a gRPC stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc

from minilog.errors import CorruptMessage
from minilog.stream_messages import Framing, StreamMessage, StreamMethod
from minilog.tracing import StreamSpans, process_tracing


class PayloadStream(Protocol):
    """One end of a stream."""

    async def write(self, sent: StreamMessage[Any]) -> None:
        """Send after what was sent before. Returns when the network has taken it over: the other side reads."""

    def received(self) -> AsyncIterator[StreamMessage[Any]]:
        """What comes, in order, until the other side says that no more does. To be iterated once."""


async def messages(call: Any) -> AsyncIterator[Any]:
    """What comes on a call, or to the context of one that is served, until the other side closes the stream.

    gRPC's own iterators keep each message until the next one comes: an idle stream would hold a large one for good.
    """
    while (came := await call.read()) is not grpc.aio.EOF:
        yield came
        del came


class OpenedStream:
    """The end of whoever has opened it. `write` and `received` raise grpc.aio.AioRpcError where the stream was lost or
    refused, asyncio.InvalidStateError where it has ended; `received` raises CorruptMessage for what is no frame."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def write(self, sent: StreamMessage[Any]) -> None:
        await self._call.write(sent)

    async def received(self) -> AsyncIterator[StreamMessage[Any]]:
        async for came in messages(self._call):
            if isinstance(came, CorruptMessage):
                raise came
            yield came
            del came

    async def done_writing(self) -> None:
        """Nothing more comes from this side; the other one may go on."""
        await self._call.done_writing()

    async def status(self) -> grpc.StatusCode:
        """How the stream ended; waits until it has."""
        status: grpc.StatusCode = await self._call.code()
        return status

    def cancel(self) -> None:
        """End the stream both ways, whatever is under way."""
        self._call.cancel()


class _TracedStream(OpenedStream):
    """One whose messages are told to `spans`."""

    def __init__(self, call: Any, spans: StreamSpans) -> None:
        super().__init__(call)
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
    """What comes, told to `spans`. While a message is dealt with, nothing here holds it."""
    async for came in incoming:
        spans.came(came)
        held = [came]
        del came
        yield held.pop()
        spans.handled()


def open_stream(channel: grpc.aio.Channel, method: StreamMethod) -> OpenedStream:
    """A new stream on `channel`."""
    begin = channel.stream_stream(
        method.path, request_serializer=method.request.encode, response_deserializer=_decoder(method.response)
    )
    tracing = process_tracing()
    if tracing is None:
        return OpenedStream(begin())
    spans = tracing.opened(method)
    return _TracedStream(begin(metadata=spans.metadata), spans)


def _decoder(framing: Framing[Any]) -> Any:
    """What a deserializer raises, gRPC logs and gives None for: so the error is handed on in the place of a message."""

    def decoded(frame: bytes) -> StreamMessage[Any] | CorruptMessage:
        try:
            return framing.decode(frame)
        except CorruptMessage as error:
            return error

    return decoded
