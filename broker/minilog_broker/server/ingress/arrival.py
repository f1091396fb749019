"""Where a call comes from, as its carrier tells: what a gate knows of it before anything of it is read."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from typing import Any

from minilog.net.sessions import SESSION_METADATA
from minilog.net.stream_connection import ConnectionEnded, StreamConnection

_IPV4_IN_IPV6 = "::ffff:"


@dataclass(frozen=True, slots=True)
class Arrival:
    """`peer` names the connection, such as ipv4:127.0.0.1:4711. `host` is its address, as rules have it. `common_name`
    is that of the certificate that the other side has shown, where it was asked for one and it is believed. `session`
    is what an exchange gave, empty where nothing was sent."""

    peer: str
    host: str
    common_name: str | None = None
    session: bytes = b""


def arrival_of(context: Any) -> Arrival:
    """Of a call of gRPC, by its grpc.aio.ServicerContext."""
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
    """Of a connection of streams. Its session comes with the hello. Raises ConnectionEnded where it was reset before
    anybody looked: the kernel tells no address of it any more."""
    address = connection.information("peername")
    if not address:
        raise ConnectionEnded("it was reset before it was taken")
    host, port, *_ = address
    host = host.partition("%")[0].removeprefix(_IPV4_IN_IPV6)
    peer = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
    return Arrival(peer, host, _common_name(connection.information("ssl_object")))


def _common_name(ssl_object: Any) -> str | None:
    certificate = None if ssl_object is None else ssl_object.getpeercert()
    names = [value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if names else None


def _host_of(peer: str) -> str:
    """Of `ipv4:127.0.0.1:4711`, `ipv6:%5B::1%5D:4711`."""
    _, _, address = peer.partition(":")
    host = urllib.parse.unquote(address.rpartition(":")[0]).strip("[]")
    return host.removeprefix(_IPV4_IN_IPV6)
