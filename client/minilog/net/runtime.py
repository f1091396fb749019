"""The outside services that a client uses besides its event loop: wall clock, random numbers, network.

The event loop has the monotonic clock, tasks, timers and threads. A program runs on `SYSTEM_RUNTIME`. The simulator
provides a loop on virtual time and a runtime of its own. The code of the client is the same on both.
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
    ("grpc.min_reconnect_backoff_ms", 2_000),  # despite its name this is the time for one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # each new channel has a new connection
    *HTTP2_OPTIONS,
    *KEEPALIVE_OPTIONS,
]


def open_channel(
    address: Address, security: ChannelSecurity | None, options: Sequence[tuple[str, int | str]]
) -> grpc.aio.Channel:
    """A channel of gRPC with these options. Raises InvalidConfig if a file of its security cannot be read."""
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
    """A TCP connection to a port of streams, by the running event loop. Without `security` it is not encrypted.

    Raises OSError if there is no connection, and InvalidConfig if a file of its security cannot be read."""
    loop, (host, port) = asyncio.get_running_loop(), address
    if security is None:
        transport, connection = await loop.create_connection(protocol, host, port)
    else:
        name = security.server_name or host
        context = security.files.context()
        transport, connection = await loop.create_connection(protocol, host, port, ssl=context, server_hostname=name)
    with contextlib.suppress(RuntimeError):  # uvloop raises it for a closed connection; the protocol reports that
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
    """Do the same as `ask_for_life`, for the side that only answers. In addition the system closes the connection if
    the other machine does not take sent bytes for 30 s, even if that machine is alive."""
    ask_for_life(plain)
    _set_options(plain, ("TCP_USER_TIMEOUT", STREAM_KEEPALIVE_S * STREAM_KEEPALIVES * 1000))


def _set_options(plain: socket.socket, *options: tuple[str, int]) -> None:
    """Set the options that the system has."""
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options:
        if (option := getattr(socket, name, None)) is not None:
            plain.setsockopt(socket.IPPROTO_TCP, option, value)


STREAM_KEEPALIVE_S, STREAM_KEEPALIVES = 10, 3
"""TCP asks after 10 s of silence whether the other machine is there, and gives the connection up after 30 s."""


class Runtime(Protocol):
    """The runtime of a client. The client takes time, random numbers and connections from it."""

    def wall_us(self) -> int:
        """The wall clock, in microseconds since 1970."""

    def chance(self) -> random.Random:
        """A new source of random numbers, for the caller alone."""

    def unique_bytes(self, count: int) -> bytes:
        """Random bytes for names that are unique over all processes, and for keys that cannot be guessed."""

    def open_channel(self, address: Address, security: ChannelSecurity | None = None) -> grpc.aio.Channel:
        """A channel to one broker. It connects at its first use. Without `security` it is not encrypted.

        Raises InvalidConfig if a file of its security cannot be read."""

    async def connect(
        self, address: Address, protocol: Callable[[], StreamConnection], security: ChannelSecurity | None = None
    ) -> StreamConnection:
        """A connection to a port of streams. Without `security` it is not encrypted.

        Raises OSError if there is no connection, and InvalidConfig if a file of its security cannot be read."""


class SystemRuntime:
    """The runtime of the real system."""

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
    """The monotonic clock of the running event loop, in seconds."""
    return asyncio.get_running_loop().time()


def now_ms() -> float:
    """The monotonic clock of the running event loop, in milliseconds."""
    return asyncio.get_running_loop().time() * 1000.0
