"""The sessions of followers and consumers here: an id, an event that wakes the pump, and a refusal if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from minilog.errors import MinilogError, wire_error
from minilog.net.payload_stream import PayloadStream
from minilog.stream_messages import StreamMessage
from minilog.v1 import peer_pb2
from minilog_broker.server.clients.streams import pump


class CoreSessions:
    """The open sessions of one core."""

    def __init__(self) -> None:
        self._ready: dict[int, asyncio.Event] = {}
        self._refused: dict[int, tuple[MinilogError, peer_pb2.ReplicateResponse | None]] = {}
        self._last_id = 0

    def open(self) -> int:
        self._last_id += 1
        self._ready[self._last_id] = asyncio.Event()
        return self._last_id

    def ready(self, session_id: int) -> asyncio.Event:
        """The event that is set when the core has a message."""
        return self._ready[session_id]

    def wake(self, session_id: int) -> None:
        if ready := self._ready.get(session_id):
            ready.set()

    def refuse(self, session_id: int, error: MinilogError, response: peer_pb2.ReplicateResponse | None = None) -> None:
        """End a session by the core's word: its pump sends the error, or `response` which has it, and ends the
        stream."""
        if session_id in self._ready:
            self._refused[session_id] = (error, response)
            self.wake(session_id)

    def refusal(self, session_id: int) -> MinilogError | None:
        refused = self._refused.get(session_id)
        return None if refused is None else refused[0]

    def close(self, session_id: int) -> None:
        self._ready.pop(session_id, None)
        self._refused.pop(session_id, None)

    async def serve(
        self,
        session_id: int,
        first: peer_pb2.ReplicateRequest,
        rest: AsyncIterator[StreamMessage[peer_pb2.ReplicateRequest]],
        stream: PayloadStream,
        receive: Callable[[int, peer_pb2.ReplicateRequest], None],
        next_message: Callable[[int], StreamMessage[peer_pb2.ReplicateResponse] | None],
    ) -> None:
        """Pump a follower's stream until either side ends it."""

        def next_or_refused() -> StreamMessage[peer_pb2.ReplicateResponse] | None:
            if refused := self._refused.get(session_id):
                raise _Refused(*refused)
            return next_message(session_id)

        try:
            receive(session_id, first)
            await pump(
                rest,
                lambda received: receive(session_id, received.message),
                next_or_refused,
                stream.write,
                self.ready(session_id),
            )
        except _Refused as refused:
            await stream.write(StreamMessage(refused.response))


class _Refused(Exception):
    """Carries the refusal of a session out of its pump."""

    def __init__(self, error: MinilogError, response: peer_pb2.ReplicateResponse | None) -> None:
        super().__init__(str(error))
        self.response = response or peer_pb2.ReplicateResponse(error=wire_error(error))
