"""Two ends of a connection of streams, joined in memory: asyncio's transports without sockets, on the loop that runs.

Bytes go at once, and arrive in the next turn of the loop, in pieces of at most `piece_bytes`. An end that does not read
has `window_bytes` on their way at the most; what is more waits at its sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from minilog.net.stream_connection import StreamConnection
from minilog.net.stream_frames import SharedMemory
from minilog.record_batch.header import Buffer

SHARED = SharedMemory()
Protocol = Callable[[], asyncio.BufferedProtocol]


class Wire(asyncio.Transport):
    """One end. `sent`: all bytes that were written to it."""

    def __init__(self, peer: tuple[str, int] | None, piece_bytes: int, window_bytes: int) -> None:
        super().__init__({"peername": peer})
        self._loop = asyncio.get_running_loop()
        self._piece_bytes, self._window_bytes = piece_bytes, window_bytes
        self._high, self._low = 0, 0
        self._unsent, self._coming = bytearray(), bytearray()
        self._is_reading, self._is_paused, self._is_closing = True, False, False
        self.other: Wire
        self.protocol: asyncio.BufferedProtocol
        self.is_closed = False
        self.sent = bytearray()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Buffer) -> None:
        if self.is_closed or self._is_closing:
            return
        self.sent += data
        self._unsent += data
        self._loop.call_soon(self._push)
        if len(self._unsent) > self._high and not self._is_paused:
            self._is_paused = True
            self.protocol.pause_writing()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._loop.call_soon(self._give)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._loop.call_soon(self._push)

    def abort(self) -> None:
        self._unsent.clear()
        self.close()

    def lose(self, error: Exception | None) -> None:
        """The connection is gone at this end."""
        if not self.is_closed:
            self.is_closed = True
            self._loop.call_soon(self.protocol.connection_lost, error)

    def _push(self) -> None:
        if self.is_closed:
            return
        room = self._window_bytes - len(self.other._coming)
        self.other._coming += self._unsent[:room]
        del self._unsent[:room]
        self._loop.call_soon(self.other._give)
        if len(self._unsent) <= self._low and self._is_paused:
            self._is_paused = False
            self.protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self.lose(None)
            self._loop.call_soon(self.other._ended)

    def _give(self) -> None:
        while self._coming and self._is_reading and not self.is_closed:
            room = memoryview(self.protocol.get_buffer(-1))
            count = min(len(room), len(self._coming), self._piece_bytes)
            room[:count] = self._coming[:count]
            del self._coming[:count]
            self.protocol.buffer_updated(count)
            if self.other._unsent:
                self._loop.call_soon(self.other._push)

    def _ended(self) -> None:
        if self._coming and self._is_reading:
            self._give()
        if not self.is_closed:
            self.protocol.eof_received()
            self.lose(None)


def connection(**given: Any) -> StreamConnection:
    """One that takes all; `given`: what is other than that."""
    return StreamConnection(SHARED, **{"most_frame_bytes": 1 << 30, "window_bytes": 1 << 20, **given})


def joined(
    one: asyncio.BufferedProtocol,
    other: asyncio.BufferedProtocol,
    *,
    piece_bytes: int = 1 << 30,
    window_bytes: int = 1 << 30,
    address: tuple[str, int] | None = ("10.0.0.1", 1),
) -> tuple[Wire, Wire]:
    """Make the connection of two protocols. The first one is at `address`, None: the kernel does not know it any more;
    the other at 10.0.0.2:2."""
    wires = (Wire(("10.0.0.2", 2), piece_bytes, window_bytes), Wire(address, piece_bytes, window_bytes))
    for wire, end, protocol in zip(wires, wires[::-1], (one, other), strict=True):
        wire.other, wire.protocol = end, protocol
    one.connection_made(wires[0])
    other.connection_made(wires[1])
    return wires
