"""Traces of real brokers, as a collector gets them by OTLP, and of clients in this process: they are the same."""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from minilog import Admin, Consumer, NewTopic, Producer
from minilog.admin.security import UserUpsertion
from minilog.tracing import trace_with
from tests import programs
from tests.cluster import HOST, Cluster, free_ports
from tests.integration.moving import wait_until
from tests.pool import THREE, shared_cluster
from tests.secured import SecuredCluster

WITHIN_S = 30.0
TOPIC, PASSWORD = "flights", "hunter2-correct-horse"
RECORDS = 20

cluster = shared_cluster(THREE)


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes what brokers export."""

    def __init__(self, port: int) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[str, trace_pb2.Span]] = []
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        assert self._server.add_insecure_port(f"{HOST}:{port}") == port
        self._server.start()

    def Export(  # noqa: N802
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: object
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        with self._lock:
            for each in request.resource_spans:
                names = {a.key: a.value.string_value for a in each.resource.attributes}
                service = names["service.name"]
                self._spans += [(service, span) for scope in each.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self, name: str) -> list[trace_pb2.Span]:
        with self._lock:
            return [span for _, span in self._spans if span.name == name]

    def everything(self) -> str:
        with self._lock:
            return repr(self._spans)

    def services(self) -> set[str]:
        with self._lock:
            return {service for service, _ in self._spans}

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def collector() -> Iterator[tuple[Collector, dict[str, str]]]:
    """And the environment of who exports to it."""
    (port,) = free_ports(1)
    running = Collector(port)
    yield running, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{port}", "OTEL_BSP_SCHEDULE_DELAY": "200"}
    running.stop()


@pytest.fixture
def own() -> Iterator[InMemorySpanExporter]:
    """The spans of clients in this process."""
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace_with(provider)
    yield kept
    trace_with(None)


def named(kept: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [each for each in kept.get_finished_spans() if each.name == name]


def ids(spans: list[ReadableSpan]) -> set[bytes]:
    return {each.context.trace_id.to_bytes(16, "big") for each in spans if each.context is not None}


def taken(spans: list[ReadableSpan]) -> list[ReadableSpan]:
    """Of batches that were written; others were sent again, as to a leader that was none yet."""
    return [each for each in spans if "minilog.base_offset" in (each.attributes or {})]


def told_ids(spans: list[trace_pb2.Span]) -> set[bytes]:
    return {each.trace_id for each in spans}


def write_and_read(settings: dict[str, Any], replicas: int = 3) -> None:
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, replicas)])
    with Producer(settings) as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, b"%d" % number).result(timeout=WITHIN_S)
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([TOPIC])
        found = 0
        deadline = time.monotonic() + WITHIN_S
        while found < RECORDS and time.monotonic() < deadline:
            found += len(consumer.poll(0.5))
    assert found == RECORDS


def test_clients_and_brokers_tell_of_one_batch_and_message_in_one_trace(
    tmp_path: pathlib.Path, collector: tuple[Collector, dict[str, str]], own: InMemorySpanExporter
) -> None:
    told, environment = collector
    cluster = Cluster(tmp_path, 3)
    cluster.environments = dict.fromkeys(cluster.ports, environment)
    try:
        cluster.start()
        cluster.wait_running()
        write_and_read({"bootstrap.servers": cluster.bootstrap_servers})
        sent, received = named(own, "Produce send"), named(own, "Fetch receive")
        assert len(ids(sent)) == len(sent)
        assert len(taken(sent)) == RECORDS
        wait_until(lambda: ids(sent) <= told_ids(told.spans("Produce append")))
        wait_until(lambda: ids(received) <= told_ids(told.spans("Fetch send")))
        # Followers and leaders tell of the same messages; those of the metadata log, too.
        wait_until(
            lambda: len(told_ids(told.spans("Replicate send")) & told_ids(told.spans("Replicate receive"))) >= RECORDS
        )
        (created,) = named(own, "CreateTopics")
        wait_until(lambda: ids([created]) <= told_ids(told.spans("CreateTopics")))
        (served,) = [each for each in told.spans("CreateTopics") if each.trace_id in ids([created])]
        assert created.context is not None
        assert served.parent_span_id == created.context.span_id.to_bytes(8, "big")
        assert told.services() == {"minilog-broker"}
        # A batch and not a record is what has a span: followers got them in some messages.
        counts = collections.Counter(each.trace_id for each in told.spans("Produce append"))
        assert max(counts.values()) == 1
    finally:
        cluster.end()


def test_a_client_whose_environment_asks_for_it_tells_until_it_ends(
    cluster: Cluster, collector: tuple[Collector, dict[str, str]]
) -> None:
    told, environment = collector
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
    produce = [*programs.MINILOG, "produce", TOPIC, "-b", cluster.bootstrap_servers]
    asking = {**os.environ, **environment, "OTEL_BSP_SCHEDULE_DELAY": "60000"}  # what is left is told at the end
    ended = subprocess.run(produce, input="late\n", env=asking, text=True, capture_output=True, timeout=WITHIN_S)
    assert (ended.returncode, ended.stderr.count("opentelemetry")) == (0, 0), ended.stderr
    assert told.services() == {"minilog-client"}
    assert told.spans("Produce send")
    assert "late" not in told.everything()


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_brokers_with_tracing_off_tell_nothing(
    tmp_path: pathlib.Path, collector: tuple[Collector, dict[str, str]]
) -> None:
    told, asking = collector
    cluster = Cluster(tmp_path, 3)
    cluster.environments = {
        1: {**asking, "OTEL_SDK_DISABLED": "true"},
        2: {**asking, "OTEL_TRACES_EXPORTER": "none"},
        3: {**asking, "OTEL_TRACES_SAMPLER": "always_off"},
    }
    try:
        cluster.start()
        cluster.wait_running()
        write_and_read(cluster.client)
        time.sleep(1.0)  # five times as long as spans wait at most
        assert not told.services()
    finally:
        cluster.end()


@pytest.mark.long
@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_broker_whose_collector_is_down_serves_as_before(tmp_path: pathlib.Path, own: InMemorySpanExporter) -> None:
    (port,) = free_ports(1)
    cluster = Cluster(tmp_path, 1)
    cluster.environments = {1: {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{port}"}}
    try:
        cluster.start()
        cluster.wait_running()
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        with Producer(settings) as producer, Admin(settings) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
            for number in range(RECORDS):
                producer.send(TOPIC, b"%d" % number).result(timeout=WITHIN_S)
        wait_until(lambda: "Connection refused" in cluster.log_text(1))
        cluster.processes[1].send_signal(signal.SIGTERM)
        assert cluster.processes[1].wait(8.0) == 0
    finally:
        cluster.end()
    told = [json.loads(line) for line in cluster.log_text(1).splitlines()]  # of the SDK's words, too
    assert any(each.get("event") == "traces" and each["level"] == "warning" for each in told)
    assert len(taken(named(own, "Produce send"))) == RECORDS


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_no_span_has_a_password_or_a_session(
    tmp_path: pathlib.Path, collector: tuple[Collector, dict[str, str]], own: InMemorySpanExporter
) -> None:
    told, environment = collector
    cluster = SecuredCluster(tmp_path, 1)
    cluster.environments = {1: environment}
    try:
        cluster.start()
        cluster.wait_running()
        with Admin(cluster.client) as admin:
            admin.alter_users([UserUpsertion("alice", PASSWORD)])
        alice = {**cluster.client, "sasl.username": "alice", "sasl.password": PASSWORD}
        with Admin(alice) as admin:
            admin.list_topics()
        write_and_read(cluster.client, replicas=1)
        assert len(taken(named(own, "Produce send"))) == RECORDS
        wait_until(lambda: ids(named(own, "Fetch receive")) <= told_ids(told.spans("Fetch send")))
        wait_until(lambda: bool(told.spans("AlterUsers")))
        wait_until(lambda: bool(named(own, "GetMetadata")))
        everything = told.everything() + "".join(each.to_json() for each in own.get_finished_spans())
        assert PASSWORD not in everything
        assert str(cluster.client["sasl.password"]) not in everything
        assert "minilog-session" not in everything
    finally:
        cluster.end()
