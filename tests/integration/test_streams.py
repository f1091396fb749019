"""Streams over real sockets: on both event loops, in the clear and by TLS; and what else comes to a port of streams."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import pytest
import uvloop

from minilog.errors import CorruptMessage, MinilogError
from minilog.net.payload_stream import OpenedStream, open_stream
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.net.stream_connection import StreamConnection
from minilog.net.stream_frames import SharedMemory
from minilog.security.channel_security import ChannelSecurity, PemFiles
from minilog.stream_messages import PRODUCE, StreamMessage
from minilog.v1 import data_pb2
from minilog_broker.server.ingress.rules.admission import Admission
from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.client_stream import ClientStream
from minilog_broker.server.ingress.rules.gate import OpenGate
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.server_credentials import ServerFiles
from minilog_broker.server.ingress.transport.stream_listener import StreamListener
from minilog_broker.server.ingress.transport.stream_server import StreamServer
from minilog_broker.server.runtime.observer import UNOBSERVED
from minilog_broker.server.runtime.turns import Turns
from minilog_tools.local_security import open_security
from tests.cluster import HOST, STREAM_PORT_OFFSET, Cluster, free_ports
from tests.pool import THREE, shared_cluster
from tests.streams_by_hand import HandStream, Place, StreamEnded, hello_frame
from tests.unit.wires import connection

LARGE_BYTES = 9 << 20
MOST_CONNECTIONS = 100
NewLoop = Callable[[], asyncio.AbstractEventLoop]


class Handler:
    """As a generated `add_..._to_server` gives it: sums up what comes."""

    async def stream_stream(self, incoming: AsyncIterator[Any], stream: ClientStream) -> None:
        async for received in incoming:
            result = data_pb2.ProduceResult(base_offset=sum(map(len, received.payloads)))
            await stream.write(StreamMessage(data_pb2.ProduceResponse(results=[result])))


@contextlib.asynccontextmanager
async def listening(files: ServerFiles | None) -> AsyncIterator[int]:
    """A port of streams, by the loop that runs."""
    flow = Flow(Budget(64 << 20), Budget(64 << 20), Turns())
    server = StreamServer(
        flow, Admission(Turns()).parser, OpenGate(), UNOBSERVED, lambda event: None, most_connections=MOST_CONNECTIONS
    )
    server.add("minilog.v1.DataService", {"Produce": Handler()})
    (port,) = free_ports(1)
    listener = StreamListener((HOST, port), server.connection, files, MOST_CONNECTIONS)
    listener.start()
    try:
        yield port
    finally:
        await listener.close()
        await server.stop(0.0)


async def opened(port: int, security: ChannelSecurity | None) -> OpenedStream:
    async with asyncio.timeout(5.0):
        return await open_stream(lambda: SYSTEM_RUNTIME.connect((HOST, port), connection, security), PRODUCE, "1")


def message(size_bytes: int) -> StreamMessage[Any]:
    entry = data_pb2.ProduceEntry(correlation_id=1)
    return StreamMessage(data_pb2.ProduceRequest(entries=[entry]), [bytes(size_bytes)])


async def sums_of(stream: OpenedStream, sizes_bytes: list[int]) -> list[int]:
    """What the other side says of messages of these sizes."""

    async def write() -> None:
        for size_bytes in sizes_bytes:
            await stream.write(message(size_bytes))
        stream.done_writing()

    writing = asyncio.ensure_future(write())
    found = [came.message.results[0].base_offset async for came in stream.received()]
    await writing
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[ServerFiles, ChannelSecurity]:
    """Of a broker, and of clients that believe it."""
    folder = tmp_path_factory.mktemp("keys")
    security = open_security(folder, [1], "127.0.0.1:1")
    settings = security.settings(1, "127.0.0.1:1")
    truststore = str(security.client_settings()["ssl.truststore.location"])
    return ServerFiles(settings["ssl.keystore.location"], ""), ChannelSecurity(PemFiles("", truststore))


def run(work: Coroutine[Any, Any, Any], new_loop: NewLoop) -> Any:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_secured", [False, True])
def test_messages_of_all_sizes_pass_on_either_loop(
    files: tuple[ServerFiles, ChannelSecurity], new_loop: NewLoop, is_secured: bool
) -> None:
    sizes = [0, 1, 100, 16_000, 17_000, 100_000, LARGE_BYTES, 3, LARGE_BYTES]

    async def work() -> None:
        of_server, of_client = files if is_secured else (None, None)
        async with listening(of_server) as port:
            streams = [await opened(port, of_client) for _ in range(3)]
            assert await asyncio.gather(*(sums_of(each, sizes) for each in streams)) == [sizes] * 3
            for each in streams:
                each.cancel()

    run(work(), new_loop)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_tls_on_one_side_alone_is_refused(
    files: tuple[ServerFiles, ChannelSecurity], new_loop: NewLoop, tmp_path: pathlib.Path
) -> None:
    async def work() -> None:
        async with listening(None) as port:
            with pytest.raises(OSError):
                await opened(port, files[1])
        async with listening(files[0]) as port:
            with pytest.raises(OSError, match="is this the broker's port of streams"):
                await opened(port, None)
            another = open_security(tmp_path, [1], "127.0.0.1:1").client_settings()["ssl.truststore.location"]
            with pytest.raises(ssl.SSLCertVerificationError):
                await opened(port, ChannelSecurity(PemFiles("", str(another))))

    run(work(), new_loop)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_handshakes_that_do_not_end_keep_nobody_out(
    files: tuple[ServerFiles, ChannelSecurity], new_loop: NewLoop
) -> None:
    """The oldest make room. Else a stranger that opens connections and is silent would keep all others out for 5 s."""

    async def work() -> None:
        async with listening(files[0]) as port:
            silent = [await asyncio.open_connection(HOST, port) for _ in range(2 * MOST_CONNECTIONS)]
            async with asyncio.timeout(2.0):
                stream = await opened(port, files[1])
                assert await sums_of(stream, [7]) == [7]
                assert await silent[0][0].read() == b"", "the broker has closed it"
            stream.cancel()
            for _, writer in silent:
                writer.close()

    run(work(), new_loop)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_secured", [False, True])
def test_a_connection_made_while_the_listener_closes_learns_that_it_is_gone(
    files: tuple[ServerFiles, ChannelSecurity], new_loop: NewLoop, is_secured: bool
) -> None:
    """Else a broker that stops sends to a transport that is closed, and ends with exit code 1."""

    async def work() -> None:
        closing: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()
        ended: asyncio.Queue[StreamConnection] = asyncio.Queue()

        def made(connection: StreamConnection) -> None:
            closing.put_nowait(asyncio.get_running_loop().create_task(listener.close()))

        def protocol() -> StreamConnection:
            return StreamConnection(
                SharedMemory(), most_frame_bytes=1, window_bytes=1, made=made, ended=ended.put_nowait
            )

        (port,) = free_ports(1)
        listener = StreamListener((HOST, port), protocol, files[0] if is_secured else None, MOST_CONNECTIONS)
        listener.start()
        client = await SYSTEM_RUNTIME.connect((HOST, port), connection, files[1] if is_secured else None)
        async with asyncio.timeout(5.0):
            await (await closing.get())
            client.close()
            assert not (await ended.get()).is_open

    run(work(), new_loop)


cluster = shared_cluster(THREE)


def place(cluster: Cluster) -> Place:
    return Place(cluster.ports[1] + STREAM_PORT_OFFSET)


def end_of(cluster: Cluster, begins: bytes) -> MinilogError | None:
    """How the broker ends a connection that begins so."""
    stream = HandStream(place(cluster), PRODUCE, timeout_s=10.0, begins=begins)
    with contextlib.closing(stream), pytest.raises(StreamEnded) as ended:
        next(stream)
    return ended.value.error


@pytest.mark.parametrize(
    ("begins", "sentence"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP: this is the port of streams"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2, as gRPC speaks it"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS: this listener is in the clear"),
        (bytes(range(100, 200)), "neither minilog's streams"),
    ],
)
def test_another_protocol_is_ended_with_a_sentence(cluster: Cluster, begins: bytes, sentence: str) -> None:
    error = end_of(cluster, begins)
    assert isinstance(error, CorruptMessage)
    assert sentence in str(error)


def test_a_hello_cut_at_every_byte_harms_nobody(cluster: Cluster) -> None:
    whole = hello_frame(PRODUCE)
    for length in range(len(whole)):
        with socket.create_connection((HOST, place(cluster).port), timeout=5.0) as plain:
            plain.sendall(whole[:length])
    with contextlib.closing(HandStream(place(cluster), PRODUCE)) as stream:
        stream.write(message(0))
        assert next(stream).message.results[0].error.code


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("begins", [b"", hello_frame(PRODUCE), hello_frame(PRODUCE) + bytes(100_000)])
def test_connections_that_are_reset_at_once_harm_nobody(new_loop: NewLoop, begins: bytes) -> None:
    """Found by a kill run: uvloop's transport takes no call once it is closed, and a broker ended of that."""
    failures: list[Any] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        async with listening(None) as port:
            for number in range(300):
                with socket.create_connection((HOST, port), timeout=5.0) as plain:
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    plain.sendall(begins)
                    await asyncio.sleep(0.0001 * (number % 7))
            stream = await opened(port, None)
            assert await sums_of(stream, [7]) == [7]

    run(work(), new_loop)
    assert not failures


def test_a_client_of_grpc_is_told_which_port_has_streams(cluster: Cluster) -> None:
    with grpc.insecure_channel(f"{HOST}:{cluster.ports[1]}") as channel:
        call: Any = channel.stream_stream(PRODUCE.path, request_serializer=bytes)(iter([b""]), timeout=5.0)
        with pytest.raises(grpc.RpcError) as refused:
            next(call)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "use the port of streams" in str(refused.value.details())


def test_a_stream_that_comes_to_the_port_of_calls_is_told_so(cluster: Cluster) -> None:
    async def work() -> None:
        await opened(cluster.ports[1], None)

    with pytest.raises((CorruptMessage, OSError), match=r"port of calls|port of streams"):
        run(work(), uvloop.new_event_loop)
