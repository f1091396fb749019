"""A port of the broker: services on a gRPC server, the gate in front of them, and what guards it against asking for too
much. Which ports there are: server/ingress/listening.py.

What a request may name is bounded, and large ones take turns (admission.py). Clients' messages count against
two budgets (traffic.py), connections against the process's file descriptors
(runtime/descriptors.py), and what gRPC itself holds is bounded by looking at the sockets (connections.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from minilog.addresses import address_text
from minilog.config import Address
from minilog_broker.failure import CommandFailed
from minilog_broker.server.config import BrokerConfig, BrokerOptions
from minilog_broker.server.ingress.admission import Admission
from minilog_broker.server.ingress.budget import Budget
from minilog_broker.server.ingress.connections import ConnectionLimits
from minilog_broker.server.ingress.gate import Gate
from minilog_broker.server.ingress.traffic import CountedServer, Flow
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.server.runtime.descriptors import Descriptors
from minilog_broker.server.runtime.observer import Observer
from minilog_broker.server.runtime.turns import Turns

_BURST_CONNECTIONS = 50  # may come between two looks before gRPC itself refuses: the guard chooses better whom to close

Service = tuple[Callable[[Any, Any], None], object]
"""A generated `add_..._to_server`, and what it adds."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a port listens, who may come in, and by which certificates; `credentials` None: in the clear."""

    address: Address
    gate: Gate
    credentials: grpc.ServerCredentials | None = None


class Shares:
    """What the ports of one kind share: the budgets, and the files that connections may have. `backlog_bytes`: what
    waits for the disk now."""

    def __init__(self, config: BrokerConfig, ports: int, backlog_bytes: Callable[[], int], turns: Turns) -> None:
        self._requests = Budget(config.queued_max_request_bytes // 2, backlog_bytes)
        self._responses = Budget(config.queued_max_response_bytes)
        self._turns = turns
        self._flows: list[Flow] = []
        self.ports = ports

    def flow(self) -> Flow:
        """Of one more of them."""
        return Flow(self._requests, self._responses, self._turns, self._flows)


class Port:
    """See the module's text. CommandFailed where it cannot listen."""

    def __init__(
        self,
        options: BrokerOptions,
        listener: Listener,
        descriptors: Descriptors,
        services: Iterable[Service],
        shares: Shares,
        turns: Turns,
        runtime: BrokerRuntime,
        observer: Observer,
    ) -> None:
        config = options.config
        connections = descriptors.connections(config.max_connections, shares.ports)
        self._server = runtime.open_server(
            most_connections=connections + min(_BURST_CONNECTIONS, connections),
            connection_idle_ms=config.connections_max_idle_ms,
        )
        self.flow = flow = shares.flow()
        counted = CountedServer(self._server, flow, Admission(turns).parser, listener.gate, observer)
        for add, service in services:
            add(service, counted)
        counted.refuse_the_rest()
        bound = self._bind(options.broker_id, listener)
        self.guard = runtime.guard(
            bound,
            flow,
            ConnectionLimits(
                connections=connections,
                request_bytes=config.queued_max_request_bytes // shares.ports,
                response_bytes=config.queued_max_response_bytes // shares.ports,
                is_encrypted=listener.credentials is not None,
            ),
        )

    def _bind(self, broker_id: int, listener: Listener) -> int:
        address = address_text(listener.address)
        try:
            if listener.credentials is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, listener.credentials)
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise CommandFailed(f"broker {broker_id} cannot listen on {address}: the port is taken, or not this host's")
        return bound

    async def start(self) -> None:
        """Accept connections."""
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Accept no more, and end what is not done after `grace_s`."""
        await self._server.stop(grace_s)
