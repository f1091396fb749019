"""gRPC channels and servers: one place for their options.

They carry calls. Streams have connections of their own (minilog/net/payload_stream.py), whose frames are bounded by the
longest batch. A pause before a new connection is at most 500 ms (docs/spec/replication.md § Sessions).
"""

from __future__ import annotations

import asyncio

import grpc

from minilog.addresses import Address
from minilog.errors import CorruptMessage
from minilog.net import runtime
from minilog.net.http2 import HTTP2_OPTIONS, KEEPALIVE_OPTIONS
from minilog.record_batch.schema import MAX_MESSAGE_BYTES
from minilog.security.channel_security import ChannelSecurity
from minilog_broker.version import CLIENT_VERSION

FRAME_OVERHEAD_BYTES = 2 << 20  # the bytes of a message beside its largest batch
MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + FRAME_OVERHEAD_BYTES
MAX_CALL_BYTES = 5 << 20  # of one request: a little above ingress/rules/request_limits.py, which has the better error
PEER_WINDOW_BYTES = 64 << 20  # messages of a leader that are not taken yet: credits bound them
MAX_STREAMS = 100  # calls on one connection at a time: the least that RFC 9113 advises
MAX_HEADERS_BYTES = 8 << 10  # of one call, unpacked: a session and a trace have less than 1 KiB
HANDSHAKE_TIMEOUT_MS = 5_000  # a connection without a handshake of HTTP/2 is closed after it
SILENT_CLIENT_MS, PING_TIMEOUT_MS = 30_000, 10_000  # a client without an answer to a ping is gone: it lost power

_CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    *HTTP2_OPTIONS,
    *KEEPALIVE_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    # Despite its name this is the limit of one attempt to connect. On a machine under load a handshake takes long.
    # Attempts that end before it never connect, and make the load worse.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # a channel of its own is a connection of its own
    ("grpc.primary_user_agent", f"minilog-broker/{CLIENT_VERSION}"),
)


def open_channel(address: Address, security: ChannelSecurity | None) -> grpc.aio.Channel:
    """A channel with a connection of its own to a broker."""
    return runtime.open_channel(address, security, _CHANNEL_OPTIONS)


def create_server(*, most_connections: int, connection_idle_ms: int) -> grpc.aio.Server:
    """A gRPC server that does not share its port: a port that is taken is an error at once.

    It refuses connections above `most_connections`, and closes one without calls after `connection_idle_ms`.
    """
    return grpc.aio.server(
        options=(
            *HTTP2_OPTIONS,
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_CALL_BYTES),
            ("grpc.max_send_message_length", MAX_FRAME_BYTES),
            ("grpc.max_concurrent_streams", MAX_STREAMS),
            ("grpc.max_allowed_incoming_connections", most_connections),
            ("grpc.max_connection_idle_ms", connection_idle_ms),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
            ("grpc.keepalive_time_ms", SILENT_CLIENT_MS),
            ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
            ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),  # a minute otherwise, whatever the line above says
            # A ping costs gRPC little. To end the connection costs more: the other side makes another one.
            ("grpc.http2.max_ping_strikes", 0),
            # gRPC refuses longer headers before Python sees them. Between its two numbers it would draw lots.
            ("grpc.max_metadata_size", MAX_HEADERS_BYTES),
            ("grpc.absolute_max_metadata_size", MAX_HEADERS_BYTES),
            # gRPC would expand messages before a login, and one byte may become a thousand. Batches have a compression
            # of their own, whose size is known before (record_batch/validation.py).
            ("grpc.compression_enabled_algorithms_bitset", 1),  # bit 0: none
        ),
    )


async def let_calls_end(grace_s: float) -> None:
    """Wait for calls that were being refused when the server stopped. gRPC would print them if they were cancelled."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=grace_s)


# The errors of a call when the other side is gone or sends nonsense, or the stream has ended.
CALL_ERRORS = (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError, OSError, CorruptMessage)


def reason(error: BaseException) -> str:
    """The words of an error of a call."""
    return str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else str(error)
