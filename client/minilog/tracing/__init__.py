"""Traces by OpenTelemetry, for who has `pyspark-minilog[tracing]` and asks for them. Off, nothing of it is imported.

    asked for by                                                                   spans go to
    the program: `trace_with(provider)`, or OpenTelemetry's global provider        that provider
    the environment: OTEL_TRACES_EXPORTER (otlp, console), or the address of a     a provider of our own, one for the
    collector (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)    process, which OTEL_* says more of

OTEL_SDK_DISABLED=true ends all of it. It is looked at where a channel or a stream is opened and where a broker begins
to listen, never for a message. docs/reference/metrics.md § Traces says what spans there are.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import grpc

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from minilog.stream_messages import StreamMessage, StreamMethod

_log = logging.getLogger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
Metadata = Sequence[tuple[str, str | bytes]]


class StreamSpans(Protocol):
    """Spans of what goes over one stream, at one end of it. Each message is told in its order."""

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """What tells the other end of it, where this one opens the stream."""

    def sending(self, message: StreamMessage[Any]) -> None:
        """It is about to be written."""

    def sent(self) -> None:
        """It was."""

    def came(self, message: StreamMessage[Any]) -> None:
        """It was read."""

    def handled(self) -> None:
        """It was dealt with, and the next one is asked for."""

    def closed(self) -> None:
        """Nothing more is sent or comes."""


class Tracing(Protocol):
    """What makes spans."""

    def opened(self, method: StreamMethod) -> StreamSpans:
        """Of a stream that this side opens."""

    def served(self, method: StreamMethod, metadata: Metadata | None) -> StreamSpans:
        """Of a stream that another side has opened, with this metadata."""

    def serving(self, path: str, metadata: Metadata | None) -> AbstractContextManager[None]:
        """The span of a unary call that another side has made. An error that leaves it is told as its type alone."""

    def interceptors(self) -> Sequence[grpc.aio.ClientInterceptor]:
        """For a channel: they make the spans of its unary calls."""


_told: list[Tracing] = []


def trace_with(provider: TracerProvider | None) -> None:
    """Spans of all clients that this process makes from now on go to `provider`; None: as the module's text says.

    Raises ImportError where OpenTelemetry is not installed."""
    _told.clear()
    if provider is not None:
        from minilog.tracing.spans import OpenTelemetryTracing

        _told.append(OpenTelemetryTracing(provider))


def process_tracing() -> Tracing | None:
    """What makes spans in this process; None: nobody asked for it."""
    if is_disabled(os.environ):
        return None
    if _told:
        return _told[0]
    if "opentelemetry.trace" in sys.modules:  # else no program has set a provider
        from minilog.tracing.spans import global_provider

        if (provider := global_provider()) is not None:
            return _tracing_of(provider)
    return _of_environment() if is_asked_for(os.environ) else None


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether OTEL_SDK_DISABLED says so."""
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether OTEL_* name an exporter or a collector."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    return exporter != "none" and bool(exporter or any(environment.get(variable) for variable in _ENDPOINTS))


@functools.lru_cache(maxsize=8)
def _tracing_of(provider: TracerProvider) -> Tracing:
    from minilog.tracing.spans import OpenTelemetryTracing

    return OpenTelemetryTracing(provider)


@functools.cache
def _of_environment() -> Tracing | None:
    """Once for the process: what cannot be had is told once, and stops nobody."""
    try:
        from minilog.tracing.providers import end_with_process, provider_of
        from minilog.tracing.spans import OpenTelemetryTracing

        provider = provider_of(os.environ)
        end_with_process(provider)
        return OpenTelemetryTracing(provider)
    except ImportError as error:
        _log.warning(
            "OTEL_* asks for traces, and there are none (%s): pip install 'pyspark-minilog[tracing]', or unset them",
            error,
        )
    except ValueError as error:
        _log.warning("OTEL_* asks for traces, and there are none: %s", error)
    return None
