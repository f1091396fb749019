"""What a broker takes from the world besides its event loop: clocks, chance, disks, network, signals.

    the event loop's           monotonic clock (timer.py), tasks, timers, threads (`asyncio.to_thread`)
    the runtime's              all else, below; a client takes a part of it (minilog/net/runtime.py)

A broker process runs on `SYSTEM_BROKER_RUNTIME`. The simulator gives a loop on virtual time and a world of its own: the
brokers that it runs are the ones that ship.
"""

from __future__ import annotations

import asyncio
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Protocol

import grpc

from minilog.config import Address
from minilog.net.runtime import Runtime, SystemRuntime
from minilog.security.channel_security import ChannelSecurity
from minilog_broker.server.clients.channels import create_server, open_channel
from minilog_broker.server.disk.disk_thread import Disk, DiskThread
from minilog_broker.server.runtime.connection_guard import ConnectionGuard
from minilog_broker.server.runtime.connections import ConnectionLimits, Connections
from minilog_broker.server.runtime.descriptors import Descriptors, raise_limit
from minilog_broker.server.runtime.observer import UNOBSERVED, Observer
from minilog_broker.server.runtime.traffic import Flow
from minilog_broker.storage.files import FileSystem, OsFileSystem

_BOOT_ID_FILE = pathlib.Path("/proc/sys/kernel/random/boot_id")


class Guard(Protocol):
    """What keeps the connections of the port within limits."""

    async def watch(self) -> None:
        """Until cancelled. Raises CommandFailed where the process can accept nobody any more."""


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

    def descriptors(self) -> Descriptors:
        """How many files may be open. Raises CommandFailed where they are too few for a broker."""

    def open_server(self, *, most_connections: int, connection_idle_ms: int) -> grpc.aio.Server:
        """See channels.create_server."""

    def guard(self, port: int, flow: Flow, limits: ConnectionLimits) -> Guard:
        """Who watches the connections of `port`."""

    def on_stop_signal(self, stop: Callable[[], None]) -> None:
        """Call `stop` on the loop when the process is asked to end."""


class SystemBrokerRuntime(SystemRuntime):
    """The real one. `observer` is told of the syncs of its disks."""

    def __init__(self, observer: Observer = UNOBSERVED) -> None:
        self._observer = observer

    def monotonic_s(self) -> float:
        return time.monotonic()

    def uptime_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def boot_id(self) -> str:
        try:
            return _BOOT_ID_FILE.read_text().strip()
        except OSError:
            return ""

    def files(self) -> FileSystem:
        return OsFileSystem()

    def disk(self, name: str, failed: Callable[[BaseException], None]) -> Disk:
        return DiskThread(name, asyncio.get_running_loop(), failed, self._observer.synced)

    def descriptors(self) -> Descriptors:
        return raise_limit()

    def open_channel(self, address: Address, security: ChannelSecurity | None = None) -> grpc.aio.Channel:
        return open_channel(address, security)

    def open_server(self, *, most_connections: int, connection_idle_ms: int) -> grpc.aio.Server:
        return create_server(most_connections=most_connections, connection_idle_ms=connection_idle_ms)

    def guard(self, port: int, flow: Flow, limits: ConnectionLimits) -> Guard:
        return ConnectionGuard(Connections(port, flow, is_encrypted=limits.is_encrypted), flow, limits)

    def on_stop_signal(self, stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)


SYSTEM_BROKER_RUNTIME = SystemBrokerRuntime()
