"""What the code of clients and brokers asks of tracing. It names no OpenTelemetry (spans.py has the spans)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import grpc

if TYPE_CHECKING:
    from minilog.stream_messages import StreamMessage, StreamMethod

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]


class StreamSpans(Protocol):
    """The spans of one stream, at one end of it. The caller reports each message in its order."""

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """The metadata with which this end opens the stream, so that the other end continues the trace."""

    def sending(self, message: StreamMessage[Any]) -> None:
        """This end is about to write the message."""

    def sent(self) -> None:
        """This end has written the message."""

    def came(self, message: StreamMessage[Any]) -> None:
        """This end has read the message."""

    def handled(self) -> None:
        """This end has handled the message, and asks for the next one."""

    def closed(self) -> None:
        """The stream is closed."""


class Tracing(Protocol):
    """Makes spans."""

    def opened(self, method: StreamMethod) -> StreamSpans:
        """The spans of a stream that this side opens."""

    def served(self, method: StreamMethod, metadata: Metadata | None) -> StreamSpans:
        """The spans of a stream that the other side opened, with this metadata."""

    def serving(self, path: str, metadata: Metadata | None) -> AbstractContextManager[None]:
        """The span of a unary call from the other side. If the call fails, the span has only the type of the error."""

    def interceptors(self) -> Sequence[grpc.aio.ClientInterceptor]:
        """Interceptors for a channel, which make the spans of its unary calls."""
