"""What a broker takes from the world besides its event loop: clocks, chance, disks, network, signals.

    the event loop's           monotonic clock (timer.py), tasks, timers, threads (`asyncio.to_thread`)
    the runtime's              all else, below; a client takes a part of it (minilog/net/runtime.py)

A broker process runs on `SYSTEM_BROKER_RUNTIME` (system_runtime.py). The simulator gives a loop on virtual time and a
world of its own: the brokers that it runs are the ones that ship.
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
    from minilog_broker.server.ingress.connection_guard import Looked
    from minilog_broker.server.ingress.connections import ConnectionLimits
    from minilog_broker.server.ingress.server_credentials import ServerFiles
    from minilog_broker.server.ingress.traffic import Flow
    from minilog_broker.server.runtime.descriptors import Descriptors
    from minilog_broker.storage.files import FileSystem


class Guard(Protocol):
    """What keeps the connections of the port within limits."""

    async def watch(self) -> None:
        """Until cancelled. Raises CommandFailed where the process can accept nobody any more."""


class StreamPort(Protocol):
    """A listening port of streams."""

    def start(self) -> None:
        """Accept connections."""

    async def close(self) -> None:
        """Accept no more."""


class BrokerRuntime(Runtime, Protocol):
    """What is taken by name here can be simulated; nothing else of the world is touched."""

    def monotonic_s(self) -> float:
        """The loop's clock, for who is on no loop: the disks' threads."""

    def uptime_s(self) -> float:
        """It goes on while the machine sleeps, where the system has such a clock."""

    def boot_id(self) -> str:
        """Which boot of the kernel this is; empty where the system does not tell."""

    def files(self) -> FileSystem:
        """The file system under the data directory."""

    def disk(self, name: str, failed: Callable[[BaseException], None]) -> Disk:
        """A new queue of work on the disk, with a thread of its own. `failed` is told of an error of our own code."""

    def readers(self, name: str, most: int, failed: Callable[[BaseException], None]) -> Readers:
        """At most so many threads that wait for the disk on behalf of readers."""

    def descriptors(self) -> Descriptors:
        """How many files may be open. Raises CommandFailed where they are too few for a broker."""

    def open_server(self, *, most_connections: int, connection_idle_ms: int) -> grpc.aio.Server:
        """See channels.create_server."""

    def listen(
        self,
        address: Address,
        protocol: Callable[[], StreamConnection],
        files: ServerFiles | None,
        most_connections: int,
    ) -> StreamPort:
        """A port of streams: see StreamListener. Raises OSError where the port is taken."""

    def guard(self, ports: Sequence[tuple[Looked, Flow]], limits: ConnectionLimits) -> Guard:
        """What keeps the connections of the ports of one listener within limits."""

    def set_log_level(self, name: str) -> None:
        """Log messages of at least this level: debug, info, warning or error."""

    def on_stop_signal(self, stop: Callable[[], None]) -> None:
        """Call `stop` on the loop when the process is asked to end."""
