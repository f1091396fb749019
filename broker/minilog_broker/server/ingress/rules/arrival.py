"""The origin of a call, as its carrier tells: the gate's only knowledge before it reads the call."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any

from minilog.net.sessions import SESSION_METADATA
from minilog.net.stream_connection import ConnectionEnded, StreamConnection

_IPV4_IN_IPV6 = "::ffff:"


@dataclass(frozen=True, slots=True)
class Arrival:
    """The origin of a call. `peer` names the connection, such as ipv4:127.0.0.1:4711. `host` is its address, in the
    form of access rules. `common_name` is that of a trusted certificate, where the listener asks for one. `session` is
    that of a login, or empty."""

    peer: str
    host: str
    common_name: str | None = None
    session: bytes = b""


def arrival_of(context: Any) -> Arrival:
    """The origin of a call of gRPC, by its grpc.aio.ServicerContext."""
    names = context.auth_context().get("x509_common_name")
    session = dict(context.invocation_metadata() or ()).get(SESSION_METADATA)
    peer = str(context.peer())
    return Arrival(
        peer,
        _host_of(peer),
        None if not names else str(names[0].decode(errors="replace")),
        session if isinstance(session, bytes) else b"",
    )


def arrival_on(connection: StreamConnection) -> Arrival:
    """The origin of a connection of streams. Its session comes with the hello. Raises ConnectionEnded where the
    connection was reset already: the kernel has no address of it any more."""
    address = connection.information("peername")
    if not address:
        raise ConnectionEnded("the other side reset the connection before the broker took it")
    host, port, *_ = address
    host = host.partition("%")[0].removeprefix(_IPV4_IN_IPV6)
    peer = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
    return Arrival(peer, host, _common_name(connection.information("ssl_object")))


def _common_name(ssl_object: Any) -> str | None:
    certificate = None if ssl_object is None else ssl_object.getpeercert()
    names = [value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if names else None


def _host_of(peer: str) -> str:
    """The host in `ipv4:127.0.0.1:4711`, `ipv6:%5B::1%5D:4711`."""
    _, _, address = peer.partition(":")
    host = urllib.parse.unquote(address.rpartition(":")[0]).strip("[]")
    return host.removeprefix(_IPV4_IN_IPV6)
