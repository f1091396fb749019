"""This broker's session to the leader of the metadata quorum: one stream at a time, on a channel of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from minilog.net.payload_stream import STREAM_ERRORS
from minilog.stream_messages import REPLICATE, StreamMessage
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.server.clients.peer_channels import Peer, PeerChannels
from minilog_broker.server.shells.leader_links import converse

logger = structlog.get_logger()


class QuorumLink:
    """The stream to the leader of the metadata quorum.

    The callbacks are called for the stream that is open now, never for a former one. `unreachable`: of a peer to which
    no stream could be opened, before `closed`.
    """

    def __init__(
        self,
        client: common_pb2.ClientIdentity,
        opened: Callable[[], None],
        closed: Callable[[], None],
        unreachable: Callable[[Peer], object],
        receive: Callable[[StreamMessage[peer_pb2.ReplicateResponse]], None],
        next_request: Callable[[], peer_pb2.ReplicateRequest | None],
        channels: PeerChannels,
    ) -> None:
        self._channels = channels
        self._client = client
        self._opened, self._closed, self._unreachable = opened, closed, unreachable
        self._receive, self._next_request = receive, next_request
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    def open(self, peer: Peer | None) -> None:
        """Open a stream to `peer` in the place of the former one. Without a known peer the stream counts as broken."""
        self.close()
        self._ready = ready = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._follow(peer, ready))

    def close(self) -> None:
        """Close the stream, without a call of `closed`."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._ready = asyncio.Event()

    def wake(self) -> None:
        """Note that there is a message to send."""
        self._ready.set()

    async def _follow(self, peer: Peer | None, ready: asyncio.Event) -> None:
        stream = None
        try:
            if peer is not None:
                stream = await self._channels.open_stream(*peer, REPLICATE)
                await converse(
                    stream,
                    self._client,
                    lambda: self._opened() if self._ready is ready else None,
                    lambda message: self._receive(message) if self._ready is ready else None,
                    self._next_request,
                    ready,
                )
        except STREAM_ERRORS as error:
            logger.debug("the session to the quorum's leader broke", error=str(error) or type(error).__name__)
            if peer is not None and stream is None:
                self._unreachable(peer)
        if self._ready is ready:
            self._task = None
            self._closed()
