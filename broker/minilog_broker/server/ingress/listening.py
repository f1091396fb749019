"""Where a broker listens: on one port for each listener of clients, and on one for brokers (ingress/broker_access.py).
Where brokers have no listener of their own they come to that of clients without a name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from minilog_broker.server.config import BrokerOptions
from minilog_broker.server.ingress.broker_access import BrokerAccess
from minilog_broker.server.ingress.port import Listener, Port, Service, Shares
from minilog_broker.server.ingress.traffic import Flow
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.server.runtime.descriptors import Descriptors
from minilog_broker.server.runtime.observer import Observer
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

    def shares(self, ports: int) -> Shares:
        """What so many ports share."""
        return Shares(self.options.config, ports, self.backlog_bytes, self.turns)

    def open(self, listener: Listener, services: tuple[Service, ...], shares: Shares) -> Port:
        """Bound, and not started. Raises CommandFailed where it cannot listen there."""
        return Port(
            self.options,
            listener,
            self.descriptors,
            services,
            shares,
            self.turns,
            self.runtime,
            self.observer,
        )


class Listening:
    """All ports of a broker."""

    def __init__(self, access: BrokerAccess, services: Services, parts: PortParts) -> None:
        of_clients, of_peers = access.client_listeners(), access.peer_listener()
        shares = parts.shares(len(of_clients))
        self._ports = []
        for each in of_clients:
            offered = (*services.clients, *services.shared, *each.services)
            if of_peers is None and not each.name:
                offered = (*offered, *services.peers)
            self._ports.append(parts.open(each.listener, offered, shares))
        if of_peers is not None:
            self._ports.append(parts.open(of_peers, (*services.peers, *services.shared), parts.shares(1)))

    @property
    def flow(self) -> Flow:
        """Of a port that clients come to, whose budgets are those of all."""
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
