"""The world of a broker process: the kernel's clocks and files, gRPC's servers and channels, threads, signals."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import time
from collections.abc import Callable, Sequence

import grpc

from minilog.addresses import Address
from minilog.net.runtime import SystemRuntime
from minilog.net.stream_connection import StreamConnection
from minilog.security.channel_security import ChannelSecurity
from minilog_broker.server.clients.channels import create_server, open_channel
from minilog_broker.server.disk.disk_thread import Disk, DiskThread
from minilog_broker.server.disk.reader_threads import Readers, ReaderThreads
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.connection_guard import ConnectionGuard, GuardedPort, ResidentMemory
from minilog_broker.server.ingress.transport.connections import ConnectionLimits
from minilog_broker.server.ingress.transport.server_credentials import ServerFiles
from minilog_broker.server.ingress.transport.stream_listener import StreamListener
from minilog_broker.server.runtime.broker_runtime import Guard, StreamPort
from minilog_broker.server.runtime.descriptors import Descriptors, raise_limit
from minilog_broker.server.runtime.logging import configure_logging
from minilog_broker.server.runtime.observer import UNOBSERVED, BrokerObserver
from minilog_broker.storage.files import FileSystem, OsFileSystem

_BOOT_ID_FILE = pathlib.Path("/proc/sys/kernel/random/boot_id")


class SystemBrokerRuntime(SystemRuntime):
    """The real world of a broker. Its disks report each sync to `observer`."""

    def __init__(self, observer: BrokerObserver = UNOBSERVED) -> None:
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

    def readers(self, name: str, most: int, failed: Callable[[BaseException], None]) -> Readers:
        return ReaderThreads(name, most, asyncio.get_running_loop(), failed)

    def descriptors(self) -> Descriptors:
        return raise_limit()

    def open_channel(self, address: Address, security: ChannelSecurity | None = None) -> grpc.aio.Channel:
        return open_channel(address, security)

    def open_server(self, *, most_connections: int, connection_idle_ms: int) -> grpc.aio.Server:
        return create_server(most_connections=most_connections, connection_idle_ms=connection_idle_ms)

    def listen(
        self,
        address: Address,
        protocol: Callable[[], StreamConnection],
        files: ServerFiles | None,
        most_connections: int,
    ) -> StreamPort:
        return StreamListener(address, protocol, files, most_connections)

    def guard(self, ports: Sequence[tuple[GuardedPort, Flow]], limits: ConnectionLimits) -> Guard:
        return ConnectionGuard(ports, limits, ResidentMemory(), time.thread_time)

    def set_log_level(self, name: str) -> None:
        configure_logging(name)

    def on_stop_signal(self, stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)


SYSTEM_BROKER_RUNTIME = SystemBrokerRuntime()
