"""The order in which new coordinators read their logs: one piece at a time, and first those that somebody asks for.

A fail-over gives a broker many partitions at once. A client whose coordinator is among them waits for that log alone,
and not for those before it. Among the wanted loads, and among the others, the first one goes on until it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from minilog.partition_key import PartitionKey


@dataclass(eq=False, slots=True)
class Load:
    """The reading of one log. `is_wanted`: a call has come for its coordinator. `turn`: what it waits for."""

    key: PartitionKey
    is_wanted: bool = False
    turn: asyncio.Future[None] | None = None


class LoadingTurns:
    """The turns of one broker's coordinators."""

    def __init__(self) -> None:
        self._loads: list[Load] = []  # at most one for each partition of an internal topic, and one that ends
        self._running: Load | None = None

    def want(self, key: PartitionKey) -> None:
        """A call has come for this coordinator."""
        for load in self._loads:
            load.is_wanted |= load.key == key

    @contextlib.contextmanager
    def begun(self, key: PartitionKey) -> Iterator[Load]:
        """One load, from before its first turn to its end."""
        load = Load(key)
        self._loads.append(load)
        try:
            yield load
        finally:
            self._loads.remove(load)
            if self._running is load:
                self._pass_on()

    async def next(self, load: Load) -> None:
        """Wait for the turn of the load's next piece. Its turn before ends with this."""
        load.turn = asyncio.get_running_loop().create_future()
        if self._running is None or self._running is load:
            self._pass_on()
        await load.turn

    def _pass_on(self) -> None:
        waiting = [load for load in self._loads if load.turn is not None and not load.turn.done()]
        self._running = min(waiting, key=lambda load: not load.is_wanted, default=None)  # the first of its kind
        if self._running is not None:
            assert self._running.turn is not None
            self._running.turn.set_result(None)
