"""Traces by OpenTelemetry, with `pyspark-minilog[tracing]`. While tracing is off, minilog imports no OpenTelemetry.

    switched on by                                                                 spans go to
    the program: `trace_with(provider)`, or OpenTelemetry's global provider        that provider
    the environment: OTEL_TRACES_EXPORTER (otlp, console), or the address of a     minilog's own provider, one for the
    collector (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)    process, which OTEL_* configures

OTEL_SDK_DISABLED=true switches tracing off. minilog reads these variables when it opens a channel or a stream, and when
a broker begins to listen, but never for a message. docs/reference/metrics.md § Traces lists the spans.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minilog.tracing.interfaces import Tracing

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_log = logging.getLogger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


_told: list[Tracing] = []


def trace_with(provider: TracerProvider | None) -> None:
    """Send the spans of all clients that this process makes from now on to `provider`. With None, the global provider
    or the environment decides again.

    Raises ImportError if OpenTelemetry is not installed."""
    _told.clear()
    if provider is not None:
        from minilog.tracing.spans import OpenTelemetryTracing

        _told.append(OpenTelemetryTracing(provider))


def process_tracing() -> Tracing | None:
    """The tracing of this process, or None if it is off."""
    if is_disabled(os.environ):
        return None
    if _told:
        return _told[0]
    if "opentelemetry.trace" in sys.modules:  # else the program has set no provider
        from minilog.tracing.spans import global_provider

        if (provider := global_provider()) is not None:
            return _tracing_of(provider)
    return _of_environment() if is_asked_for(os.environ) else None


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Whether OTEL_SDK_DISABLED switches tracing off."""
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
    """The tracing by OTEL_*, made once for the process. None if it cannot be made.

    Then minilog warns once, and works without traces."""
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
