"""What both sides of each connection tell gRPC of HTTP/2 (ARCHITECTURE.md § Where this departs from the first plan)."""

from __future__ import annotations

# A 64th of the heads that frames of 16 KiB need. Small messages wait for no long one: each stream has a connection.
FRAME_BYTES = 1 << 20


def http2_options(window_bytes: int) -> tuple[tuple[str, int], ...]:
    """gRPC's arguments: of a message's bytes up to `window_bytes` may come before they are read, from the beginning.

    gRPC would find out how long a window is worth its while, by a ping for each message that comes: a third of all that
    wakes an idle process. What streams have on their way is bounded by credits and by batches in flight.
    """
    return (
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", window_bytes),
        ("grpc.http2.max_frame_size", FRAME_BYTES),
    )
