"""The exchanges of each host: their number at a time, and the length of failed ones.

A client that guesses passwords opens many exchanges side by side, and gives each up as soon as no answer comes. So a
failed exchange keeps its place for a while, whether its client waits or not. A host has PLACES of them, and can guess
as often as they become free.

Behind a proxy many clients are one host. So failures count by host and name. A name without failures goes first, and
names with failures never get the KEPT places for the others. So a job with an old password locks no one out. Names made
up for each guess have no failures, and honest clients wait among them for a new session. Their existing sessions go on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from minilog.errors import BrokerNotAvailable

PLACES = 8
KEPT = 4  # of the places, for names without failures
MOST_WAITING = 200  # exchanges of one host for names with failures, and as many for names without
MOST_HOSTS = 10_000
MOST_NAMES = 100  # names with failures of one host; the one with the oldest failure is dropped first
LONGEST_NAME = 255
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # after the first failure of a host, the second, ...
FORGIVEN_S = 60.0


@dataclass(slots=True)
class _Host:
    held: int = 0
    held_by_failing: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    waiting_failing: deque[asyncio.Future[None]] = field(default_factory=deque)
    failures: int = 0
    failed_at_s: float = float("-inf")
    names: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """The names with failures, and the time of the last one."""

    @property
    def is_idle(self) -> bool:
        return not (self.held or self.waiting or self.waiting_failing)

    def failed(self, now_s: float) -> float:
        """Note a failure, and give the time for which its place is kept."""
        self.failures = self.failures + 1 if now_s - self.failed_at_s < FORGIVEN_S else 1
        self.failed_at_s = now_s
        return PAUSES_S[min(self.failures, len(PAUSES_S)) - 1]

    def remember(self, name: str, now_s: float) -> None:
        """Note that an exchange for a name has failed."""
        self.names[name] = now_s
        self.names.move_to_end(name)
        if len(self.names) > MOST_NAMES:
            self.names.popitem(last=False)

    def is_failing(self, name: str, now_s: float) -> bool:
        return now_s - self.names.get(name, float("-inf")) < FORGIVEN_S

    def has_room(self, *, is_failing: bool) -> bool:
        return self.held < PLACES and not (is_failing and self.held_by_failing >= PLACES - KEPT)

    def let_in(self) -> None:
        """Give places to as many waiting exchanges as there is room for, names without failures first."""
        for line, is_failing in ((self.waiting, False), (self.waiting_failing, True)):
            while line and self.has_room(is_failing=is_failing):
                first = line.popleft()
                if not first.done():
                    self.take(is_failing=is_failing)
                    first.set_result(None)

    def take(self, *, is_failing: bool) -> None:
        self.held += 1
        self.held_by_failing += is_failing

    def free(self, *, is_failing: bool) -> None:
        self.held -= 1
        self.held_by_failing -= is_failing
        self.let_in()


@dataclass(slots=True)
class Place:
    """The place of one exchange. `succeeded` or `failed` ends it."""

    _host: _Host
    _name: str
    _is_failing: bool

    def succeeded(self) -> None:
        """Free the place, and drop the name's failures."""
        self._host.names.pop(self._name, None)
        self._host.free(is_failing=self._is_failing)

    def failed(self) -> float:
        """Free the place after a pause. The answer is the pause in seconds."""
        loop, host = asyncio.get_running_loop(), self._host
        host.remember(self._name, loop.time())
        if not self._is_failing:
            self._is_failing = True
            host.held_by_failing += 1
        pause_s = host.failed(loop.time())
        loop.call_later(pause_s, lambda: host.free(is_failing=True))
        return pause_s


class Attempts:
    """The exchanges of one broker, on its event loop."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    async def begin(self, host: str, name: str = "") -> Place:
        """Wait for a place. `name`: the name that the client gives. Raises BrokerNotAvailable where too many wait
        already."""
        places, name = self._host(host), name[:LONGEST_NAME]
        is_failing = places.is_failing(name, asyncio.get_running_loop().time())
        line = places.waiting_failing if is_failing else places.waiting
        if line or not places.has_room(is_failing=is_failing):
            await self._wait(host, places, line, is_failing=is_failing)
        else:
            places.take(is_failing=is_failing)
        return Place(places, name, is_failing)

    async def _wait(self, host: str, places: _Host, line: deque[asyncio.Future[None]], *, is_failing: bool) -> None:
        if len(line) >= MOST_WAITING:
            raise BrokerNotAvailable(f"{MOST_WAITING} logins from {host} are waiting: try again")
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():  # the place came with the cancellation
                places.free(is_failing=is_failing)
            elif waiting in line:
                line.remove(waiting)
            raise

    def _host(self, host: str) -> _Host:
        places = self._hosts.get(host)
        if places is None:
            if len(self._hosts) >= MOST_HOSTS:
                idle = (name for name, entry in self._hosts.items() if entry.is_idle)
                self._hosts.pop(next(idle, ""), None)
            places = self._hosts[host] = _Host()
        return places
