"""The spans, by OpenTelemetry's API. minilog imports this module only while tracing is on.

A stream lives for days, and a trace is short. So each produced batch, and each fetched or replicated message, has a
trace of its own. Both ends compute the same trace id, and do not send it: it is a digest of the stream's first metadata
(W3C traceparent) and of the number of the batch or message on the stream. Each span has a link to the span of the
stream. The sampler's decision for the stream counts for all of its spans. If the sampler decides by the trace ids
instead, both ends still decide alike, because the ids are the same.

                opens the stream                          serves it
    produce     send: written until answered              append: read until the answer is written
    fetch,      receive: read until it is dealt with      send: until it is written
    replicate
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import grpc
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from minilog.stream_messages import PRODUCE, StreamMessage, StreamMethod
from minilog.tracing.interfaces import Metadata, StreamSpans
from minilog.v1 import common_pb2

MOST_OPEN = 10_000  # open spans of one stream; further batches have no span
_W3C: Final = TraceContextTextMapPropagator()
_SCOPE = "minilog"
_NAMES = frozenset(("traceparent", "tracestate"))


class OpenTelemetryTracing:
    """Makes spans with tracers of `provider`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer(_SCOPE)

    def opened(self, method: StreamMethod) -> StreamSpans:
        span = self._tracer.start_span(_name(method.path, "open"), Context(), SpanKind.CLIENT, _rpc(method.path))
        span.end()
        spans = _OpenedProduce if method is PRODUCE else _OpenedRead
        return spans(self, method, span.get_span_context())

    def served(self, method: StreamMethod, metadata: Metadata | None) -> StreamSpans:
        span = self._tracer.start_span(
            _name(method.path, "serve"), _told_by(metadata), SpanKind.SERVER, _rpc(method.path)
        )
        span.end()
        parent = _span_context(_told_by(metadata))
        spans = _ServedProduce if method is PRODUCE else _ServedRead
        return spans(self, method, parent if parent.is_valid else span.get_span_context())

    @contextmanager
    def serving(self, path: str, metadata: Metadata | None) -> Iterator[None]:
        with self.call(path, SpanKind.SERVER, _told_by(metadata)):
            yield

    @contextmanager
    def call(self, path: str, kind: SpanKind, context: Context | None = None) -> Iterator[Context]:
        """Make the span of a call. Yields the context with this span."""
        span = self._tracer.start_span(_name(path, ""), context, kind, _rpc(path))
        try:
            yield set_span_in_context(span, context)
        except BaseException as error:
            _fail(span, error.code().name if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__)
            raise
        finally:
            span.end()

    def interceptors(self) -> Sequence[grpc.aio.ClientInterceptor]:
        return (_Unary(self),)

    def start(self, name: str, kind: SpanKind, number: int, of: SpanContext, attributes: dict[str, Any]) -> Span:
        """A span in the trace of the batch or message `number` of a stream."""
        return self._tracer.start_span(
            name, _context_of(of, number), kind, attributes, [Link(of)] if of.is_valid else []
        )


def global_provider() -> TracerProvider | None:
    """The provider that the program has set. None if it has set none."""
    provider = get_tracer_provider()
    return None if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider) else provider


class _Spans:
    """The parts that both ends and all kinds of streams share. `of` is the span of the stream."""

    def __init__(self, tracing: OpenTelemetryTracing, method: StreamMethod, of: SpanContext) -> None:
        self._tracing = tracing
        self._method = method
        self._of = of
        self.metadata: Sequence[tuple[str, str]] = tuple(_carrier(of).items())

    def sending(self, message: StreamMessage[Any]) -> None: ...

    def sent(self) -> None: ...

    def came(self, message: StreamMessage[Any]) -> None: ...

    def handled(self) -> None: ...

    def closed(self) -> None: ...


class _Produce(_Spans):
    """A span for each batch, by its correlation id."""

    word, kind = "send", SpanKind.PRODUCER

    def __init__(self, tracing: OpenTelemetryTracing, method: StreamMethod, of: SpanContext) -> None:
        super().__init__(tracing, method, of)
        self._open: dict[int, Span] = {}

    def begin(self, message: StreamMessage[Any]) -> None:
        """Begin the spans of the batches in this message."""
        for entry, payload in zip(message.message.entries, message.payloads, strict=True):
            if len(self._open) >= MOST_OPEN:
                return
            attributes = {**_partition(entry.partition_id), "messaging.message.body.size": len(payload)}
            number = entry.correlation_id
            name = _name(self._method.path, self.word)
            former = self._open.pop(number, None)
            if former is not None:
                former.end()
            self._open[number] = self._tracing.start(
                name, self.kind, number, self._of, {**attributes, "minilog.correlation_id": number}
            )

    def end(self, message: StreamMessage[Any]) -> None:
        """End the spans of the batches that this message answers."""
        for result in message.message.results:
            span = self._open.pop(result.correlation_id, None)
            if span is not None:
                if result.error.code:
                    _fail(span, common_pb2.ErrorCode.Name(result.error.code).removeprefix("ERROR_CODE_"))
                else:
                    span.set_attribute("minilog.base_offset", result.base_offset)
                span.end()

    def end_all(self, error: str | None) -> None:
        """End all open spans. With `error` they have failed. Without it no answer will come (acks=0)."""
        while self._open:
            _, span = self._open.popitem()
            if error is not None:
                _fail(span, error)
            span.end()

    def closed(self) -> None:
        self.end_all("the stream ended before the answer")


class _OpenedProduce(_Produce):
    _is_unanswered = False

    def sending(self, message: StreamMessage[Any]) -> None:
        self.begin(message)
        self._is_unanswered = message.message.acks == 0

    def sent(self) -> None:
        if self._is_unanswered:
            self.end_all(None)

    def came(self, message: StreamMessage[Any]) -> None:
        self.end(message)


class _ServedProduce(_Produce):
    word, kind = "append", SpanKind.SERVER
    _is_unanswered = False
    _answer: StreamMessage[Any] | None = None

    def came(self, message: StreamMessage[Any]) -> None:
        self.begin(message)
        self._is_unanswered = message.message.acks == 0

    def handled(self) -> None:
        if self._is_unanswered:
            self.end_all(None)

    def sending(self, message: StreamMessage[Any]) -> None:
        self._answer = message

    def sent(self) -> None:
        if self._answer is not None:
            self.end(self._answer)
            self._answer = None


class _Read(_Spans):
    """A span for each message that has batches, by its number on the stream."""

    word, kind = "receive", SpanKind.CONSUMER

    def __init__(self, tracing: OpenTelemetryTracing, method: StreamMethod, of: SpanContext) -> None:
        super().__init__(tracing, method, of)
        self._number = 0
        self._span: Span | None = None

    def begin(self, message: StreamMessage[Any]) -> None:
        """End the former span, and begin the span of this message if it has batches."""
        self.closed()
        if not message.payloads:
            return
        self._number += 1
        attributes: dict[str, Any] = {
            "minilog.runs": len(message.payloads),
            "messaging.message.body.size": sum(map(len, message.payloads)),
            "minilog.message": self._number,
        }
        if len(message.payloads) == 1:
            attributes |= _partition(message.message.runs[0].partition_id)
        name = _name(self._method.path, self.word)
        self._span = self._tracing.start(name, self.kind, self._number, self._of, attributes)

    def closed(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end()


class _OpenedRead(_Read):
    def came(self, message: StreamMessage[Any]) -> None:
        self.begin(message)

    def handled(self) -> None:
        self.closed()


class _ServedRead(_Read):
    word, kind = "send", SpanKind.SERVER

    def sending(self, message: StreamMessage[Any]) -> None:
        self.begin(message)

    def sent(self) -> None:
        self.closed()


class _Unary(grpc.aio.UnaryUnaryClientInterceptor):
    """A span for each unary call of a channel."""

    def __init__(self, tracing: OpenTelemetryTracing) -> None:
        self._tracing = tracing

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        method: str | bytes = details.method  # the annotation says str, but grpc passes bytes
        path = method if isinstance(method, str) else method.decode("ascii")
        with self._tracing.call(path, SpanKind.CLIENT) as context:
            metadata = grpc.aio.Metadata(*(details.metadata or ()), *_carrier(_span_context(context)).items())
            traced = grpc.aio.ClientCallDetails(
                details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
            )
            call = await continuation(traced, request)
            await call
        return call


def _context_of(of: SpanContext, number: int) -> Context:
    """The parent context for the spans of one batch or message. Both ends compute its ids. No end makes the parent span
    itself."""
    if not of.is_valid:
        return Context()
    seed = of.trace_id.to_bytes(16, "big") + of.span_id.to_bytes(8, "big") + number.to_bytes(8, "big")
    digest = hashlib.blake2b(seed, digest_size=24).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big")
    parent = SpanContext(trace_id or 1, span_id or 1, is_remote=True, trace_flags=of.trace_flags)
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _told_by(metadata: Metadata | None) -> Context:
    """The context of the other side's trace. Empty if the metadata has no valid traceparent."""
    carrier = {name: value for name, value in metadata or () if name in _NAMES and isinstance(value, str)}
    return _W3C.extract(carrier, Context())


def _span_context(context: Context) -> SpanContext:
    return get_current_span(context).get_span_context()


def _carrier(of: SpanContext) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(NonRecordingSpan(of), Context()))
    return carrier


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR, error))


def _name(path: str, word: str) -> str:
    """The name of a span: for a stream `Produce send`, for a call only the name of its method."""
    return f"{path.rpartition('/')[2]} {word}".strip()


def _rpc(path: str) -> dict[str, str]:
    service, _, method = path.removeprefix("/").rpartition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method, "messaging.system": "minilog"}


def _partition(message: common_pb2.PartitionId) -> dict[str, str]:
    return {
        "messaging.system": "minilog",
        "minilog.topic.id": message.topic_id.hex(),
        "messaging.destination.partition.id": str(message.partition),
    }
