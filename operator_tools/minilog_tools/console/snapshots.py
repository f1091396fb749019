"""One look at the cluster for many viewers. A viewer's request reads a new snapshot where the last one is too old.

So the console reads nothing while it has no viewer, and ten viewers cost as much as one. A snapshot that took much CPU
time lives longer: AGE_PER_CPU times that time. This bounds the cost of viewers, whatever the size of the cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

YOUNGEST_S = 2.0  # a browser asks every 5 s
AGE_PER_CPU = 100.0  # the console takes 1 % of a core for one kind of snapshot, and the brokers about as much
MOST = 64  # of one viewer: the one that was asked for least recently makes room

Value = TypeVar("Value")


@dataclass(slots=True)
class _Entry:
    task: asyncio.Task[Any]
    good_until_s: float | None  # None while it is read


class Snapshots:
    """The last answers of one view's cluster, by name.

    An error is kept as an answer is: viewers of a cluster that is down do not ask it more often.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu_clock: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._entries: dict[Hashable, _Entry] = {}

    async def get(self, name: Hashable, read: Callable[[], Awaitable[Value]]) -> Value:
        """The snapshot of this name: the last one, the one that is being read, or a new one. Raises as `read` does."""
        entry = self._entries.pop(name, None)
        if entry is None or (entry.good_until_s is not None and self._clock() >= entry.good_until_s):
            entry = self._begin(read)
        self._entries[name] = entry
        self._make_room()
        value: Value = await asyncio.shield(entry.task)  # others wait for it, too, when one browser leaves
        return value

    def forget(self) -> None:
        """After a change: the next look is a new one."""
        for name, entry in list(self._entries.items()):
            if entry.task.done():
                del self._entries[name]

    async def close(self) -> None:
        tasks = [entry.task for entry in self._entries.values()]
        self._entries.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_reading(self) -> bool:
        return any(not entry.task.done() for entry in self._entries.values())

    def _begin(self, read: Callable[[], Awaitable[Any]]) -> _Entry:
        began_s = self._cpu_clock()

        async def look() -> Any:
            try:
                return await read()
            finally:
                entry.good_until_s = self._clock() + max(YOUNGEST_S, AGE_PER_CPU * (self._cpu_clock() - began_s))

        entry = _Entry(asyncio.get_running_loop().create_task(look()), None)
        entry.task.add_done_callback(_take_error)
        return entry

    def _make_room(self) -> None:
        for name in list(self._entries):
            if len(self._entries) <= MOST:
                return
            if self._entries[name].task.done():
                del self._entries[name]


def _take_error(task: asyncio.Task[Any]) -> None:
    """Retrieve the error, which the viewers that wait have. Else the loop complains where all of them have left."""
    if not task.cancelled():
        task.exception()
