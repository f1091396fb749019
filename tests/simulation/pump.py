"""One side of a stream and the core behind it: as server/clients/streams.py, a message is taken from the core when it
said that it is ready and the stream has room. Each is an event, so that anything may come between two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.process import Process
from tests.simulation.stream import End

HOP_MS = 0.02  # one turn of an event loop


class Pump:
    """See the module's text. `take` returns the next message, or None."""

    __slots__ = ("_end", "_process", "_scheduled", "_take")

    def __init__(self, process: Process, end: End, take: Callable[[], Any | None]) -> None:
        self._process = process
        self._end = end
        self._take = take
        self._scheduled = False
        end.on_room = self.wake

    def wake(self, _: Any = None) -> None:
        """There may be something to say."""
        if not self._scheduled and not self._end.closed:
            self._scheduled = True
            self._process.after(HOP_MS, self._step)

    def _step(self, _: Any) -> None:
        self._scheduled = False
        if self._end.closed or not self._end.has_room:
            return
        message = self._take()
        if message is not None:
            self._end.send(message)
            self.wake()
