"""The listeners of a broker: two ports for each listener of clients, and two for brokers (ingress/broker_access.py).

Where brokers have no listener of their own they use the listener of clients without a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from minilog_broker.server.ingress.broker_access import BrokerAccess
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.port import PortParts, Service


@dataclass(frozen=True, slots=True)
class Services:
    """The services for each kind of caller. `shared`: for clients and for brokers."""

    clients: tuple[Service, ...]
    peers: tuple[Service, ...]
    shared: tuple[Service, ...]


class Listening:
    """All listeners of a broker."""

    def __init__(self, access: BrokerAccess, services: Services, parts: PortParts) -> None:
        of_clients, of_peers = access.client_listeners(), access.peer_listener()
        shares = parts.shares(len(of_clients))
        self._ports = []
        for entrance in of_clients:
            offered = (*services.clients, *services.shared, *entrance.services)
            if of_peers is None and not entrance.name:
                offered = (*offered, *services.peers)
            self._ports.append(parts.open(entrance.listener, offered, shares))
        if of_peers is not None:
            self._ports.append(parts.open(of_peers, (*services.peers, *services.shared), parts.shares(1)))

    @property
    def flow(self) -> Flow:
        """The flow of a port of clients, whose budgets are those of all."""
        return self._ports[0].flow

    async def start(self) -> None:
        """Accept connections."""
        for port in self._ports:
            await port.start()

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections, and end open calls after `grace_s`."""
        await asyncio.gather(*(port.stop(grace_s) for port in self._ports))

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """The guards, one for each port. Each runs until cancelled."""
        return [ports.guard.watch() for ports in self._ports]
