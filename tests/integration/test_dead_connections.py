"""A connection that is open and dead: what a silent cut leaves behind. Every channel gives it up in seconds.

The relay passes bytes until it goes deaf: what was connected by then stays open for ever and says nothing more, and
what connects later is passed again, as when a link is healed and TCP waits for its retransmission time-out.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Self

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from minilog.net import runtime
from minilog.net.http2 import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.net.stream_connection import StreamConnection
from minilog.net.stream_frames import FrameKind, SharedMemory
from minilog_broker.server.clients import channels
from tests.cluster import HOST

GIVEN_UP_S = (KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS) / 1000.0
SLACK_S = 3.0
NEVER_S = 30.0
UNREAD_S = 5.0  # TCP looks at a side that does not read more and more rarely


class Relay:
    """See the module's text."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._open: set[asyncio.StreamReader] = set()
        self._deaf: set[asyncio.StreamReader] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            lambda reader, writer: self._spawn(self._connect(reader, writer)), HOST, 0
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def go_deaf(self) -> None:
        self._deaf |= self._open

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        others_reader, others_writer = await asyncio.open_connection(HOST, self._target_port)
        self._spawn(self._pass(reader, others_writer))
        self._spawn(self._pass(others_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(reader)
        try:
            while chunk := await reader.read(65_536):
                if reader not in self._deaf:
                    writer.write(chunk)
        finally:
            writer.close()


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # its stubs have no types
    """Answers at once, but for a service that it thinks about for ever."""

    async def Check(self, request: health_pb2.HealthCheckRequest, context: object) -> health_pb2.HealthCheckResponse:  # noqa: N802
        if request.service == "slow":
            await asyncio.sleep(NEVER_S)
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


Open = Callable[[tuple[str, int]], grpc.aio.Channel]
OPENERS: dict[str, Open] = {
    "of a client": SYSTEM_RUNTIME.open_channel,
    "of a broker": lambda address: channels.open_channel(address, None),
}


async def how_long_dead(open_channel: Open, server_port: int) -> tuple[float, float]:
    """Seconds until a call that waits on the dead connection is given up, and from then until one is answered."""
    loop = asyncio.get_running_loop()
    relay = Relay(server_port)
    async with relay, open_channel((HOST, relay.port)) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        await check(health_pb2.HealthCheckRequest(), timeout=SLACK_S)
        assert user_timeouts_ms(relay.port) == [KEEPALIVE_TIMEOUT_MS]

        relay.go_deaf()
        began_s = loop.time()
        with pytest.raises(grpc.aio.AioRpcError) as given_up:
            await check(health_pb2.HealthCheckRequest(service="slow"), timeout=NEVER_S)
        assert given_up.value.code() is grpc.StatusCode.UNAVAILABLE, given_up.value
        dead_s = loop.time()
        while not await is_answered(check):  # one that meets the end of the dead connection goes with it
            assert loop.time() < dead_s + SLACK_S
        return dead_s - began_s, loop.time() - dead_s


async def is_answered(check: Any) -> bool:
    try:
        await check(health_pb2.HealthCheckRequest(), timeout=SLACK_S, wait_for_ready=True)
    except grpc.aio.AioRpcError:
        return False
    return True


def user_timeouts_ms(port: int) -> list[int]:
    """TCP_USER_TIMEOUT of this process's connections to a port: so long what is not acknowledged keeps one open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as connection:
                is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
                if is_tcp and connection.getpeername()[1] == port:
                    found.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        except OSError:  # no socket, or none that is connected
            continue
    return found


async def dead_times() -> dict[str, tuple[float, float]]:
    server = channels.create_server(most_connections=10, connection_idle_ms=60_000)
    health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    try:
        found = await asyncio.gather(*(how_long_dead(each, port) for each in OPENERS.values()))
    finally:
        await server.stop(0)
    return dict(zip(OPENERS, found, strict=True))


@pytest.mark.dear("it waits for a time-out of the product")
def test_a_call_on_a_dead_connection_is_given_up_and_the_next_one_has_another() -> None:
    for whose, (dead_s, anew_s) in asyncio.run(dead_times()).items():
        assert dead_s < GIVEN_UP_S + SLACK_S, f"a channel {whose}"
        assert anew_s < 1.0, f"a channel {whose}"


@pytest.mark.dear("it waits for a time-out of the product")
def test_a_stream_whose_broker_does_not_read_for_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker reads nothing from a client that owes it a quota. TCP's own time-out (30 s, 1 s here) ended the stream
    then, though both sides were alive."""
    monkeypatch.setattr(runtime, "STREAM_KEEPALIVE_S", 1)
    monkeypatch.setattr(runtime, "STREAM_KEEPALIVES", 1)

    async def scenario() -> None:
        loop, shared = asyncio.get_running_loop(), SharedMemory()

        def connection() -> StreamConnection:
            return StreamConnection(shared, most_frame_bytes=1 << 30, window_bytes=1)

        with socket.create_server((HOST, 0)) as server:
            server.setblocking(False)
            own = await SYSTEM_RUNTIME.connect(server.getsockname(), connection)
            accepted, _ = await loop.sock_accept(server)
        _, other = await loop.connect_accepted_socket(connection, accepted)
        sizes = [1, *[1 << 20] * 30]  # the first one stops the reading
        for size in sizes:
            own.send(FrameKind.MESSAGE, [bytes(size)])
        await asyncio.sleep(UNREAD_S)
        assert own.unsent_bytes > 0
        assert own.is_open
        for size in sizes:
            assert len((await other.frame()).body) == size
        for each in (own, other):
            each.abort()

    asyncio.run(scenario())
