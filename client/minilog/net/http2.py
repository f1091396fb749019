"""The settings of HTTP/2 that both sides of each connection give gRPC (docs/internals/departures.md)."""

from __future__ import annotations

# Streams have connections of their own. gRPC carries only calls: small messages, and metadata of some MB. By default
# gRPC measures the best size of a window with a ping for each message. These pings were a third of all wake-ups of an
# idle process.
HTTP2_OPTIONS: tuple[tuple[str, int], ...] = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 20))
"""The options of both sides of each connection."""

# If a link is cut silently, its connections stay open and dead. TCP doubles its pause before each try. So after a cut
# of half a minute such a connection stays dead for half a minute more. Therefore gRPC sends a ping if a call has
# received nothing for KEEPALIVE_MS. The other side's gRPC answers it without Python. If no answer, or no TCP
# acknowledgement, comes for KEEPALIVE_TIMEOUT_MS, gRPC closes the connection. The next call gets another one. Streams
# send signs of life more often (session.keepalive.ms). On a connection without a call gRPC sends no ping, so an idle
# process sleeps.
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 2_000, 3_000
KEEPALIVE_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # TCP_USER_TIMEOUT of the connection
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # the default is a minute, in spite of the line above
    ("grpc.http2.max_pings_without_data", 0),  # no limit
)
"""The options of each channel of clients and brokers: the one rule that closes a dead connection."""
