"""What a simulated machine gives to the broker or the client that runs on it: see
minilog_broker/server/runtime/broker_runtime.py."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from minilog.addresses import Address
from minilog.net.stream_connection import StreamConnection
from minilog.security.channel_security import ChannelSecurity
from minilog_broker.server.disk.disk_thread import Disk
from minilog_broker.server.disk.reader_threads import Readers
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.connection_guard import ConnectionGuard, GuardedPort
from minilog_broker.server.ingress.transport.connections import ConnectionLimits, Connections
from minilog_broker.server.ingress.transport.server_credentials import ServerFiles
from minilog_broker.server.runtime.broker_runtime import Guard, StreamPort
from minilog_broker.server.runtime.descriptors import Descriptors
from minilog_broker.storage.files import FileSystem
from tests.simulation.machines.byte_connections import SimulatedStreamPort, connect
from tests.simulation.machines.calls import Channel, Server
from tests.simulation.machines.disk_queue import DiskQueue
from tests.simulation.machines.identities import certificate_of, server_name_of
from tests.simulation.machines.network import SimulatedNetwork
from tests.simulation.machines.readers import SimulatedReaders
from tests.world.loop import Process

if TYPE_CHECKING:
    from tests.simulation.machines.host import SimulatedHost

EPOCH_S = 1_800_000_000
OPEN_FILES = 1_024


class ClientMachine:
    """A client's: it has no disk, and of brokers' certificates none."""

    certificate: str | None = None

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

    def open_channel(self, address: Address, security: ChannelSecurity | None = None) -> grpc.aio.Channel:
        channel: Any = Channel(self.network, *address, security, self.certificate)
        return channel  # type: ignore[no-any-return]

    async def connect(
        self, address: Address, protocol: Callable[[], StreamConnection], security: ChannelSecurity | None = None
    ) -> StreamConnection:
        return await connect(self.network, address, protocol, security, self.certificate)


class SimulatedMachine(ClientMachine):
    """A broker's: of one life of it."""

    def __init__(self, host: SimulatedHost, process: Process, chance: random.Random) -> None:
        super().__init__(host.network, process, chance)
        self._host = host
        self.wall_offset_us = host.wall_offset_us
        self.certificate = certificate_of(host.number)
        self.stop: Callable[[], None] = _nobody
        self.log_level: str | None = None  # None: as it was started
        self.disks: list[DiskQueue] = []
        self.readings: list[SimulatedReaders] = []

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

    def readers(self, name: str, most: int, failed: Callable[[BaseException], None]) -> Readers:
        chance = random.Random(f"{name} of life {self._host.lives} of {self._host.name} in {self._host.read_seed}")
        readers = SimulatedReaders(name, most, self._host, self.process, chance, failed)
        self.readings.append(readers)
        return readers

    def descriptors(self) -> Descriptors:
        return Descriptors(OPEN_FILES)

    def open_server(self, *, most_connections: int, connection_idle_ms: int) -> grpc.aio.Server:
        server: Any = _HostServer(self.network, self._host)
        return server  # type: ignore[no-any-return]

    def listen(
        self,
        address: Address,
        protocol: Callable[[], StreamConnection],
        files: ServerFiles | None,
        most_connections: int,
    ) -> StreamPort:
        name = server_name_of(self._host.number)
        return SimulatedStreamPort(self.network, address, protocol, name, is_secured=files is not None)

    def guard(self, ports: Sequence[tuple[GuardedPort, Flow]], limits: ConnectionLimits) -> Guard:
        """The kernel's connections are not simulated."""
        return ConnectionGuard(
            [each for each in ports if not isinstance(each[0], Connections)], limits, _no_memory, lambda: 0.0
        )

    def set_log_level(self, name: str) -> None:
        """Traces have all that is logged; which level the broker was given is judged."""
        self.log_level = name

    def on_stop_signal(self, stop: Callable[[], None]) -> None:
        self.stop = stop


def _nobody() -> None:
    """The process does not listen to signals yet."""


class _HostServer(Server):
    """Its host is told when it listens."""

    def __init__(self, network: SimulatedNetwork, host: SimulatedHost) -> None:
        super().__init__(network, server_name_of(host.number))
        self._host = host

    async def start(self) -> None:
        await super().start()
        self._host.listens()


def _no_memory() -> int:
    """That of all simulated processes together says nothing of one."""
    return 0
