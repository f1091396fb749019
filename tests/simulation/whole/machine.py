"""What a simulated machine gives to the broker or the client that runs on it: see
minilog_broker/server/runtime/broker_runtime.py."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from minilog.config import Address
from minilog_broker.server.disk.disk_thread import Disk, DiskCommand, outcome_of
from minilog_broker.server.runtime.broker_runtime import Guard
from minilog_broker.server.runtime.connections import ConnectionLimits
from minilog_broker.server.runtime.descriptors import Descriptors
from minilog_broker.server.runtime.traffic import Flow
from minilog_broker.storage.files import FileSystem
from tests.simulation.disk import Death
from tests.simulation.disk_thread import DiskThread
from tests.simulation.whole.calls import Channel, Server
from tests.simulation.whole.loop import Process
from tests.simulation.whole.network import SimulatedNetwork

if TYPE_CHECKING:
    from tests.simulation.whole.host import SimulatedHost

EPOCH_S = 1_800_000_000
OPEN_FILES = 1_024
IDLE_S = 0.001


class ClientMachine:
    """A client's: it has no disk."""

    def __init__(self, network: SimulatedNetwork, process: Process, chance: random.Random) -> None:
        self.network = network
        self.process = process
        self._chance = chance
        self.wall_offset_us = 0

    def wall_us(self) -> int:
        return int((EPOCH_S + self.network.loop.now_s) * 1e6) + self.wall_offset_us

    def chance(self) -> random.Random:
        return random.Random(self._chance.getrandbits(64))

    def unique_bytes(self, count: int) -> bytes:
        return self._chance.randbytes(count)

    def open_channel(self, address: Address) -> grpc.aio.Channel:
        channel: Any = Channel(self.network, *address)
        return channel  # type: ignore[no-any-return]


class SimulatedMachine(ClientMachine):
    """A broker's: of one life of it."""

    def __init__(self, host: SimulatedHost, process: Process, chance: random.Random) -> None:
        super().__init__(host.network, process, chance)
        self._host = host
        self.wall_offset_us = host.wall_offset_us
        self.stop: Callable[[], None] = _nobody
        self.disks: list[DiskQueue] = []

    def monotonic_s(self) -> float:
        return self.network.loop.time()

    def uptime_s(self) -> float:
        return self.network.loop.time()

    def boot_id(self) -> str:
        return f"{self._host.name}-{self._host.boots}"

    def files(self) -> FileSystem:
        return self._host.disk

    def disk(self, name: str, failed: Callable[[BaseException], None]) -> Disk:
        queue = DiskQueue(name, self._host, self.process, self.chance(), failed)
        self.disks.append(queue)
        return queue

    def descriptors(self) -> Descriptors:
        return Descriptors(OPEN_FILES)

    def open_server(self, *, most_connections: int, connection_idle_ms: int) -> grpc.aio.Server:
        server: Any = _HostServer(self.network, self._host)
        return server  # type: ignore[no-any-return]

    def guard(self, port: int, flow: Flow, limits: ConnectionLimits) -> Guard:
        return _Nobody()

    def on_stop_signal(self, stop: Callable[[], None]) -> None:
        self.stop = stop


def _nobody() -> None:
    """The process does not listen to signals yet."""


class _HostServer(Server):
    """Its host is told when it listens."""

    def __init__(self, network: SimulatedNetwork, host: SimulatedHost) -> None:
        super().__init__(network)
        self._host = host

    async def start(self) -> None:
        await super().start()
        self._host.listens()


class _Nobody:
    """The kernel's buffers are not simulated: nobody has to look at them."""

    async def watch(self) -> None:
        await asyncio.Event().wait()


class DiskQueue:
    """A Disk: the model of the disk's thread, on the time of the process that it belongs to. What it reads takes as
    long as the host's disk needs. `hangs`: a call that does not return."""

    def __init__(
        self,
        name: str,
        host: SimulatedHost,
        process: Process,
        chance: random.Random,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self.hangs = False
        self._host = host
        self._process = process
        self._failed = failed
        self._under_way = 0
        self._held: deque[Callable[[], None]] = deque()
        self._working_since_s: float | None = None  # by what the threads have worked
        self.model = DiskThread(self, chance, host.sync_ms)  # type: ignore[arg-type]

    @property
    def backlog_bytes(self) -> int:
        return self.model.backlog_bytes

    def submit(self, command: DiskCommand) -> None:
        self.model.submit(command)

    async def call(self, work: Callable[[], Any]) -> Any:
        return await outcome_of(self, work)

    async def stop(self) -> None:
        while self._under_way:  # noqa: ASYNC110 - the model knows no event
            await asyncio.sleep(IDLE_S)

    def after(self, delay_ms: float, work: Callable[[Any], None], argument: Any = None) -> None:
        """What the model asks its process for. An event of the thread goes on where the loop is late."""
        delay_s = delay_ms / 1000.0
        if self._working_since_s is not None:
            delay_s += self._process.busy_s() - self._working_since_s

        def run() -> None:
            if self.hangs:
                self._held.append(run)
                return
            self._under_way -= 1
            self._work(work, argument)

        self._under_way += 1
        self._host.network.loop.after(delay_s, run, process=self._process)

    def _work(self, work: Callable[[Any], None], argument: Any) -> None:
        self._working_since_s = self._process.busy_s()
        try:
            work(argument)
        except Death:
            """The host knows: its disk has told it."""
        except Exception as error:
            self._failed(error)
        finally:
            self._working_since_s = None

    def go_on(self) -> None:
        """The call returns."""
        self.hangs = False
        while self._held:
            self._host.network.loop.after(0.0, self._held.popleft(), process=self._process)
