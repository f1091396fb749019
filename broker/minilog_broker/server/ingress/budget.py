"""Bytes of clients' messages that this process may hold: one budget for each direction.

What is spent is waited for: who composes or reads a message awaits `room` first. One message may go above it, for its
size is known when it is there. Brokers take without asking, so that clients never starve replication: what they hold is
bounded by their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Budget:
    """The bytes of messages in one direction that a broker may hold for its clients.

    Lives on the event loop. `elsewhere`: bytes in other hands that count too.
    """

    def __init__(self, limit_bytes: int, elsewhere: Callable[[], int] = lambda: 0) -> None:
        self.limit_bytes = limit_bytes
        self._elsewhere = elsewhere
        self._taken_bytes = 0
        self._freed = asyncio.Event()
        self.waiting = 0
        """How many wait for room now."""

    @property
    def held_bytes(self) -> int:
        return self._taken_bytes + self._elsewhere()

    @property
    def is_spent(self) -> bool:
        return self.held_bytes >= self.limit_bytes

    async def room(self) -> None:
        """Return when less than the limit is held."""
        if not self.is_spent:
            return
        self.waiting += 1
        try:
            while self.is_spent:
                self._freed.clear()
                await self._freed.wait()
        finally:
            self.waiting -= 1

    def look(self) -> None:
        """What others hold may have changed: who waits looks again."""
        if self.waiting:
            self._freed.set()

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Hold so many bytes for as long as the block runs."""
        self._taken_bytes += size_bytes
        try:
            yield
        finally:
            self._taken_bytes -= size_bytes
            self._freed.set()
