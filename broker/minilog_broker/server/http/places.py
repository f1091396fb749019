"""Who may be connected to the HTTP listener, and who is served: so that strangers who ask for nothing keep nobody out.

    waiting   its request has not come as a whole: at most `most_waiting`, the oldest is closed for a new one
    served    its request has come: at most `most_served`, and PROBE_PLACES more for probes of health alone

A half-sent request counts as none: it costs its sender a few bytes. A pure core: connections are names here.
"""

from __future__ import annotations

from typing import Generic, TypeVar

MOST_WAITING = 32  # at least the backlog: those that come at one time close only those that were there before
MOST_SERVED = 32  # some scrapers
PROBE_PLACES = 8  # probes look every second, and their answers take no time
PROBE_PATHS = frozenset({"/livez", "/readyz"})

Connection = TypeVar("Connection")


class ConnectionPlaces(Generic[Connection]):
    """The places for connections of one HTTP listener: connections that wait, and connections that are served."""

    def __init__(self, most_waiting: int = MOST_WAITING, most_served: int = MOST_SERVED) -> None:
        self._most_waiting = most_waiting
        self._most_served = most_served
        self._waiting: dict[Connection, None] = {}  # in the order in which they came
        self._served: set[Connection] = set()

    def come(self, connection: Connection) -> Connection | None:
        """A new one. The one that is to be closed for it, if any."""
        oldest = next(iter(self._waiting)) if len(self._waiting) >= self._most_waiting else None
        if oldest is not None:
            del self._waiting[oldest]
        self._waiting[connection] = None
        return oldest

    def asks(self, connection: Connection, path: str) -> bool:
        """Its request is there. Whether it is to be served; else it is to be refused."""
        self._waiting.pop(connection, None)
        most = self._most_served + (PROBE_PLACES if path in PROBE_PATHS else 0)
        if len(self._served) >= most:
            return False
        self._served.add(connection)
        return True

    def gone(self, connection: Connection) -> None:
        """It is closed."""
        self._waiting.pop(connection, None)
        self._served.discard(connection)
