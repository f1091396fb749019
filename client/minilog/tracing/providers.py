"""The provider for spans if only the environment (OTEL_*) asks for them. minilog imports this module only then."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

END_S = 2.0
_CLIENT, _BROKER = "minilog-client", "minilog-broker"


def provider_of(environment: Mapping[str, str]) -> TracerProvider:
    """A provider by OTEL_*. The SDK reads the settings of sampler, limits, batches and exporter.

    Raises ImportError if a part is not installed, ValueError for the name of an exporter or protocol that minilog does
    not support."""
    provider = TracerProvider(resource=_resource(environment), shutdown_on_exit=False)
    for name in _exporters(environment):
        provider.add_span_processor(BatchSpanProcessor(_exporter(name, environment)))
    return provider


def end_with_process(provider: TracerProvider) -> None:
    """Export the remaining spans when the process ends, for at most END_S.

    Without this the SDK would delay the end of the process for ten seconds if the collector is down. The thread for it
    starts now, because a process that ends cannot start a thread."""
    ending = threading.Event()

    def end() -> None:
        ending.wait()
        provider.shutdown()

    def begin() -> None:
        threads[:] = [threading.Thread(target=end, name="traces-end", daemon=True)]
        threads[0].start()

    def finish() -> None:
        ending.set()
        threads[0].join(END_S)

    threads: list[threading.Thread] = []
    begin()
    os.register_at_fork(after_in_child=begin)
    atexit.register(finish)


def _resource(environment: Mapping[str, str]) -> Resource:
    """The resource by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES. If they give no service name, it gets the name of
    minilog's broker or client."""
    named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    is_broker = "minilog_broker.server.broker" in sys.modules
    name = {} if named else {"service.name": _BROKER if is_broker else _CLIENT}
    return Resource.create({**name, "process.pid": os.getpid()})


def _exporters(environment: Mapping[str, str]) -> list[str]:
    """The names of the exporters. In OpenTelemetry commas separate several names."""
    names = environment.get("OTEL_TRACES_EXPORTER", "").split(",")
    return list(dict.fromkeys(filter(None, map(str.strip, names)))) or ["otlp"]


def _exporter(name: str, environment: Mapping[str, str]) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    if name != "otlp":
        raise ValueError(f"OTEL_TRACES_EXPORTER={name!a} is not supported: give otlp, console or none")
    both = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", both).strip() or "grpc"
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as ByGrpc

        return ByGrpc()
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as ByHttp

        return ByHttp()
    raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!a} is not supported: give grpc or http/protobuf")
