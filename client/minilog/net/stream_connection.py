"""One connection of a port of streams, the same for both sides: frames in their order, each way.

Received bytes that the owner has not taken yet are bounded: above `window_bytes` the connection reads nothing more, and
TCP makes the other side wait. Sent bytes that the other side does not take are bounded by `drained`, which the sender
awaits.

    held_bytes      received bytes that the owner has not taken: whole frames, and the part of one
    unsent_bytes    sent bytes that are still in this process
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from minilog.net.stream_frames import PREAMBLE, Frame, FrameKind, FrameReader, SharedMemory, frame_buffers
from minilog.record_batch.header import Buffer

# A sender waits while more than the first lies in this process, until the second is left. Small messages never wait.
_MOST_UNSENT_BYTES, _RESUMED_BYTES = 256 << 10, 64 << 10


class ConnectionEnded(ConnectionError):
    """The connection is gone: closed by either side, or broken."""


class StreamConnection(asyncio.BufferedProtocol):
    """One end of a connection. It calls `made` when the transport is there, and `ended` once, when the connection is
    gone. It calls `partly` for each arrival of bytes that completes no frame: the other side is in the middle of a
    message."""

    def __init__(
        self,
        shared: SharedMemory,
        *,
        most_frame_bytes: int,
        window_bytes: int,
        made: Callable[[StreamConnection], None] = lambda connection: None,
        ended: Callable[[StreamConnection], None] = lambda connection: None,
        partly: Callable[[], None] = lambda: None,
    ) -> None:
        self._memory = shared
        self._reader = FrameReader(shared, most_frame_bytes)
        self._window_bytes = window_bytes
        self._made, self._ended, self._partly = made, ended, partly
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames: deque[Frame] = deque()
        self._queued_bytes = 0
        self._frame_waiter: asyncio.Future[None] | None = None
        self._drain_waiters: deque[asyncio.Future[None]] = deque()
        self._is_writing_paused = self._is_reading_paused = False
        self._unreadable: Exception | None = None  # why no frame comes any more
        self._is_gone = False
        self.heard_s = self._loop.time()
        """When bytes came last, by the loop's clock."""

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(high=_MOST_UNSENT_BYTES, low=_RESUMED_BYTES)
        self._transport.write(PREAMBLE)
        self._made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_s = self._loop.time()
        if self._unreadable is not None:
            return
        frames = self._reader.filled(nbytes)
        if frames:
            self._frames.extend(frames)
            self._queued_bytes += sum(len(frame.body) for frame in frames)
            if self._queued_bytes > self._window_bytes and not self._is_reading_paused and not self._is_closing:
                self._is_reading_paused = True
                self._of_transport().pause_reading()
            _wake(self._frame_waiter)
        else:
            self._partly()
        if self._reader.failure is not None:
            self._read_no_more(self._reader.failure)

    def eof_received(self) -> bool:
        return False  # the transport closes itself: no side of a stream lives without the other

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._wake_writers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the other side closed the connection" if exc is None else str(exc))
        self._ended(self)

    # -- what its owner calls

    @property
    def is_open(self) -> bool:
        """Whether frames can go."""
        return not self._is_gone

    @property
    def held_bytes(self) -> int:
        """Bytes that came and nobody has taken."""
        return self._queued_bytes + self._reader.partial_bytes

    @property
    def partial_bytes(self) -> int:
        """Those of a frame that came in part."""
        return self._reader.partial_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were sent and lie in this process."""
        return 0 if self._transport is None or self._is_gone else self._transport.get_write_buffer_size()

    def information(self, name: str) -> Any:
        """Of the transport, as asyncio names it: peername, ssl_object."""
        return self._of_transport().get_extra_info(name)

    def take_frames_up_to(self, most_bytes: int) -> None:
        """From now on longer frames come, or shorter ones alone."""
        self._reader.most_bytes = most_bytes

    async def frame(self) -> Frame:
        """The next frame. Raises ConnectionEnded where none comes any more, CorruptMessage for what is none."""
        while not self._frames:
            if self._unreadable is not None:
                raise self._unreadable
            self._frame_waiter = self._loop.create_future()
            await self._frame_waiter
        frame = self._frames.popleft()
        self._queued_bytes -= len(frame.body)
        if self._is_reading_paused and self._queued_bytes <= self._window_bytes // 2 and not self._is_closing:
            self._is_reading_paused = False
            self._of_transport().resume_reading()
        return frame

    def send(self, kind: FrameKind, body: Sequence[Buffer] = ()) -> None:
        """Send a frame after those before it. Raises ConnectionEnded."""
        if self._is_closing:
            raise ConnectionEnded("the connection is closed")
        self._of_transport().writelines(frame_buffers(kind, body))

    async def drained(self) -> None:
        """Return when little of what was sent lies in this process. Raises ConnectionEnded."""
        while self._is_writing_paused and not self._is_gone:
            waiter = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter
        if self._is_gone:
            raise ConnectionEnded("the connection is closed")

    def read_no_more(self) -> None:
        """What came and comes is thrown away."""
        self._read_no_more(ConnectionEnded("this side reads no more"))
        self._frames.clear()
        self._queued_bytes = 0
        self._reader = FrameReader(self._memory, 0)
        if self._is_reading_paused and not self._is_closing:
            self._is_reading_paused = False
            self._of_transport().resume_reading()

    def close(self) -> None:
        """Close it when all that was sent has gone."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once: what was not sent yet is lost."""
        self._end("this side closed the connection")
        if self._transport is not None:
            self._transport.abort()

    # -- inside

    @property
    def _is_closing(self) -> bool:
        """Whether the transport may be gone, also before this side hears of it: uvloop's takes no call then."""
        return self._is_gone or self._transport is None or self._transport.is_closing()

    def _of_transport(self) -> asyncio.Transport:
        assert self._transport is not None, "asyncio makes the connection before anybody uses it"
        return self._transport

    def _end(self, reason: str) -> None:
        """Nothing comes or goes any more."""
        self._is_gone = True
        self._read_no_more(ConnectionEnded(reason))
        self._wake_writers()

    def _read_no_more(self, error: Exception) -> None:
        """The first reason counts."""
        if self._unreadable is None:
            self._unreadable = error
            _wake(self._frame_waiter)

    def _wake_writers(self) -> None:
        while self._drain_waiters:
            _wake(self._drain_waiters.popleft())


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
