"""Turns on the event loop for work in proportion to a message, so that heartbeats and votes stay timely.

Costly work takes a turn before each piece. One piece runs per turn of the loop, in the order of the requests. Then
everything else has the loop for the time that the piece took. So costly messages have at most half of the loop, however
many there are, and nothing waits for longer than a piece. Work on many items looks at the clock between them
(`WorkPiece.is_over`), and takes another turn after its slice.
"""

from __future__ import annotations

import asyncio

SLICE_S = 0.01  # of a piece that can be cut: a request and its answer take some ten turns of loops


class Turns:
    """The queue for turns on an event loop. One per event loop."""

    def __init__(self) -> None:
        self._free = asyncio.Lock()

    def piece(self) -> WorkPiece:
        """The begin of work that may be short: it needs no turn before its first slice is over."""
        return WorkPiece(self)

    async def take(self) -> WorkPiece:
        """Wait for a turn. The code up to the caller's next wait is the piece."""
        await self._free.acquire()
        piece = WorkPiece(self)
        asyncio.get_running_loop().call_soon(self._piece_ended, piece)
        return piece

    def _piece_ended(self, piece: WorkPiece) -> None:
        took_s = asyncio.get_running_loop().time() - piece.began_s
        asyncio.get_running_loop().call_later(took_s, self._free.release)


class WorkPiece:
    """One piece of work, from its turn on."""

    __slots__ = ("_turns", "began_s")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.began_s = asyncio.get_running_loop().time()

    def is_over(self) -> bool:
        """Whether the piece has had its slice."""
        return asyncio.get_running_loop().time() - self.began_s > SLICE_S

    async def next(self) -> WorkPiece:
        """Another turn, for the next piece of the same work."""
        return await self._turns.take()
