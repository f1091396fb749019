"""The guard keeps the demands of connections within this process's limits, and ends the process before it goes deaf.

Every 100 ms the guard reads one number, the resident memory. It looks at the connections (connections.py) when the
memory has grown, when a client waits for room, and once a second. A look reads each descriptor, also of files. With ten
thousand of them it takes 20 ms, so a long look makes the next one later. A look needs a descriptor. Where there is none
for some seconds, the broker could not accept a connection either. gRPC does not report that, so the look is the probe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from minilog_broker.failure import CommandFailed
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.connections import Connection, ConnectionLimits, Cut, to_cut
from minilog_broker.server.runtime.descriptors import OUT_OF_FILES_WORDS
from minilog_broker.storage.open_files import OUT_OF_FILES

logger = structlog.get_logger()

INTERVAL_S = 0.1
LOOK_EVERY_S = 1.0
# The pause after a look, as a multiple of its CPU time, and the longest pause in seconds. The first line counts where
# something asks for a look, the second where not: a port may take 0.2 % of a core for idle connections.
LOOKS, MOST_S = 10, 1.0
IDLE_LOOKS, IDLE_MOST_S = 500, 5.0
GROWTH_BYTES = 16 << 20  # growth of the resident memory that causes a look at the sockets
DEAF_S = 5.0
_STATM, _STATM_BYTES = "/proc/self/statm", 256


class GuardedPort(Protocol):
    """The connections of one port."""

    def look(self, now_s: float) -> list[Connection]:
        """All connections. Raises OSError where the process has no descriptor left for a look."""

    def cut(self, connection: Connection) -> bool:
        """End one. False where it has ended by itself."""


class ConnectionGuard:
    """The guard of one listener. `ports`: for each of its ports, the connections and their traffic. `resident`: the
    bytes of this process in memory. `cpu_s`: the CPU time of this thread. A look in which the thread waited
    for a core does not count as a long one.

    `watch` runs until cancelled. It raises CommandFailed where the process has gone deaf.
    """

    def __init__(
        self,
        ports: Sequence[tuple[GuardedPort, Flow]],
        limits: ConnectionLimits,
        resident: Callable[[], int],
        cpu_s: Callable[[], float],
    ) -> None:
        self._ports = [_GuardedPort(connections, flow, limits, cpu_s) for connections, flow in ports]
        self._resident = resident

    async def watch(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(INTERVAL_S)
            resident_bytes = self._resident()
            for port in self._ports:
                port.look_where_due(clock(), resident_bytes)


class _GuardedPort:
    """One of the ports, and the time of its last look."""

    def __init__(
        self, connections: GuardedPort, flow: Flow, limits: ConnectionLimits, cpu_s: Callable[[], float]
    ) -> None:
        self._connections = connections
        self._flow = flow
        self._limits = limits
        self._cpu_s = cpu_s
        self._looked_s = float("-inf")
        self._look_took_s = 0.0
        self._resident_bytes = 0
        self._out_since_s: float | None = None
        self._silenced: dict[str, float] = {}  # reasons, and the end of the time without a further line

    def look_where_due(self, now_s: float, resident_bytes: int) -> None:
        self._flow.requests.look()
        waited_for = self._flow.responses.waiting > 0
        grown = resident_bytes - self._resident_bytes >= GROWTH_BYTES
        if now_s >= self._looked_s + pause_s(self._look_took_s, is_asked_for=grown or waited_for):
            before_s = self._cpu_s()
            self._look(now_s, waited_for=waited_for)
            self._looked_s, self._resident_bytes = now_s, resident_bytes
            self._look_took_s = self._cpu_s() - before_s

    def _look(self, now_s: float, *, waited_for: bool) -> None:
        try:
            connections = self._connections.look(now_s)
        except OSError as error:
            if error.errno not in OUT_OF_FILES:
                raise
            self._out_of_descriptors(now_s)
            return
        self._out_since_s = None
        for cut in to_cut(connections, self._limits, room_is_waited_for=waited_for):
            if self._connections.cut(cut.connection):
                self._log(cut, now_s)

    def _out_of_descriptors(self, now_s: float) -> None:
        since_s = self._out_since_s = now_s if self._out_since_s is None else self._out_since_s
        if now_s - since_s >= DEAF_S:
            raise CommandFailed(f"the broker could accept no connection for {DEAF_S:.0f} s: {OUT_OF_FILES_WORDS}")

    def _log(self, cut: Cut, now_s: float) -> None:
        if now_s < self._silenced.get(cut.reason, float("-inf")):
            return
        self._silenced[cut.reason] = now_s + LOOK_EVERY_S
        one = cut.connection
        logger.warning(
            "the broker cut a connection that exceeded a limit: the client may connect again. Find the clients that "
            "open many connections or do not read their answers, or raise the limit",
            limit=cut.reason,
            connection=one.peer,
            half_received_bytes=one.half_received_bytes,
            unsent_bytes=one.unsent_bytes,
            silent_ms=round(one.silent_ms),
        )


def pause_s(look_took_s: float, *, is_asked_for: bool) -> float:
    """The pause after a look."""
    if is_asked_for:
        return min(LOOKS * look_took_s, MOST_S)
    return max(LOOK_EVERY_S, min(IDLE_LOOKS * look_took_s, IDLE_MOST_S))


class ResidentMemory:
    """The bytes of this process in memory. 0 on a system without the number, where the guard looks at the sockets by
    time.

    The file stays open: opening it ten times a second took a tenth of an idle broker's CPU time.
    """

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> int:
        if self._descriptor is None:
            return 0
        return int(os.pread(self._descriptor, _STATM_BYTES, 0).split()[1]) * self._page_bytes
