"""The connections to a port of streams, for the guard. Each knows the bytes that it holds."""

from __future__ import annotations

from minilog.net.stream_connection import StreamConnection
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.connections import LITTLE_BYTES, Connection
from minilog_broker.server.ingress.transport.stream_server import StreamServer


class StreamConnections:
    """The connections of one port. On the event loop."""

    def __init__(self, server: StreamServer, flow: Flow) -> None:
        self._server = server
        self._flow = flow

    def look(self, now_s: float) -> list[Connection]:
        """All connections."""
        return [self._connection(connection, peer, now_s) for connection, peer in self._server.connections.items()]

    def cut(self, connection: Connection) -> bool:
        """End a connection. False where it has ended by itself."""
        assert isinstance(connection.key, StreamConnection)
        if not connection.key.is_open:
            return False
        connection.key.abort()
        return True

    def _connection(self, connection: StreamConnection, peer: str, now_s: float) -> Connection:
        traffic, held_bytes = self._flow.of(peer), connection.held_bytes
        return Connection(
            key=connection,
            peer=peer,
            silent_ms=(now_s - connection.heard_s) * 1000.0,
            half_received_bytes=held_bytes,
            unsent_bytes=connection.unsent_bytes,
            receiving_s=traffic.receiving_for_s(now_s, is_receiving=held_bytes >= LITTLE_BYTES),
            is_brokers=traffic.broker_calls > 0,
            is_known=traffic.principal is not None,
        )
