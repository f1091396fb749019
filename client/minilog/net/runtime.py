"""What a client takes from the world besides its event loop: wall clock, chance, network.

The monotonic clock, tasks, timers and threads are the event loop's. A program runs on `SYSTEM_RUNTIME`; the simulator
gives a loop on virtual time and a world of its own, and the client does not know the difference.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from typing import Protocol

import grpc

from minilog.addresses import address_text
from minilog.config import Address
from minilog.net.home import keep_in_children
from minilog.net.http2 import KEEPALIVE_OPTIONS, http2_options
from minilog.security.channel_security import ChannelSecurity
from minilog.tracing import process_tracing

_WINDOW_BYTES = 16 << 20  # of one stream; a consumer's credit and a connection's memory are bounded elsewhere
_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_send_message_length", -1),  # bounded by batch.size, buffer.memory and the session's credit
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # despite its name the time that one attempt to connect is given
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a channel opened anew is a connection opened anew
    *http2_options(_WINDOW_BYTES),
    *KEEPALIVE_OPTIONS,
]


def open_channel(
    address: Address, security: ChannelSecurity | None, options: Sequence[tuple[str, int | str]]
) -> grpc.aio.Channel:
    """A channel of gRPC with these options."""
    target = address_text(address)
    tracing = process_tracing()
    interceptors = None if tracing is None else tracing.interceptors()
    if security is None:
        return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
    both = (*options, *security.options())
    return grpc.aio.secure_channel(target, security.credentials, options=both, interceptors=interceptors)


class Runtime(Protocol):
    """A client is made with one, and takes time, chance and channels from it."""

    def wall_us(self) -> int:
        """The wall clock, microseconds since 1970."""

    def chance(self) -> random.Random:
        """A source of numbers of its own for whoever asks."""

    def unique_bytes(self, count: int) -> bytes:
        """For names that nobody else has, in any process, and for keys that nobody can guess."""

    def open_channel(self, address: Address, security: ChannelSecurity | None = None) -> grpc.aio.Channel:
        """A channel to one broker, connecting when it is first used; without security in the clear."""


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


SYSTEM_RUNTIME = SystemRuntime()


def now_s() -> float:
    """The monotonic clock of the running event loop, seconds."""
    return asyncio.get_running_loop().time()


def now_ms() -> float:
    """The same in milliseconds."""
    return asyncio.get_running_loop().time() * 1000.0
