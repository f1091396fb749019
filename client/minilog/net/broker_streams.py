"""The long-lived streams of one client, one for each broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from minilog.errors import MinilogError
from minilog.net.network_client import NetworkClient
from minilog.net.stream import DuplexStream
from minilog.net.stream_frames import SharedMemory
from minilog.net.stream_opener import BrokerOpener
from minilog.stream_messages import StreamMessage, StreamMethod


class BrokerStreams:
    """The streams of one method.

    It calls `lost(broker_id, refusal)` once for each stream that ends without `take` or `close_all`, also if the
    address of the broker is not known. `refusal` is the error of a broker that does not let this client in, or None. It
    calls `doubted` while a broker is silent for too long."""

    def __init__(
        self,
        cluster: NetworkClient,
        method: StreamMethod,
        *,
        keepalive_ms: float,
        lost: Callable[[int, MinilogError | None], None],
        doubted: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._method = method
        self._keepalive_ms = keepalive_ms
        self._lost = lost
        self._doubted = doubted
        self._shared = SharedMemory()
        self._streams: dict[int, DuplexStream] = {}

    def open(
        self,
        broker_id: int,
        *,
        keepalive: Callable[[], Message],
        opened: Callable[[], None],
        received: Callable[[StreamMessage[Any]], None],
        written: Callable[[StreamMessage[Any]], None] = lambda message: None,
    ) -> None:
        """Open the stream to a broker. No stream to it may be open now."""
        address, stream_address = self._cluster.address(broker_id), self._cluster.stream_address(broker_id)
        if address is None or stream_address is None:
            self._lost(broker_id, None)
            return
        opener = BrokerOpener(self._cluster, address, stream_address, self._method, self._shared)
        stream = DuplexStream(
            opener,
            f"broker {broker_id}",
            keepalive,
            keepalive_ms=lambda: self._keepalive_ms,
            opened=opened,
            received=received,
            lost=lambda refusal: self._was_lost(broker_id, stream, refusal),
            written=written,
            doubted=self._doubted,
        )
        self._streams[broker_id] = stream

    def _was_lost(self, broker_id: int, stream: DuplexStream, refusal: MinilogError | None) -> None:
        """The loss of a stream counts only while no other stream has taken its place."""
        if self._streams.get(broker_id) is stream:
            del self._streams[broker_id]
            self._lost(broker_id, refusal)

    @property
    def broker_ids(self) -> list[int]:
        """The brokers to which a stream is open, or is being opened."""
        return list(self._streams)

    def send(self, broker_id: int, message: StreamMessage[Any]) -> None:
        """Send to a broker. Without a stream to it, this does nothing."""
        if (stream := self._streams.get(broker_id)) is not None:
            stream.send(message)

    def take(self, broker_id: int) -> DuplexStream | None:
        """Give the stream to a broker to the caller, which closes it. `lost` is not called for it."""
        return self._streams.pop(broker_id, None)

    async def finish(self, timeout_s: float) -> dict[int, bool]:
        """End all streams after all messages that were sent.

        The result has for each broker id whether the broker has taken all of them."""
        finishing = list(self._streams.items())
        taken = await asyncio.gather(*(stream.finish(timeout_s) for _, stream in finishing))
        return {broker_id: all_taken for (broker_id, _), all_taken in zip(finishing, taken, strict=True)}

    async def close_all(self) -> None:
        """Close all streams. `lost` is called for none of them."""
        streams, self._streams = list(self._streams.values()), {}
        await asyncio.gather(*(stream.close() for stream in streams))
