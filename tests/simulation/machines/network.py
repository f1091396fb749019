"""Links between processes: each message takes its latency, order is kept within a direction of a call, as TCP keeps it.

far        brokers are far from each other, and near to their clients, for good
slow       a link takes longer for a while
cut        nothing passes; what was sent waits, and arrives when the cut heals, unless the connection is gone by then
reset      a connection breaks: both ends hear of it
refused    nobody listens for a while: what is connected stays so
killed     the kernel closes a process's connections: the other ends hear of it
power      nobody closes them: the other ends hear nothing, until the machine runs again
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from tests.simulation.machines.wire import Wire
from tests.world.loop import PROCESS, Process, VirtualLoop

WINDOW_BYTES = 1 << 20
LOOPBACK_BYTES_PER_S = 500e6
CUT = "cut"  # what somebody ails from who does not hear all others


class SimulatedNetwork:
    """See the module's text. `listening`: servers by (host, port); `dark`: hosts without power, which refuse nobody;
    `refusing`: hosts that refuse whoever comes; `far_s`: between two processes, by their names; `refused_s`: when a
    host refused a process last, by their names.

    `window_bytes`: what a direction of a call holds; more waits at its writer, as HTTP/2 has it."""

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        latency_s: tuple[float, float],
        wire: Wire,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self.loop = loop
        self.wire = wire
        self.random = chance
        self.latency_s = latency_s
        self.window_bytes = window_bytes
        self.far_s: dict[tuple[str, str], float] = {}
        self.refusing: set[str] = set()
        self.refused_s: dict[tuple[str, str], float] = {}
        self.extra_s: dict[tuple[str, str], float] = {}
        self.listening: dict[tuple[str, int], Any] = {}
        self.dark: set[str] = set()
        self.messages = 0
        self._cut: dict[tuple[str, str], deque[Callable[[], None]]] = {}
        self._healed_s: dict[tuple[str, str], float] = {}
        self._connections: dict[SimulatedConnection, None] = {}
        self._number = 0

    # -- links

    def cut(self, source: str, target: str) -> None:
        """One way."""
        self._cut.setdefault((source, target), deque())

    def heal(self, source: str, target: str) -> None:
        """What waited arrives."""
        self._healed_s[source, target] = self.loop.now_s
        for send in self._cut.pop((source, target), ()):
            send()

    def heal_all(self) -> None:
        """Every cut and every slow link; whoever refused takes connections again."""
        self.extra_s.clear()
        self.refusing.clear()
        for pair in list(self._cut):
            self.heal(*pair)

    def is_cut_off(self, name: str) -> bool:
        """Whether any link of it is cut."""
        return any(name in pair for pair in self._cut)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def joined_since_s(self, one: str, other: str) -> float:
        """Since when nothing between the two is cut; infinity where something is."""
        pairs = ((one, other), (other, one))
        return math.inf if any(pair in self._cut for pair in pairs) else max(self._healed_s.get(p, 0.0) for p in pairs)

    def healed_s(self, name: str) -> float:
        """When a link of it was healed last."""
        return max((healed_s for pair, healed_s in self._healed_s.items() if name in pair), default=0.0)

    def delay_s(self, source: str, target: str, size_bytes: int = 0) -> float:
        """Of one message."""
        self.messages += 1
        drawn = self.random.uniform(*self.latency_s) + self.far_s.get((source, target), 0.0)
        return drawn + self.extra_s.get((source, target), 0.0) + size_bytes / LOOPBACK_BYTES_PER_S

    def carry(self, source: str, target: str, arrive: Callable[[], None], delay_s: float) -> bool:
        """Call `arrive` when it is through, which may be never. The dead say nothing: whether it is under way."""
        sender = PROCESS.get()
        if sender is not None and sender.dead:
            return False

        def through() -> None:
            waiting = self._cut.get((source, target))
            if waiting is None:
                arrive()
            else:
                waiting.append(arrive)

        self.loop.after(delay_s, through)
        return True

    # -- connections

    def connection(self, client: Process, host: str) -> SimulatedConnection:
        self._number += 1
        connection = SimulatedConnection(self, client, host, self._number)
        self._connections[connection] = None
        return connection

    def forget(self, connection: SimulatedConnection) -> None:
        self._connections.pop(connection, None)

    def between(self, one: str, other: str) -> list[SimulatedConnection]:
        return [each for each in self._connections if {each.client.name, each.host} == {one, other}]

    def open_calls(self) -> Counter[tuple[str, str]]:
        """By the client's process and the host that is called."""
        found: Counter[tuple[str, str]] = Counter()
        for each in self._connections:
            found[each.client.name, each.host] += len(each.calls)
        return found

    def reset(self, one: str, other: str) -> None:
        """The connections of the two break."""
        for connection in self.between(one, other):
            connection.broke()

    def reset_all(self, name: str) -> None:
        """Every connection of it, whoever opened it."""
        for connection in list(self._connections):
            if name in (connection.client.name, connection.host):
                connection.broke()

    def process_ended(self, process: Process, *, silently: bool) -> None:
        """Its server is gone, and its connections: the kernel says so, where there is one."""
        for address in [a for a, server in self.listening.items() if server.process is process]:
            del self.listening[address]
        for connection in list(self._connections):
            if process in (connection.client, connection.server):
                connection.end_of(process, silently=silently)

    def powered(self, host: str) -> None:
        """The machine runs: what is sent to a connection of before is refused."""
        self.dark.discard(host)
        for connection in list(self._connections):
            if host in (connection.host, connection.client.name) and connection.half_open:
                connection.broke()


class SimulatedConnection:
    """What a channel has to a server while it lives. Its calls are told when it breaks."""

    def __init__(self, network: SimulatedNetwork, client: Process, host: str, number: int) -> None:
        self.network = network
        self.client = client
        self.host = host
        self.number = number
        self.server: Process | None = None
        self.half_open = False
        self.calls: dict[Any, None] = {}

    def broke(self) -> None:
        """Both ends hear of it, as far as they live."""
        for call in list(self.calls):
            call.connection_lost()

    def end_of(self, process: Process, *, silently: bool) -> None:
        """One of the two is gone."""
        if silently:
            self.half_open = True
            return
        source, target = process.name, self.host if process is self.client else self.client.name
        delay_s = self.network.delay_s(source, target)
        self.network.carry(source, target, self.broke, delay_s)


class SimulatedPipe:
    """One direction of a call: items in their order, bounded by the window; `fail` ends it with an error."""

    def __init__(self, network: SimulatedNetwork, source: str, target: str) -> None:
        self._network = network
        self._source, self._target = source, target
        self._under_way: deque[tuple[Any, int]] = deque()
        self._items: deque[tuple[Any, int]] = deque()
        self._last_s = 0.0
        self._held_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    async def put(self, item: Any, size_bytes: int) -> None:
        """Returns when it is under way; waits while the other side reads nothing."""
        while self._held_bytes > self._network.window_bytes and self._error is None:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
        if self._error is not None:
            raise self._error
        self.send(item, size_bytes)

    def send(self, item: Any, size_bytes: int = 0) -> None:
        """The same without a wait: an end of the stream, a small answer."""
        network = self._network
        self._held_bytes += size_bytes
        now_s = network.loop.now_s
        arrives_s = max(self._last_s, now_s + network.delay_s(self._source, self._target, size_bytes))
        self._last_s = arrives_s
        if network.carry(self._source, self._target, self._arrive, arrives_s - now_s):
            self._under_way.append((item, size_bytes))

    def _arrive(self) -> None:
        """The next of what is under way: timers of one moment run in any order."""
        self._items.append(self._under_way.popleft())
        _wake(self._reader)

    async def get(self) -> Any:
        """The next item; the error where it failed, and all before was taken."""
        while not self._items:
            if self._error is not None:
                raise self._error
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        item, size_bytes = self._items.popleft()
        self._held_bytes -= size_bytes
        if self._held_bytes <= self._network.window_bytes:
            _wake(self._writer)
        return item

    @property
    def error(self) -> BaseException | None:
        return self._error

    def fail(self, error: BaseException) -> None:
        """Nothing comes any more; once."""
        if self._error is None:
            self._error = error
            _wake(self._reader)
            _wake(self._writer)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
