"""Exchanges of each host: how many at a time, and how long a failed one takes.

Who guesses passwords opens many exchanges side by side, and gives each up as soon as no answer comes. So a failed one
keeps its place for a while, whether its client waits or not: a host has PLACES of them, and guesses as often as they
become free. Honest clients behind the same address wait with him for a new session; the sessions that they have go on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from minilog.errors import AuthenticationFailed

PLACES = 8
MOST_WAITING = 200  # of one host
MOST_HOSTS = 10_000
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # after the first failure of a host, the second, ...
FORGIVEN_S = 60.0


@dataclass(slots=True)
class _Host:
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PLACES))
    held: int = 0
    waiting: int = 0
    failures: int = 0
    failed_at_s: float = float("-inf")

    def failed(self, now_s: float) -> float:
        """Another failure: how long its place is kept."""
        self.failures = self.failures + 1 if now_s - self.failed_at_s < FORGIVEN_S else 1
        self.failed_at_s = now_s
        return PAUSES_S[min(self.failures, len(PAUSES_S)) - 1]


class Attempts:
    """Of one broker, on its event loop."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    async def begin(self, host: str) -> None:
        """Wait for a place. Raises AuthenticationFailed where too many wait already. To be ended by `succeeded` or
        `failed`."""
        found = self._host(host)
        if found.waiting >= MOST_WAITING:
            raise AuthenticationFailed(f"{MOST_WAITING} exchanges of {host} are waiting")
        found.waiting += 1
        try:
            await found.places.acquire()
        finally:
            found.waiting -= 1
        found.held += 1

    def succeeded(self, host: str) -> None:
        """The place is free."""
        self._free(self._hosts[host])

    def failed(self, host: str) -> float:
        """The place is free after a pause, which is told in seconds."""
        loop, found = asyncio.get_running_loop(), self._hosts[host]
        pause_s = found.failed(loop.time())
        loop.call_later(pause_s, self._free, found)
        return pause_s

    @staticmethod
    def _free(found: _Host) -> None:
        found.held -= 1
        found.places.release()

    def _host(self, host: str) -> _Host:
        found = self._hosts.get(host)
        if found is None:
            if len(self._hosts) >= MOST_HOSTS:
                idle = (name for name, each in self._hosts.items() if each.held == each.waiting == 0)
                self._hosts.pop(next(idle, ""), None)
            found = self._hosts[host] = _Host()
        return found
