"""Where a broker listens: one port for all, or one for clients and one for brokers (access/broker_access.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from minilog_broker.server.access.broker_access import BrokerAccess
from minilog_broker.server.config import BrokerOptions
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.server.runtime.descriptors import Descriptors
from minilog_broker.server.runtime.observer import Observer
from minilog_broker.server.runtime.port import Listener, Port, Service
from minilog_broker.server.runtime.traffic import Flow
from minilog_broker.server.runtime.turns import Turns


@dataclass(frozen=True, slots=True)
class Services:
    """Who asks for what: `shared` are asked by clients and by brokers."""

    clients: tuple[Service, ...]
    peers: tuple[Service, ...]
    shared: tuple[Service, ...]


@dataclass(frozen=True, slots=True)
class PortParts:
    """What every port of a broker is made with. `backlog_bytes`: what waits for the disk now."""

    options: BrokerOptions
    descriptors: Descriptors
    backlog_bytes: Callable[[], int]
    turns: Turns
    runtime: BrokerRuntime
    observer: Observer

    def open(self, listener: Listener, services: tuple[Service, ...]) -> Port:
        """Bound, and not started. Raises CommandFailed where it cannot listen there."""
        return Port(
            self.options,
            listener,
            self.descriptors,
            services,
            self.backlog_bytes,
            self.turns,
            self.runtime,
            self.observer,
        )


class Listening:
    """All ports of a broker."""

    def __init__(self, access: BrokerAccess, services: Services, parts: PortParts) -> None:
        of_clients, of_peers = access.client_listener(), access.peer_listener()
        clients = (*services.clients, *services.shared, *access.services())
        if of_peers is None:
            self._ports = [parts.open(of_clients, (*clients, *services.peers))]
        else:
            peers = (*services.peers, *services.shared)
            self._ports = [parts.open(of_clients, clients), parts.open(of_peers, peers)]

    @property
    def flow(self) -> Flow:
        """Of the port that clients come to."""
        return self._ports[0].flow

    async def start(self) -> None:
        """Accept connections."""
        for port in self._ports:
            await port.start()

    async def stop(self, grace_s: float) -> None:
        """Accept no more, and end what is not done after `grace_s`."""
        await asyncio.gather(*(port.stop(grace_s) for port in self._ports))

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """Each runs until cancelled: keeps what connections ask for within limits."""
        return [port.guard.watch() for port in self._ports]
