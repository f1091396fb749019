"""The two ports of a listener: calls on a gRPC server, streams on connections of their own.

The gate stands in front of both, and a guard keeps each within limits. The listeners are in
server/ingress/listening.py.

The counts in a request are bounded, and large requests take turns (admission.py). Clients' messages count against two
budgets (traffic.py), connections against the process's file descriptors (runtime/descriptors.py). A connection of
streams knows the bytes that it holds. Looks at the sockets bound the bytes that gRPC holds (connections.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from minilog.addresses import Address, address_text
from minilog_broker.failure import CommandFailed
from minilog_broker.security.audit import Audit
from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.ingress.rules.admission import Admission
from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.gate import Gate
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.connections import ConnectionLimits, Connections
from minilog_broker.server.ingress.transport.counted_server import CountedServer
from minilog_broker.server.ingress.transport.server_credentials import ServerFiles
from minilog_broker.server.ingress.transport.stream_connections import StreamConnections
from minilog_broker.server.ingress.transport.stream_server import StreamServer
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime, StreamPort
from minilog_broker.server.runtime.descriptors import Descriptors
from minilog_broker.server.runtime.observer import BrokerObserver
from minilog_broker.server.runtime.turns import Turns

# Connections between two looks before the ports themselves refuse. The guard makes the better choice.
_BURST_CONNECTIONS = 50

Service = tuple[Callable[[Any, Any], None], object]
"""A generated `add_..._to_server`, and the service that it adds."""


@dataclass(frozen=True, slots=True)
class Listener:
    """The address of a listener, its gate and its certificates. `files` None: in the clear."""

    address: Address
    gate: Gate
    files: ServerFiles | None = None


class Shares:
    """The budgets that the ports of one kind share. `backlog_bytes`: the bytes that wait for the disk."""

    def __init__(self, config: BrokerConfig, listeners: int, backlog_bytes: Callable[[], int], turns: Turns) -> None:
        self._requests = Budget(config.queued_max_request_bytes // 2, backlog_bytes)
        self._responses = Budget(config.queued_max_response_bytes)
        self._turns = turns
        self._flows: list[Flow] = []
        self.listeners = listeners

    def flow(self) -> Flow:
        """The flow of one more port."""
        return Flow(self._requests, self._responses, self._turns, self._flows)


@dataclass(frozen=True, slots=True)
class PortParts:
    """The parts of which every port of a broker is made. `backlog_bytes`: the bytes that wait for the disk."""

    options: BrokerOptions
    descriptors: Descriptors
    backlog_bytes: Callable[[], int]
    turns: Turns
    runtime: BrokerRuntime
    observer: BrokerObserver
    audit: Audit

    def shares(self, listeners: int) -> Shares:
        """The shared budgets of this number of listeners."""
        return Shares(self.options.config, listeners, self.backlog_bytes, self.turns)

    def open(self, listener: Listener, services: tuple[Service, ...], shares: Shares) -> Ports:
        """The bound ports of a listener, not started. Raises CommandFailed where the broker cannot listen there."""
        return Ports(self, listener, services, shares)


class Ports:
    """The two ports of one listener: that of calls, and that of streams, `stream.port.offset` beside it. Raises
    CommandFailed where the broker cannot listen on one of them."""

    def __init__(self, parts: PortParts, listener: Listener, services: Iterable[Service], shares: Shares) -> None:
        config, runtime = parts.options.config, parts.runtime
        connections = parts.descriptors.connections(config.max_connections, 2 * shares.listeners)
        limits = ConnectionLimits(
            connections=connections,
            request_bytes=config.queued_max_request_bytes // shares.listeners,
            response_bytes=config.queued_max_response_bytes // shares.listeners,
        )
        most_connections = connections + min(_BURST_CONNECTIONS, connections)
        self._server = runtime.open_server(
            most_connections=most_connections, connection_idle_ms=config.connections_max_idle_ms
        )
        self.flow, stream_flow = shares.flow(), shares.flow()
        parser = Admission(parts.turns).parser
        calls = CountedServer(self._server, self.flow, parser, listener.gate, parts.observer)
        self._streams = StreamServer(
            stream_flow, parser, listener.gate, parts.observer, parts.audit, most_connections=most_connections
        )
        for add, service in services:
            add(service, calls)
            add(service, _StreamsOf(self._streams))
        calls.refuse_the_rest()
        port = self._bind(parts.options.broker_id, listener)
        self._listener = self._listen(parts, listener, most_connections)
        sockets = Connections(port, self.flow, is_encrypted=listener.files is not None)
        streams = StreamConnections(self._streams, stream_flow)
        self.guard = runtime.guard([(sockets, self.flow), (streams, stream_flow)], limits)

    def _bind(self, broker_id: int, listener: Listener) -> int:
        address = address_text(listener.address)
        try:
            if listener.files is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, listener.files.credentials())
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise CommandFailed(
                f"broker {broker_id} cannot listen on {address}: the port is taken, or the address is not of this host"
            )
        return bound

    def _listen(self, parts: PortParts, listener: Listener, most_connections: int) -> StreamPort:
        options = parts.options
        address = options.config.stream_address(listener.address)
        try:
            return parts.runtime.listen(address, self._streams.connection, listener.files, most_connections)
        except OSError as error:
            raise CommandFailed(
                f"broker {options.broker_id} cannot listen on {address_text(address)}, its port of streams "
                f"({error.strerror or error}): free it, or set stream.port.offset on all brokers"
            ) from None

    async def start(self) -> None:
        """Accept connections."""
        self._listener.start()
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections, and end open calls after `grace_s`."""
        await self._listener.close()
        await asyncio.gather(self._server.stop(grace_s), self._streams.stop(grace_s))


class _StreamsOf:
    """Takes services like a grpc.aio.Server, for their methods that have connections of their own."""

    def __init__(self, streams: StreamServer) -> None:
        self._streams = streams

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Does nothing: the same handlers come by name as well."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self._streams.add(service, handlers)
