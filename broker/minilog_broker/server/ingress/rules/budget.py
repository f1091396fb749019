"""The bytes of clients' messages that this process may hold: one budget for each direction.

A task that reads or composes a message awaits `room` first. One message may exceed the budget, for its size is known
when it is there. Brokers take without waiting, so that clients never starve replication. The number of brokers bounds
their bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Budget:
    """The bytes of messages in one direction that a broker may hold for its clients.

    Lives on the event loop. `elsewhere`: further bytes that count, in other parts of the broker.
    """

    def __init__(self, limit_bytes: int, elsewhere: Callable[[], int] = lambda: 0) -> None:
        self.limit_bytes = limit_bytes
        self._elsewhere = elsewhere
        self._taken_bytes = 0
        self._freed = asyncio.Event()
        self.waiting = 0
        """The number of tasks that wait for room."""

    @property
    def held_bytes(self) -> int:
        return self._taken_bytes + self._elsewhere()

    @property
    def is_spent(self) -> bool:
        return self.held_bytes >= self.limit_bytes

    async def room(self) -> None:
        """Return when the held bytes are below the limit."""
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
        """Have waiting tasks look again, since the bytes elsewhere may have changed."""
        if self.waiting:
            self._freed.set()

    def holding(self, size_bytes: int) -> Holding:
        """Hold this number of bytes during the block."""
        return Holding(self, size_bytes)

    def take(self, size_bytes: int) -> None:
        """Hold this number of bytes until `give`."""
        self._taken_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        self._taken_bytes -= size_bytes
        self._freed.set()


class Holding:
    """Bytes of a budget, held during a block. There are two for each message, and a generator costs several times as
    much."""

    __slots__ = ("_budget", "_size_bytes")

    def __init__(self, budget: Budget, size_bytes: int) -> None:
        self._budget, self._size_bytes = budget, size_bytes

    def __enter__(self) -> None:
        self._budget.take(self._size_bytes)

    def __exit__(self, *_: object) -> None:
        self._budget.give(self._size_bytes)
