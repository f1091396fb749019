"""The settings of HTTP/2 that both sides of each connection give gRPC (docs/internals/departures.md)."""

from __future__ import annotations

# Streams have connections of their own: what gRPC carries are calls, whose messages are small, and metadata of some MB.
# gRPC would find out how long a window is worth its while, by a ping for each message that comes: a third of all that
# wakes an idle process.
HTTP2_OPTIONS: tuple[tuple[str, int], ...] = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 20))
"""Of both sides of each connection."""

# A link that is cut without a word leaves connections that are open and dead. TCP doubles its pause before each try:
# after a cut of half a minute such a connection stays dead for half a minute more. So a call that has heard nothing for
# KEEPALIVE_MS sends a ping, which gRPC answers without Python. The connection is given up where no answer comes for
# KEEPALIVE_TIMEOUT_MS, or where TCP's acknowledgement is missing for so long. The next call has another. Streams say
# something more often (session.keepalive.ms). A connection without a call is left alone: an idle process sleeps.
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 2_000, 3_000
KEEPALIVE_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # TCP_USER_TIMEOUT of the connection
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # a minute otherwise, whatever the line above says
    ("grpc.http2.max_pings_without_data", 0),  # as many as it takes
)
"""Of each channel, whoever opens it: the one rule by which a connection that is kept is given up."""
