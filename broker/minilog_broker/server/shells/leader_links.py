"""The follower's side of sessions: one Replicate stream per leader, as long as the core wants it.

A link opens its stream, and carries messages both ways. It reports the begin and a break of the stream to the core,
which asks for a new one. The core's tick notices a silent leader, and asks for the end of the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from minilog.net.payload_stream import STREAM_ERRORS, OpenedStream
from minilog.stream_messages import REPLICATE, StreamMessage
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.replication.replica_effects import OpenFetcherStream
from minilog_broker.server.clients.peer_channels import PeerChannels
from minilog_broker.server.clients.streams import pump
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.shells.replication_shell import ReplicationShell

logger = structlog.get_logger()

RECONNECT_PAUSE_S = 0.05  # a refused connection fails at once, and must not be tried in a spin


class LeaderLinks:
    """The links of this broker, by leader id. `address` gives the current address of a leader."""

    def __init__(
        self,
        replicas: ReplicationShell,
        client: common_pb2.ClientIdentity,
        address: Callable[[int], tuple[str, int] | None],
        channels: PeerChannels,
    ) -> None:
        self._channels = channels
        self._replicas = replicas
        self._client = client
        self._address = address
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ready: dict[int, asyncio.Event] = {}

    def open(self, effect: OpenFetcherStream) -> None:
        self.close(effect.leader_id)
        ready = self._ready[effect.leader_id] = asyncio.Event()
        self._tasks[effect.leader_id] = asyncio.ensure_future(self._run(effect.leader_id, ready))

    def wake(self, leader_id: int) -> None:
        if ready := self._ready.get(leader_id):
            ready.set()

    def close(self, leader_id: int) -> None:
        self._ready.pop(leader_id, None)
        if task := self._tasks.pop(leader_id, None):
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for leader_id in list(self._tasks):
            self.close(leader_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, leader_id: int, ready: asyncio.Event) -> None:
        try:
            await self._converse(leader_id, ready)
        except STREAM_ERRORS as error:
            logger.debug("the session to a leader broke", leader=leader_id, error=str(error) or type(error).__name__)
        await asyncio.sleep(RECONNECT_PAUSE_S)
        if self._ready.get(leader_id) is ready:  # it was neither closed nor opened anew
            self._ready.pop(leader_id)
            self._tasks.pop(leader_id, None)
            self._replicas.manager.fetcher_stream_closed(leader_id, now_ms())
            self._replicas.run()

    async def _converse(self, leader_id: int, ready: asyncio.Event) -> None:
        address = self._address(leader_id)
        if address is None:
            return
        manager, replicas = self._replicas.manager, self._replicas

        def opened() -> None:
            manager.fetcher_stream_opened(leader_id, now_ms())
            replicas.run()

        def receive(message: StreamMessage[peer_pb2.ReplicateResponse]) -> None:
            if self._ready.get(leader_id) is ready:  # else the core has closed this stream
                manager.leader_message(leader_id, message, now_ms())
                replicas.run()

        def next_request() -> peer_pb2.ReplicateRequest | None:
            message = manager.next_request(leader_id, now_ms())
            replicas.run()
            return message

        def sends() -> None:
            if self._ready.get(leader_id) is ready:
                manager.leader_sends(leader_id, now_ms())

        stream = await self._channels.open_stream(leader_id, address, REPLICATE, sends)
        await converse(stream, self._client, opened, receive, next_request, ready)


async def converse(
    stream: OpenedStream,
    client: common_pb2.ClientIdentity,
    opened: Callable[[], None],
    receive: Callable[[StreamMessage[peer_pb2.ReplicateResponse]], None],
    next_request: Callable[[], peer_pb2.ReplicateRequest | None],
    ready: asyncio.Event,
) -> None:
    """Run one Replicate stream until it breaks. STREAM_ERRORS have the reason."""
    first = True

    def next_identified() -> StreamMessage[peer_pb2.ReplicateRequest] | None:
        nonlocal first
        request = next_request()
        if request is not None and first:
            first = False
            request.client.CopyFrom(client)
        return None if request is None else StreamMessage(request)

    try:
        opened()
        await pump(stream.received(), receive, next_identified, stream.write, ready)
    finally:
        stream.cancel()
