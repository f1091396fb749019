"""The inputs of a broker from the world beside its event loop: clocks, chance, disks, network, signals.

    the event loop's           monotonic clock (timer.py), tasks, timers, threads (`asyncio.to_thread`)
    the runtime's              all else, below; a client takes a part of it (minilog/net/runtime.py)

A broker process runs on `SYSTEM_BROKER_RUNTIME` (system_runtime.py). The simulator gives a loop on virtual time and a
world of its own. It runs the brokers as they ship.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from minilog.net.runtime import Runtime

if TYPE_CHECKING:
    import grpc

    from minilog.addresses import Address
    from minilog.net.stream_connection import StreamConnection
    from minilog_broker.server.disk.disk_thread import Disk
    from minilog_broker.server.disk.reader_threads import Readers
    from minilog_broker.server.ingress.rules.traffic import Flow
    from minilog_broker.server.ingress.transport.connection_guard import GuardedPort
    from minilog_broker.server.ingress.transport.connections import ConnectionLimits
    from minilog_broker.server.ingress.transport.server_credentials import ServerFiles
    from minilog_broker.server.runtime.descriptors import Descriptors
    from minilog_broker.storage.files import FileSystem


class Guard(Protocol):
    """The guard that keeps the connections of a port within limits."""

    async def watch(self) -> None:
        """Watch until cancelled. Raises CommandFailed where the process can accept no more connections."""


class StreamPort(Protocol):
    """A listening port of streams."""

    def start(self) -> None:
        """Accept connections."""

    async def close(self) -> None:
        """Accept no more connections."""


class BrokerRuntime(Runtime, Protocol):
    """The world of a broker. All of it can be simulated, and a broker touches nothing else of the world."""

    def monotonic_s(self) -> float:
        """The loop's clock, for threads without a loop, such as the disks'."""

    def uptime_s(self) -> float:
        """A clock that goes on while the machine sleeps, where the system has one."""

    def boot_id(self) -> str:
        """The id of the kernel's boot, empty where the system has none."""

    def files(self) -> FileSystem:
        """The file system under the data directory."""

    def disk(self, name: str, failed: Callable[[BaseException], None]) -> Disk:
        """A new queue of work on the disk, with a thread of its own. `failed` gets an error of our own code."""

    def readers(self, name: str, most: int, failed: Callable[[BaseException], None]) -> Readers:
        """At most `most` threads that wait for the disk on behalf of readers."""

    def descriptors(self) -> Descriptors:
        """The number of files that may be open. Raises CommandFailed where it is too low for a broker."""

    def open_server(self, *, most_connections: int, connection_idle_ms: int) -> grpc.aio.Server:
        """A gRPC server (channels.create_server)."""

    def listen(
        self,
        address: Address,
        protocol: Callable[[], StreamConnection],
        files: ServerFiles | None,
        most_connections: int,
    ) -> StreamPort:
        """A port of streams (StreamListener). Raises OSError where the port is taken."""

    def guard(self, ports: Sequence[tuple[GuardedPort, Flow]], limits: ConnectionLimits) -> Guard:
        """The guard that keeps the connections of one listener's ports within limits."""

    def set_log_level(self, name: str) -> None:
        """Log messages of at least this level: debug, info, warning or error."""

    def on_stop_signal(self, stop: Callable[[], None]) -> None:
        """Call `stop` on the loop when a signal asks the process to end."""
