"""Traces: what both ends of a stream make of it, when they are on, and what they cost where they are off."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from types import FrameType
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanContext, StatusCode

from minilog import tracing
from minilog.net.payload_stream import OpenedStream, open_stream, watched
from minilog.net.stream_connection import StreamConnection
from minilog.net.stream_frames import FrameKind
from minilog.record_batch.header import Buffer
from minilog.stream_messages import FETCH, PRODUCE, REPLICATE, StreamMessage, StreamMethod
from minilog.tracing import is_asked_for, is_disabled, process_tracing, trace_with
from minilog.tracing.providers import provider_of
from minilog.tracing.spans import MOST_OPEN, OpenTelemetryTracing
from minilog.v1 import common_pb2, data_pb2
from minilog_broker.server.access.caller import Everybody
from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.client_stream import ClientStream
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.runtime.turns import Turns
from tests.unit.wires import connection, joined

PARTITION = common_pb2.PartitionId(topic_id=bytes(range(16)), partition=3)
REFUSED = common_pb2.Error(code=common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, message="hunter2 is not told")


class Process:
    """One that has OpenTelemetry's SDK, and keeps its spans."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracing = OpenTelemetryTracing(self.provider)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._kept.get_finished_spans() if each.name == name]

    def names(self) -> list[str]:
        return sorted(each.name for each in self._kept.get_finished_spans())


def trace_ids(spans: list[ReadableSpan]) -> list[int]:
    return [each.context.trace_id for each in spans if each.context is not None]


def place(context: SpanContext | None) -> tuple[int, int]:
    assert context is not None
    return context.trace_id, context.span_id


def produced(*numbers: int, acks: int = -1) -> StreamMessage[data_pb2.ProduceRequest]:
    entries = [data_pb2.ProduceEntry(correlation_id=each, partition_id=PARTITION) for each in numbers]
    return StreamMessage(data_pb2.ProduceRequest(acks=acks, entries=entries), [b"x" * 10] * len(numbers))


def answered(*numbers: int, error: common_pb2.Error | None = None) -> StreamMessage[data_pb2.ProduceResponse]:
    results = [data_pb2.ProduceResult(correlation_id=each, base_offset=each, error=error) for each in numbers]
    return StreamMessage(data_pb2.ProduceResponse(results=results))


def fetched(runs: int) -> StreamMessage[data_pb2.FetchResponse]:
    told = [data_pb2.PartitionRun(partition_id=PARTITION)] * runs
    return StreamMessage(data_pb2.FetchResponse(runs=told), [b"x" * 10] * runs)


class TestProduce:
    def test_a_batch_has_one_trace_at_both_ends_and_another_one_than_the_next(self) -> None:
        client, broker = Process(), Process()
        sender = client.tracing.opened(PRODUCE)
        leader = broker.tracing.served(PRODUCE, sender.metadata)
        request, answer = produced(7, 8), answered(8, 7)
        sender.sending(request)
        sender.sent()
        leader.came(request)
        leader.handled()
        assert not client.spans("Produce send")
        leader.sending(answer)
        assert not broker.spans("Produce append")
        leader.sent()
        sender.came(answer)
        sender.handled()
        sent, appended = client.spans("Produce send"), broker.spans("Produce append")
        assert trace_ids(sent) == trace_ids(appended)
        assert len(set(trace_ids(sent))) == 2
        (opened,) = client.spans("Produce open")
        for span in (*sent, *appended):
            assert [place(each.context) for each in span.links] == [place(opened.context)]
            assert span.status.status_code is StatusCode.UNSET
        assert dict(sent[0].attributes or {}) == {
            "messaging.system": "minilog",
            "minilog.topic.id": PARTITION.topic_id.hex(),
            "messaging.destination.partition.id": "3",
            "messaging.message.body.size": 10,
            "minilog.correlation_id": 8,
            "minilog.base_offset": 8,
        }
        (served,) = broker.spans("Produce serve")
        assert place(served.parent) == place(opened.context)

    def test_a_refusal_is_told_by_its_code_alone(self) -> None:
        client = Process()
        sender = client.tracing.opened(PRODUCE)
        sender.sending(produced(1))
        sender.came(answered(1, error=REFUSED))
        (span,) = client.spans("Produce send")
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "NOT_LEADER_OR_FOLLOWER")
        assert "hunter2" not in span.to_json()

    def test_the_span_of_an_unanswered_batch_ends_when_it_is_handed_on(self) -> None:
        client, broker = Process(), Process()
        sender = client.tracing.opened(PRODUCE)
        leader = broker.tracing.served(PRODUCE, sender.metadata)
        sender.sending(produced(1, acks=0))
        sender.sent()
        leader.came(produced(1, acks=0))
        leader.handled()
        assert trace_ids(client.spans("Produce send")) == trace_ids(broker.spans("Produce append"))
        assert len(client.spans("Produce send")) == 1

    def test_the_span_of_a_batch_at_the_end_of_its_stream_says_so(self) -> None:
        client = Process()
        sender = client.tracing.opened(PRODUCE)
        sender.sending(produced(1, 2))
        sender.closed()
        assert [each.status.description for each in client.spans("Produce send")] == [
            "the stream ended before the answer"
        ] * 2
        sender.came(answered(1))  # too late

    def test_signs_of_life_have_no_span(self) -> None:
        client, broker = Process(), Process()
        sender = client.tracing.opened(PRODUCE)
        leader = broker.tracing.served(PRODUCE, sender.metadata)
        sender.sending(produced())
        sender.sent()
        sender.came(answered())
        leader.came(produced())
        leader.sending(answered())
        leader.sent()
        assert (client.names(), broker.names()) == (["Produce open"], ["Produce serve"])

    def test_spans_that_wait_are_bounded(self) -> None:
        client = Process()
        sender = client.tracing.opened(PRODUCE)
        for number in range(MOST_OPEN + 50):
            sender.sending(produced(number))
        sender.closed()
        assert len(client.spans("Produce send")) == MOST_OPEN


class TestRead:
    @pytest.mark.parametrize("method", [FETCH, REPLICATE])
    def test_a_message_has_one_trace_at_both_ends(self, method: StreamMethod) -> None:
        word = method.path.rpartition("/")[2]
        reader, leader = Process(), Process()
        opened = reader.tracing.opened(method)
        served = leader.tracing.served(method, opened.metadata)
        for runs in (1, 0, 2):
            served.sending(fetched(runs))
            served.sent()
            opened.came(fetched(runs))
            opened.handled()
        sent, received = leader.spans(f"{word} send"), reader.spans(f"{word} receive")
        assert trace_ids(sent) == trace_ids(received)
        assert len(set(trace_ids(sent))) == 2
        assert [(each.attributes or {})["minilog.runs"] for each in sent] == [1, 2]

    def test_a_message_that_was_not_written_ends_with_its_stream(self) -> None:
        leader = Process()
        served = leader.tracing.served(FETCH, ())
        served.sending(fetched(1))
        assert not leader.spans("Fetch send")
        served.closed()
        served.closed()
        assert len(leader.spans("Fetch send")) == 1


class TestSampling:
    def both(self, opener: Process, server: Process, batches: int) -> tuple[list[int], list[int]]:
        sender = opener.tracing.opened(PRODUCE)
        leader = server.tracing.served(PRODUCE, sender.metadata)
        for number in range(batches):
            sender.sending(produced(number))
            leader.came(produced(number))
        sender.closed()
        leader.closed()
        return sorted(trace_ids(opener.spans("Produce send"))), sorted(trace_ids(server.spans("Produce append")))

    def test_the_sampling_of_a_stream_counts_for_its_batches(self) -> None:
        off = Process(ParentBased(ALWAYS_OFF))
        assert self.both(off, Process(), 5) == ([], [])
        ours, theirs = self.both(Process(), Process(ParentBased(ALWAYS_OFF)), 5)
        assert ours == theirs
        assert len(ours) == 5

    def test_a_ratio_of_traces_chooses_the_same_batches_at_both_ends(self) -> None:
        ours, theirs = self.both(Process(TraceIdRatioBased(0.5)), Process(TraceIdRatioBased(0.5)), 200)
        assert ours == theirs
        assert 50 < len(ours) < 150

    @pytest.mark.parametrize(
        "metadata",
        [
            None,
            (),
            (("traceparent", "garbage"),),
            (("traceparent", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"),),
            (("traceparent", "00-" + "g" * 32 + "-" + "1" * 16 + "-01"),),
            (("traceparent", b"\xff"), ("tracestate", "x" * 10_000)),
            (("Traceparent-bin", b"x"), ("authorization", "hunter2")),
        ],
    )
    def test_whoever_tells_no_trace_gets_one_of_ours(self, metadata: Any) -> None:
        broker = Process()
        leader = broker.tracing.served(PRODUCE, metadata)
        leader.came(produced(1))
        leader.closed()
        (served,) = broker.spans("Produce serve")
        (appended,) = broker.spans("Produce append")
        assert served.parent is None
        assert appended.links[0].context == served.context
        assert "hunter2" not in served.to_json() + appended.to_json()


class TestUnary:
    def test_an_error_is_told_by_its_type_alone(self) -> None:
        broker = Process()
        with pytest.raises(ValueError, match="hunter2"), broker.tracing.serving("/minilog.v1.S/Do", ()):
            raise ValueError("hunter2")
        (span,) = broker.spans("Do")
        assert (span.status.description, (span.attributes or {})["rpc.service"]) == ("ValueError", "minilog.v1.S")
        assert "hunter2" not in span.to_json()


ENVIRONMENT = {name: "" for name in os.environ if name.startswith("OTEL_")}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name)
    tracing._of_environment.cache_clear()
    yield monkeypatch
    trace_with(None)
    tracing._of_environment.cache_clear()


class TestWhenItIsOn:
    @pytest.mark.parametrize(
        ("said", "asked"),
        [
            ({}, False),
            ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
            ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, False),
            ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, True),
            ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, True),
            ({"OTEL_SERVICE_NAME": "job", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4317"}, False),
        ],
    )
    def test_the_environment_names_an_exporter_or_a_collector(self, said: dict[str, str], asked: bool) -> None:
        assert is_asked_for(said) is asked

    def test_a_program_gives_its_provider_and_the_environment_ends_it(self, environment: pytest.MonkeyPatch) -> None:
        assert process_tracing() is None
        trace_with(Process().provider)
        assert process_tracing() is not None
        environment.setenv("OTEL_SDK_DISABLED", "TRUE")
        assert process_tracing() is None
        assert not is_disabled({"OTEL_SDK_DISABLED": "false"})

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER='zipkin' is not supported"),
            ({"OTEL_TRACES_EXPORTER": "console, zipkin"}, "OTEL_TRACES_EXPORTER='zipkin' is not supported"),
            ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "'http/json' is not supported"),
        ],
    )
    def test_an_unknown_exporter_is_reported_and_stops_nobody(
        self, environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, said: dict[str, str], told: str
    ) -> None:
        with pytest.raises(ValueError, match=told):
            provider_of(said)
        for name, value in {"OTEL_TRACES_EXPORTER": "otlp", **said}.items():
            environment.setenv(name, value)
        assert process_tracing() is None
        assert process_tracing() is None
        assert [told in each.getMessage() for each in caplog.records] == [True]

    def test_where_it_is_not_installed_that_is_told_once(self) -> None:
        look = (
            "import sys, logging; logging.basicConfig()\n"
            "class Absent:\n"
            "    def find_spec(self, name, path, target=None):\n"
            "        if name.partition('.')[0] == 'opentelemetry':\n"
            "            raise ModuleNotFoundError('no opentelemetry', name=name)\n"
            "sys.meta_path.insert(0, Absent())\n"
            "from minilog.tracing import process_tracing\n"
            "print(process_tracing(), process_tracing())\n"
        )
        said = {**os.environ, "OTEL_TRACES_EXPORTER": "otlp"}
        ended = subprocess.run([sys.executable, "-c", look], env=said, capture_output=True, text=True, check=True)
        assert ended.stdout == "None None\n"
        assert ended.stderr.count("pip install 'pyspark-minilog[tracing]'") == 1

    def test_nothing_of_it_is_imported_where_nobody_asks(self) -> None:
        look = (
            "import sys, asyncio, minilog, minilog_broker.server.broker\n"
            "from minilog.net.runtime import SYSTEM_RUNTIME\n"
            "async def use(): SYSTEM_RUNTIME.open_channel(('127.0.0.1', 1))\n"
            "asyncio.run(use())\n"
            "print(sorted(each for each in sys.modules if 'opentelemetry' in each or 'minilog.tracing.' in each))\n"
        )
        said = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        ended = subprocess.run([sys.executable, "-c", look], env=said, capture_output=True, text=True, check=True)
        assert ended.stdout == "['minilog.tracing.interfaces']\n"


MESSAGES = 500


class Carried:
    """The carrier of a stream that is served, to which these come."""

    def __init__(self, coming: list[bytes]) -> None:
        self._coming = coming

    async def read(self) -> Buffer | None:
        return self._coming.pop() if self._coming else None

    async def write(self, content: Sequence[Buffer]) -> None: ...


async def welcoming(broker: StreamConnection) -> None:
    """Take a stream."""
    await broker.frame()
    broker.send(FrameKind.WELCOME)


async def opened(broker: StreamConnection | None = None) -> OpenedStream:
    """A stream to a broker that takes it."""
    broker = broker or connection()

    async def connect() -> StreamConnection:
        client = connection()
        joined(client, broker)
        return client

    stream, _ = await asyncio.gather(open_stream(connect, PRODUCE, "1"), welcoming(broker))
    return stream


async def use_client_end() -> None:
    broker = connection()
    stream = await opened(broker)
    for number in range(MESSAGES):
        await stream.write(produced(number))
        broker.send(FrameKind.MESSAGE, PRODUCE.response.parts(answered(number)))
    broker.send(FrameKind.END)
    async for _ in stream.received():
        pass


async def use_broker_end(process: Process | None) -> None:
    async def parse(content: Buffer) -> Any:
        return PRODUCE.request.decode(content)

    spans = None if process is None else process.tracing.served(PRODUCE, ())
    carried = Carried([b"".join(PRODUCE.request.parts(produced(number))) for number in range(MESSAGES)])
    flow, compose = Flow(Budget(1 << 30), Budget(1 << 30), Turns()), PRODUCE.response.parts
    stream = ClientStream(carried, flow.of("a"), flow, parse, compose, Everybody(), spans=spans)
    incoming: AsyncIterator[Any] = stream.received() if spans is None else watched(stream.received(), spans)
    async for _ in incoming:
        pass
    for number in range(MESSAGES):
        await stream.write(answered(number))


def calls_into_tracing(work: Any) -> int:
    """How many Python functions of minilog.tracing or OpenTelemetry are called, or go on, meanwhile."""
    counted = 0

    def look(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        name = frame.f_globals.get("__name__", "")
        counted += event == "call" and name.startswith(("minilog.tracing", "opentelemetry"))

    sys.setprofile(look)
    try:
        asyncio.run(work)
    finally:
        sys.setprofile(None)
    return counted


class TestCost:
    def test_off_it_costs_no_call_for_a_message_at_either_end(self) -> None:
        assert calls_into_tracing(use_broker_end(None)) == 0
        opening = calls_into_tracing(opened())
        assert calls_into_tracing(use_client_end()) == opening

    def test_that_count_finds_what_it_costs_where_it_is_on(self) -> None:
        assert calls_into_tracing(use_broker_end(Process())) > 10 * MESSAGES

    def test_off_a_stream_is_the_one_that_there_was_before(self, environment: pytest.MonkeyPatch) -> None:
        async def kinds() -> list[type]:
            found = []
            for process in (None, Process()):
                trace_with(None if process is None else process.provider)
                stream = await opened()
                found.append(type(stream))
                stream.cancel()
            return found

        off, on = asyncio.run(kinds())
        assert off is OpenedStream
        assert issubclass(on, OpenedStream)
        assert on is not OpenedStream
