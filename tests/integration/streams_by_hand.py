"""The long-lived streams as gRPC's blocking calls, for tests that say what no client of ours would."""

from __future__ import annotations

from typing import Any

import grpc

from minilog.stream_messages import StreamMethod


def call_of(channel: grpc.Channel, method: StreamMethod) -> Any:
    """Takes an iterator of StreamMessages, and gives one: as a stub's method does with messages."""
    return channel.stream_stream(
        method.path, request_serializer=method.request.encode, response_deserializer=method.response.decode
    )
