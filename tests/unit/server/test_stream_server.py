"""A port of streams: what comes before the hello is answered, who is taken, and how a stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from minilog.errors import MinilogError, NotLeaderOrFollower, error_from_wire
from minilog.net.stream_connection import ConnectionEnded, StreamConnection
from minilog.net.stream_frames import FRAME_BYTES, FrameKind
from minilog.stream_messages import FETCH, HEARTBEAT, PRODUCE, StreamMessage
from minilog.v1 import common_pb2, data_pb2, stream_pb2
from minilog.versions import PROTOCOL
from minilog_broker.security.access import Operation
from minilog_broker.server.ingress.rules.admission import Admission
from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.client_stream import ClientStream
from minilog_broker.server.ingress.rules.gate import Gate, OpenGate
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.stream_connections import StreamConnections
from minilog_broker.server.ingress.transport.stream_server import HELLO_S, LINGER_S, StreamServer
from minilog_broker.server.runtime.observer import UNOBSERVED
from minilog_broker.server.runtime.turns import Turns
from tests.unit.server.test_gate import World, allows
from tests.unit.wires import Wire, connection, joined
from tests.world.loop import play

DATA = "minilog.v1.DataService"
Handle = Callable[[AsyncIterator[Any], ClientStream], Coroutine[Any, Any, None]]


class Handler:
    """As a generated `add_..._to_server` gives it."""

    def __init__(self, stream_stream: Handle) -> None:
        self.stream_stream = stream_stream


async def echoes(incoming: AsyncIterator[Any], stream: ClientStream) -> None:
    """Answers each message with an empty one."""
    async for _ in incoming:
        await stream.write(StreamMessage(data_pb2.ProduceResponse()))


async def not_the_leader(incoming: AsyncIterator[Any], stream: ClientStream) -> None:
    raise NotLeaderOrFollower("ask another one")


async def a_fault(incoming: AsyncIterator[Any], stream: ClientStream) -> None:
    raise ZeroDivisionError("of our own")


class Port:
    """A port of streams that serves Produce by one handler."""

    def __init__(self, handler: Handle = echoes, gate: Gate | None = None, most_connections: int = 100) -> None:
        self.world = World(allows(Operation.WRITE))
        self.flow = Flow(Budget(1 << 20), Budget(1 << 20), Turns())
        parser = Admission(Turns()).parser
        audit = self.world.told.append
        self.server = StreamServer(
            self.flow, parser, gate or OpenGate(), UNOBSERVED, audit, most_connections=most_connections
        )
        self.server.add(DATA, {"Produce": Handler(handler), "DeleteRecords": Handler(handler)})
        self.connections = StreamConnections(self.server, self.flow)

    def connect(self) -> tuple[StreamConnection, Wire]:
        client = connection()
        _, wire = joined(client, self.server.connection())
        return client, wire


def hello(method: str = PRODUCE.path, version: int = PROTOCOL.highest, session: bytes = b"") -> list[bytes]:
    spoken = common_pb2.VersionRange(lowest=version, highest=version)
    told = stream_pb2.StreamHello(protocol=spoken, client_version="9", method=method, session=session)
    return [told.SerializeToString()]


async def end_of(client: StreamConnection) -> MinilogError | None:
    """What the broker says last."""
    while (frame := await client.frame()).kind is not FrameKind.END:
        pass
    return error_from_wire(common_pb2.Error.FromString(bytes(frame.body)))


def refused(kind: FrameKind, body: list[bytes], gate: Gate | None = None) -> tuple[str, list[str]]:
    """How a connection that begins so is ended, and what the audit log gets."""

    async def scenario() -> tuple[str, list[str]]:
        port = Port(gate=gate)
        client, wire = port.connect()
        client.send(kind, body)
        error = await end_of(client)
        client.close()
        await asyncio.sleep(0.1)
        assert wire.is_closed
        assert not port.flow.by_peer
        return f"{type(error).__name__}: {error}", [each.reason for each in port.world.told]

    told: tuple[str, list[str]] = play(scenario())
    return told


def test_a_stream_is_taken_served_and_ended() -> None:
    async def scenario() -> None:
        port = Port()
        client, _ = port.connect()
        client.send(FrameKind.HELLO, hello())
        assert (await client.frame()).kind is FrameKind.WELCOME
        for _ in range(3):
            client.send(FrameKind.MESSAGE, PRODUCE.request.parts(StreamMessage(data_pb2.ProduceRequest())))
            assert (await client.frame()).kind is FrameKind.MESSAGE
        client.send(FrameKind.DONE)
        assert await end_of(client) is None

    play(scenario())


@pytest.mark.parametrize(
    ("kind", "body", "sentence"),
    [
        (FrameKind.MESSAGE, [b""], "CorruptMessage: a connection began with a frame MESSAGE"),
        (FrameKind.HELLO, [b"\xff\xff"], "CorruptMessage: the hello of a connection is not valid"),
        (FrameKind.HELLO, [bytes(70_000)], "CorruptMessage: a frame of 70000 bytes came, at most 65536"),
    ],
)
def test_a_first_message_that_is_no_hello_is_refused_and_audited(
    kind: FrameKind, body: list[bytes], sentence: str
) -> None:
    told, audited = refused(kind, body)
    assert told.startswith(sentence)
    assert audited == [told.partition(": ")[2]]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (hello(version=1), "(version 9) speaks 1: the other side (version 9) is too old"),
        (hello(version=99), "(version 9) speaks 99"),
        (hello("/minilog.v1.DataService/DeleteRecords"), "is not a stream: use the port of calls"),
        (hello(HEARTBEAT.path), "is not served on this listener"),
    ],
)
def test_a_hello_that_cannot_be_served_is_refused_in_words(said: list[bytes], sentence: str) -> None:
    told, _ = refused(FrameKind.HELLO, said)
    assert sentence in told


def test_a_stranger_is_refused_by_the_gate_and_audited() -> None:
    async def scenario() -> None:
        port = Port()
        port.server._gate = port.world.gate
        client, _ = port.connect()
        client.send(FrameKind.HELLO, hello(FETCH.path))
        assert "log in first" in str(await end_of(client))
        assert len(port.world.told) == 1

    play(scenario())


def test_nothing_said_for_long_is_refused() -> None:
    async def scenario() -> float:
        port = Port()
        client, _ = port.connect()
        began_s = asyncio.get_running_loop().time()
        assert "sent no hello" in str(await end_of(client))
        return asyncio.get_running_loop().time() - began_s

    assert play(scenario()) == pytest.approx(HELLO_S)


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [(not_the_leader, "NotLeaderOrFollower: ask another one"), (a_fault, "UnknownServerError: the broker met ZeroDiv")],
)
def test_how_a_service_ends_is_told(handler: Handle, sentence: str) -> None:
    async def scenario() -> str:
        client, _ = Port(handler).connect()
        client.send(FrameKind.HELLO, hello())
        error = await end_of(client)
        return f"{type(error).__name__}: {error}"

    assert play(scenario()).startswith(sentence)


def test_a_second_hello_ends_the_stream() -> None:
    async def scenario() -> str:
        client, _ = Port().connect()
        client.send(FrameKind.HELLO, hello())
        client.send(FrameKind.HELLO, hello())
        return str(await end_of(client))

    assert "sent a frame HELLO in the middle of a stream" in play(scenario())


def test_a_service_hears_that_its_client_is_gone() -> None:
    async def scenario() -> None:
        gone = asyncio.Event()

        async def waits(incoming: AsyncIterator[Any], stream: ClientStream) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                gone.set()

        port = Port(waits)
        client, _ = port.connect()
        client.send(FrameKind.HELLO, hello())
        assert (await client.frame()).kind is FrameKind.WELCOME
        (found,) = port.connections.look(asyncio.get_running_loop().time())
        assert found.peer == "ipv4:10.0.0.1:1"
        client.abort()
        await gone.wait()
        assert port.connections.look(0.0) == []

    play(scenario())


def test_a_client_that_does_not_close_is_closed() -> None:
    async def scenario() -> float:
        client, wire = Port(not_the_leader).connect()
        client.send(FrameKind.HELLO, hello())
        await end_of(client)
        began_s = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(0.05)
            if wire.is_closed:
                return asyncio.get_running_loop().time() - began_s

    assert LINGER_S <= play(scenario()) < LINGER_S + 0.2


def test_a_connection_that_was_reset_before_it_was_looked_at_leaves_nothing() -> None:
    """The kernel tells no address of it then."""

    async def scenario() -> None:
        port = Port()
        own = port.server.connection()
        _, wire = joined(connection(), own, address=None)
        await asyncio.sleep(0.1)
        assert wire.is_closed
        assert not own.is_open
        assert (port.connections.look(0.0), port.flow.by_peer) == ([], {})

    play(scenario())


def test_above_the_limit_of_connections_a_new_one_is_closed_and_the_old_ones_live() -> None:
    async def scenario() -> None:
        port = Port(most_connections=2)
        first, second, above = (port.connect() for _ in range(3))
        await asyncio.sleep(0.1)
        assert [wire.is_closed for _, wire in (first, second, above)] == [False, False, True]
        first[0].abort()
        await asyncio.sleep(0.1)
        later, _ = port.connect()
        later.send(FrameKind.HELLO, hello())
        assert (await later.frame()).kind is FrameKind.WELCOME

    play(scenario())


def test_a_service_that_lost_a_connection_of_its_own_leaves_none_open() -> None:
    async def scenario() -> None:
        async def asks_another(incoming: AsyncIterator[Any], stream: ClientStream) -> None:
            await anext(incoming)
            raise ConnectionEnded("to another broker")

        port = Port(asks_another)
        client, wire = port.connect()
        client.send(FrameKind.HELLO, hello())
        assert (await client.frame()).kind is FrameKind.WELCOME
        client.send(FrameKind.MESSAGE, PRODUCE.request.parts(StreamMessage(data_pb2.ProduceRequest())))
        with pytest.raises(ConnectionEnded):
            await client.frame()
        await asyncio.sleep(0.1)
        assert wire.is_closed
        assert not port.connections.look(0.0)

    play(scenario())


def test_a_port_that_stops_says_so() -> None:
    async def scenario() -> str:
        port = Port()
        client, _ = port.connect()
        client.send(FrameKind.HELLO, hello())
        assert (await client.frame()).kind is FrameKind.WELCOME
        stopping = asyncio.ensure_future(port.server.stop(0.5))
        said = str(await end_of(client))
        await stopping
        with pytest.raises(ConnectionEnded):
            await client.frame()
        return said

    assert play(scenario()) == "the broker stops"


def test_the_guard_sees_what_a_connection_holds_and_cuts_it() -> None:
    async def scenario() -> None:
        async def takes_nothing(incoming: AsyncIterator[Any], stream: ClientStream) -> None:
            await asyncio.Event().wait()

        port = Port(takes_nothing)
        client, wire = port.connect()
        client.send(FrameKind.HELLO, hello())
        assert (await client.frame()).kind is FrameKind.WELCOME
        client.send(FrameKind.MESSAGE, [bytes(300_000)])
        await asyncio.sleep(1.0)
        (found,) = port.connections.look(asyncio.get_running_loop().time())
        assert found.half_received_bytes == 300_000 + FRAME_BYTES
        assert found.silent_ms == pytest.approx(1_000.0, abs=50.0)
        assert port.connections.cut(found)
        assert not port.connections.cut(found)
        await asyncio.sleep(0.1)
        assert wire.is_closed

    play(scenario())
