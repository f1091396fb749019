"""The parts of the world that a client uses besides its event loop: wall clock, chance, network.

The event loop has the monotonic clock, tasks, timers and threads. A program runs on `SYSTEM_RUNTIME`. The simulator
provides a loop on virtual time and a world of its own, and the client does not know the difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import grpc

from minilog.addresses import Address, address_text
from minilog.net.home import keep_in_children
from minilog.net.http2 import HTTP2_OPTIONS, KEEPALIVE_OPTIONS
from minilog.security.channel_security import ChannelSecurity
from minilog.tracing import process_tracing

if TYPE_CHECKING:  # it loads Arrow
    from minilog.net.stream_connection import StreamConnection

_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_send_message_length", -1),  # bounded by batch.size, buffer.memory and the session's credit
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # despite its name the time that one attempt to connect is given
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a channel opened anew is a connection opened anew
    *HTTP2_OPTIONS,
    *KEEPALIVE_OPTIONS,
]


def open_channel(
    address: Address, security: ChannelSecurity | None, options: Sequence[tuple[str, int | str]]
) -> grpc.aio.Channel:
    """A channel of gRPC with these options. Raises InvalidConfig where a file of its security cannot be read."""
    target = address_text(address)
    tracing = process_tracing()
    interceptors = None if tracing is None else tracing.interceptors()
    if security is None:
        return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
    both = (*options, *security.options())
    credentials = security.files.channel_credentials()
    return grpc.aio.secure_channel(target, credentials, options=both, interceptors=interceptors)


async def connect(
    address: Address, protocol: Callable[[], StreamConnection], security: ChannelSecurity | None
) -> StreamConnection:
    """A TCP connection by the running event loop. See Runtime.connect."""
    loop, (host, port) = asyncio.get_running_loop(), address
    if security is None:
        transport, connection = await loop.create_connection(protocol, host, port)
    else:
        name = security.server_name or host
        context = security.files.context()
        transport, connection = await loop.create_connection(protocol, host, port, ssl=context, server_hostname=name)
    with contextlib.suppress(RuntimeError):  # uvloop's, where it is closed by now: the protocol hears of that
        ask_for_life(transport.get_extra_info("socket"))
    return connection


def ask_for_life(plain: socket.socket) -> None:
    """Let the system close an idle connection after 30 s if the other machine has disappeared. It waits without limit
    for a living machine that does not read, because a broker does not read from a client that is above its quota.
    Streams notice a lost machine sooner, by signs of life."""
    _set_options(
        plain,
        ("TCP_KEEPIDLE", STREAM_KEEPALIVE_S),
        ("TCP_KEEPINTVL", STREAM_KEEPALIVE_S),
        ("TCP_KEEPCNT", STREAM_KEEPALIVES),
    )


def give_up_when_dead(plain: socket.socket) -> None:
    """The same for the side that only answers. What it has sent and nobody takes keeps no connection for longer, be
    the other machine gone, or alive and not reading."""
    ask_for_life(plain)
    _set_options(plain, ("TCP_USER_TIMEOUT", STREAM_KEEPALIVE_S * STREAM_KEEPALIVES * 1000))


def _set_options(plain: socket.socket, *options: tuple[str, int]) -> None:
    """As far as the system has them."""
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options:
        if (option := getattr(socket, name, None)) is not None:
            plain.setsockopt(socket.IPPROTO_TCP, option, value)


STREAM_KEEPALIVE_S, STREAM_KEEPALIVES = 10, 3
"""TCP asks after 10 s of silence whether the other machine is there, and gives the connection up after 30 s."""


class Runtime(Protocol):
    """A client is made with one, and takes time, chance and channels from it."""

    def wall_us(self) -> int:
        """The wall clock, microseconds since 1970."""

    def chance(self) -> random.Random:
        """A source of numbers of its own for whoever asks."""

    def unique_bytes(self, count: int) -> bytes:
        """For names that nobody else has, in any process, and for keys that nobody can guess."""

    def open_channel(self, address: Address, security: ChannelSecurity | None = None) -> grpc.aio.Channel:
        """A channel to one broker, connecting when it is first used; without security in the clear. Raises
        InvalidConfig where a file of its security cannot be read."""

    async def connect(
        self, address: Address, protocol: Callable[[], StreamConnection], security: ChannelSecurity | None = None
    ) -> StreamConnection:
        """A connection to a port of streams; without security in the clear. Raises OSError where there is none, and
        InvalidConfig as `open_channel`."""


class SystemRuntime:
    """The real one."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def chance(self) -> random.Random:
        return random.Random()

    def unique_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def open_channel(self, address: Address, security: ChannelSecurity | None = None) -> grpc.aio.Channel:
        channel = open_channel(address, security, _OPTIONS)
        keep_in_children(channel)
        return channel

    async def connect(
        self, address: Address, protocol: Callable[[], StreamConnection], security: ChannelSecurity | None = None
    ) -> StreamConnection:
        return await connect(address, protocol, security)


SYSTEM_RUNTIME = SystemRuntime()


def now_s() -> float:
    """The monotonic clock of the running event loop, seconds."""
    return asyncio.get_running_loop().time()


def now_ms() -> float:
    """The same in milliseconds."""
    return asyncio.get_running_loop().time() * 1000.0
