"""The connections to this broker's port as the kernel sees them, and the choice of connections to cut above a limit.

gRPC tells neither their number nor the bytes that it holds for each. The kernel counts both. Systems without TCP_INFO
as Linux has it (macOS) have the number alone.

The connections that are cut, and their order:

    when there are                                    cut first
    more connections than max.connections             the one that was silent longest
    more half-received bytes than half the budget     one that stalls, then the one whose message began last: the
                                                      others get through
    more unsent bytes than the budget; or a client    the one with most of them: a client that does not read has full
    waits for room in it                              windows on its connection

Connections with open streams of another broker come last in each row, and before them those of logged-in clients. No
connection with less than a quarter of a MiB is cut for its bytes: a message of common size is always on its way.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from minilog_broker.server.ingress.rules.traffic import Flow, Traffic

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_SILENT_AT, _COUNTS_AT, _INFO_BYTES = 52, 120, 136  # tcpi_last_data_recv; tcpi_bytes_acked, tcpi_bytes_received
_MS = struct.Struct("=I")
_COUNTS = struct.Struct("=QQ")
_DESCRIPTORS = "/dev/fd"
_IP = (socket.AF_INET, socket.AF_INET6)


LITTLE_BYTES = 256 << 10
STALLED_MS = 2_000.0  # silence in the middle of a message
LONG_MESSAGE_S = 30.0  # request.timeout.ms of clients: a client that takes longer has given the message up


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """The bytes beside messages, as upper bounds: with lower ones the overhead of a long-lived connection would count
    as a message."""

    frames_share: int
    """The least bytes of a frame for each byte of its head: frames have 16 KiB or more, heads 9 bytes."""
    message_bytes: int
    """Heads and pings for each message."""
    windows_share: int
    """The bytes sent to the other side for each byte of window updates."""
    connection_bytes: int


IN_THE_CLEAR = Overhead(frames_share=1024, message_bytes=64, windows_share=1024, connection_bytes=8192)
# A record of TLS has 22 bytes more and at most 16 KiB of content; a handshake has certificates.
TLS = Overhead(frames_share=256, message_bytes=128, windows_share=512, connection_bytes=65_536)


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection at the moment of a look."""

    key: object
    peer: str
    silent_ms: float
    half_received_bytes: int
    unsent_bytes: int
    receiving_s: float
    is_brokers: bool
    is_known: bool = False
    """A client has logged in on it; never where all is in the clear."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A connection to be cut, with the reason, for people."""

    connection: Connection
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of all connections together."""

    connections: int
    request_bytes: int
    response_bytes: int


def to_cut(connections: Sequence[Connection], limits: ConnectionLimits, *, room_is_waited_for: bool) -> list[Cut]:
    """The connections to cut, by the table above."""
    cuts = [Cut(one, f"max.connections={limits.connections}") for one in _too_many(connections, limits.connections)]
    half = limits.request_bytes // 2
    half_received = _above(connections, half, lambda one: one.half_received_bytes, _stalled_then_youngest)
    cuts += [Cut(one, f"queued.max.request.bytes={limits.request_bytes}") for one in half_received]
    unsent_bytes = sum(one.unsent_bytes for one in connections)
    allowed = min(limits.response_bytes, unsent_bytes * 3 // 4) if room_is_waited_for else limits.response_bytes
    unsent = _above(connections, allowed, lambda one: one.unsent_bytes, lambda one: -one.unsent_bytes)
    cuts += [Cut(one, f"queued.max.response.bytes={limits.response_bytes}") for one in unsent]
    return list({cut.connection.key: cut for cut in reversed(cuts)}.values())


def _too_many(connections: Sequence[Connection], most: int) -> list[Connection]:
    if len(connections) <= most:
        return []
    ranked = sorted(connections, key=lambda one: (one.is_brokers, one.is_known, -one.silent_ms))
    return ranked[: len(connections) - most]


def _above(
    connections: Sequence[Connection],
    allowed_bytes: int,
    size: Callable[[Connection], int],
    rank: Callable[[Connection], float],
) -> Iterator[Connection]:
    """The connections to cut, in order of `rank`, until at most `allowed_bytes` are held."""
    held = sum(map(size, connections))
    if held <= allowed_bytes:
        return
    for connection in sorted(connections, key=lambda one: (one.is_brokers, one.is_known, rank(one))):
        if held <= allowed_bytes:
            return
        if size(connection) >= LITTLE_BYTES:
            held -= size(connection)
            yield connection


def _stalled_then_youngest(one: Connection) -> float:
    stalled = one.silent_ms >= STALLED_MS or one.receiving_s >= LONG_MESSAGE_S
    return float("-inf") if stalled else one.receiving_s


@dataclass(frozen=True, slots=True)
class _Descriptor:
    """The descriptor of a socket. Its number may be another file's a moment later."""

    number: int
    inode: int


class Connections:
    """The sockets of `port`, of calls. On the event loop. A look costs some microseconds for each descriptor."""

    def __init__(self, port: int, flow: Flow, *, is_encrypted: bool = False) -> None:
        self._overhead = TLS if is_encrypted else IN_THE_CLEAR
        self._port = port
        self._flow = flow
        self._sockets: dict[int, tuple[int, str | None]] = {}  # descriptor: inode, and the peer of a socket of our port

    def look(self, now_s: float) -> list[Connection]:
        """All connections. Raises OSError where the process has no descriptor left for a look."""
        sockets: dict[int, tuple[int, str | None]] = {}
        connections = []
        for name in os.listdir(_DESCRIPTORS):
            descriptor = int(name)
            with contextlib.suppress(OSError):  # closed meanwhile
                inode = os.fstat(descriptor).st_ino
                was = self._sockets.get(descriptor)
                sockets[descriptor] = entry = was if was and was[0] == inode else (inode, self._peer(descriptor))
                if (peer := entry[1]) is not None:
                    connections.append(self._connection(descriptor, inode, peer, now_s))
        self._sockets = sockets
        self._flow.keep_only(connection.peer for connection in connections)
        return connections

    def cut(self, connection: Connection) -> bool:
        """End a connection: gRPC drops all that it holds for it. False where it has ended by itself."""
        assert isinstance(connection.key, _Descriptor)
        try:
            with socket.socket(fileno=os.dup(connection.key.number)) as same:
                if os.fstat(same.fileno()).st_ino != connection.key.inode:
                    return False
                same.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
        return True

    def _peer(self, descriptor: int) -> str | None:
        """The other side's address in gRPC's form; None for a descriptor that is no connection to our port."""
        with contextlib.suppress(OSError), _borrowed(descriptor) as same:
            if same.type == socket.SOCK_STREAM and same.family in _IP and same.getsockname()[1] == self._port:
                return _peer_name(same.family, same.getpeername())
        return None

    def _connection(self, descriptor: int, inode: int, peer: str, now_s: float) -> Connection:
        traffic = self._flow.of(peer)
        silent_ms, acknowledged_bytes, received_bytes = 0.0, traffic.given_bytes, 0
        if _TCP_INFO is not None:
            info = _tcp_info(descriptor, _TCP_INFO)
            if len(info) == _INFO_BYTES:
                (silent_ms,) = _MS.unpack_from(info, _SILENT_AT)
                acknowledged_bytes, received_bytes = _COUNTS.unpack_from(info, _COUNTS_AT)
        half = half_received(traffic, received_bytes, acknowledged_bytes, self._overhead)
        receiving_s = traffic.receiving_for_s(now_s, is_receiving=half >= LITTLE_BYTES)
        return Connection(
            key=_Descriptor(descriptor, inode),
            peer=peer,
            silent_ms=silent_ms,
            half_received_bytes=half,
            unsent_bytes=max(0, traffic.given_bytes - acknowledged_bytes),
            receiving_s=receiving_s,
            is_brokers=traffic.broker_calls > 0,
            is_known=traffic.principal is not None,
        )


def half_received(
    traffic: Traffic, received_bytes: int, acknowledged_bytes: int, overhead: Overhead = IN_THE_CLEAR
) -> int:
    """The received bytes beside whole messages, less the overhead of HTTP/2 and TLS."""
    frames = traffic.taken_bytes // overhead.frames_share
    messages = traffic.taken_bytes + frames + traffic.taken_messages * overhead.message_bytes
    windows = acknowledged_bytes // overhead.windows_share
    return max(0, received_bytes - messages - windows - overhead.connection_bytes)


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket object for a descriptor that stays its owner's."""
    same = socket.socket(fileno=descriptor)
    try:
        yield same
    finally:
        same.detach()


def _tcp_info(descriptor: int, option: int) -> bytes:
    """What the kernel counts. The socket's kind is known: without it Python asks the kernel for each part of it. The
    family does not matter here."""
    same = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor)
    try:
        return same.getsockopt(socket.IPPROTO_TCP, option, _INFO_BYTES)
    finally:
        same.detach()


def _peer_name(family: int, address: Iterable[object]) -> str:
    host, port, *_ = (str(part) for part in address)
    if family == socket.AF_INET or host.startswith("::ffff:"):
        return f"ipv4:{host.removeprefix('::ffff:')}:{port}"
    return f"ipv6:%5B{host}%5D:{port}"
