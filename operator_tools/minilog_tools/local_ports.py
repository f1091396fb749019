"""Ports of this machine for local brokers: the free ones, and the trouble with a port that is not free."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterable, Sequence

from minilog_broker.failure import CommandFailed
from minilog_broker.server.config import BrokerConfig

HOST = "127.0.0.1"
# Below the ports of outgoing connections (Linux: from 32768). An outgoing connection may take such a port while its
# broker is down, or connect to itself.
_LOWEST, _HIGHEST = 14_000, 31_000


def free_ports(count: int, beside: Sequence[int] = ()) -> list[int]:
    """Different ports that were free a moment ago. So were the ports of streams beside them, and the pairs at each of
    the distances `beside`. Raises CommandFailed where there are too few."""
    streams = BrokerConfig().stream_port_offset
    distances = [port for distance in (0, *beside) for port in (distance, distance + streams)]
    # No two pairs share a port, also after this function has released them and before the brokers listen.
    candidates = [port for port in range(_LOWEST, _HIGHEST) if port // abs(streams) % 2 == 0]
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.SystemRandom().sample(candidates, len(candidates)):
            if len(ports) == count:
                return ports
            with contextlib.suppress(OSError):
                for distance in distances:
                    held.enter_context(socket.socket()).bind((HOST, port + distance))
                ports.append(port)
    raise CommandFailed(f"{HOST} does not have {count} free ports below {_HIGHEST}: choose the ports with --port")


def check_ports_are_free(ports: Iterable[int], remedy: str) -> None:
    """Raises CommandFailed with the first port that another process holds."""
    for port in ports:
        if (trouble := port_trouble(port)) is not None:
            raise CommandFailed(f"{trouble}: {remedy}")


def port_trouble(port: int) -> str | None:
    """Why a process cannot listen on a port of this host, None where it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            return f"port {port} on {HOST} {reason}"
    return None
