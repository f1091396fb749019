"""One connection of a port of streams, the same for both sides: frames in their order, each way.

Received bytes that the owner has not taken yet are bounded: above `window_bytes` the connection stops reading, and TCP
makes the other side wait. Sent bytes that the other side does not take are bounded, too: the sender awaits `drained`.

The owner takes `FRAMES_AT_ONCE` frames in one step of the loop. Then others have their turn, however small the frames.

    held_bytes      received bytes that the owner has not taken: whole frames, and the part of one
    unsent_bytes    sent bytes that are still in this process
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from minilog.net.stream_frames import FRAME_BYTES, PREAMBLE, Frame, FrameKind, FrameReader, SharedMemory, frame_buffers
from minilog.record_batch.header import Buffer

# If more unsent bytes than the first number are in this process, a sender waits until the second number is left. Small
# messages never wait.
_MOST_UNSENT_BYTES, _RESUMED_BYTES = 256 << 10, 64 << 10
FRAMES_AT_ONCE = 8  # that an owner takes in one step of the loop: a message takes a broker 50 µs, or more


class ConnectionEnded(ConnectionError):
    """The connection is gone: a side closed it, or it broke."""


class StreamConnection(asyncio.BufferedProtocol):
    """One end of a connection.

    It calls `made` when the transport is there, and `ended` once, when the connection is gone. It calls `partly` when
    bytes arrive and complete no frame: then the other side is in the middle of a message."""

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
        self._taken_at_once = 0
        self._frame_waiter: asyncio.Future[None] | None = None
        self._drain_waiters: deque[asyncio.Future[None]] = deque()
        self._is_writing_paused = self._is_reading_paused = False
        self._unreadable: Exception | None = None  # the reason why no further frame can be read
        self._is_gone = False
        self.heard_s = self._loop.time()
        """The time of the last received bytes, by the loop's clock."""

    # -- calls by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is no subclass of it
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
            self._queue(frames)
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

    # -- calls by the owner

    @property
    def is_open(self) -> bool:
        """Whether this end can send frames."""
        return not self._is_gone

    @property
    def held_bytes(self) -> int:
        """The received bytes that the owner has not taken."""
        return self._queued_bytes + self._reader.partial_bytes

    @property
    def partial_bytes(self) -> int:
        """The received bytes of a frame that is not whole yet."""
        return self._reader.partial_bytes

    @property
    def unsent_bytes(self) -> int:
        """The sent bytes that are still in this process."""
        return 0 if self._transport is None or self._is_gone else self._transport.get_write_buffer_size()

    def information(self, name: str) -> Any:
        """The information of the transport under asyncio's name, for example peername or ssl_object."""
        return self._of_transport().get_extra_info(name)

    def take_frames_up_to(self, most_bytes: int) -> None:
        """Change the longest frame that this end accepts, from now on."""
        self._reader.most_bytes = most_bytes

    async def frame(self) -> Frame:
        """The next frame. Raises ConnectionEnded if no frame comes any more, CorruptMessage if bytes are no frame."""
        if self._taken_at_once >= FRAMES_AT_ONCE:
            self._taken_at_once = 0
            await asyncio.sleep(0)  # others have their turn, however many frames wait
        if not self._frames and self._reader.has_more:
            self._queue(self._reader.more())
            if self._reader.failure is not None:
                self._read_no_more(self._reader.failure)
        while not self._frames:
            if self._unreadable is not None:
                raise self._unreadable
            self._frame_waiter = self._loop.create_future()
            await self._frame_waiter
            self._taken_at_once = 0
        self._taken_at_once += 1
        frame = self._frames.popleft()
        self._queued_bytes -= FRAME_BYTES + len(frame.body)
        if self._reader.has_more:
            return frame
        if self._is_reading_paused and self._queued_bytes <= self._window_bytes // 2 and not self._is_closing:
            self._is_reading_paused = False
            self._of_transport().resume_reading()
        return frame

    def send(self, kind: FrameKind, body: Sequence[Buffer] = ()) -> None:
        """Send a frame after the earlier ones. Raises ConnectionEnded."""
        if self._is_closing:
            raise ConnectionEnded("the connection is closed")
        self._of_transport().writelines(frame_buffers(kind, body))

    async def drained(self) -> None:
        """Return when few of the sent bytes are still in this process. Raises ConnectionEnded."""
        while self._is_writing_paused and not self._is_gone:
            waiter = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter
        if self._is_gone:
            raise ConnectionEnded("the connection is closed")

    def read_no_more(self) -> None:
        """Throw away all received bytes, and all that still arrive."""
        self._read_no_more(ConnectionEnded("this side reads no more"))
        self._frames.clear()
        self._queued_bytes = 0
        self._reader = FrameReader(self._memory, 0)
        if self._is_reading_paused and not self._is_closing:
            self._is_reading_paused = False
            self._of_transport().resume_reading()

    def close(self) -> None:
        """Close the connection after all sent bytes have left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once. Unsent bytes are lost."""
        self._end("this side closed the connection")
        if self._transport is not None:
            self._transport.abort()

    # -- inside

    @property
    def _is_closing(self) -> bool:
        """Whether the transport is closing, even before asyncio reports it. uvloop's transport takes no calls then."""
        return self._is_gone or self._transport is None or self._transport.is_closing()

    def _of_transport(self) -> asyncio.Transport:
        assert self._transport is not None, "asyncio makes the connection before anybody uses it"
        return self._transport

    def _queue(self, frames: list[Frame]) -> None:
        """Hold frames for the owner. Stop reading where that is too much, or where an arrival has more of them."""
        self._frames.extend(frames)
        self._queued_bytes += sum(FRAME_BYTES + len(frame.body) for frame in frames)
        is_full = self._queued_bytes > self._window_bytes or self._reader.has_more
        if is_full and not self._is_reading_paused and not self._is_closing:
            self._is_reading_paused = True
            self._of_transport().pause_reading()

    def _end(self, reason: str) -> None:
        """End the connection: no bytes come or go any more."""
        self._is_gone = True
        self._read_no_more(ConnectionEnded(reason))
        self._wake_writers()

    def _read_no_more(self, error: Exception) -> None:
        """Stop reading for this reason. If there is an earlier reason, that one stays."""
        if self._unreadable is None:
            self._unreadable = error
            _wake(self._frame_waiter)

    def _wake_writers(self) -> None:
        while self._drain_waiters:
            _wake(self._drain_waiters.popleft())


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
