"""Strangers who stop half way, never read, or send without end: they are ended in time, and nobody else notices."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic, Producer
from tests.cluster import HOST
from tests.integration.garbage import EMPTY_SETTINGS, HTTP2_PREFACE
from tests.integration.memory_attacks import HalfSender, _Stream, call_headers, frame
from tests.secured import SecuredCluster, running_secured_cluster

pytestmark = pytest.mark.long

TOPIC = "honest"
DEADLINE_S = 5.0
SLACK_S = 3.0
PAUSE_S = 0.05
TOGETHER = 20  # of each kind
AUTHENTICATE = b"/minilog.v1.AuthenticationService/Authenticate"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _END_HEADERS, _END_STREAM = 0, 1, 3, 4, 4, 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with running_secured_cluster(tmp_path_factory.mktemp("slow"), 1) as running:
        with Admin(running.client) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
        yield running


def context_of(cluster: SecuredCluster) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(cluster.folder / "clients.pem"))
    context.set_alpn_protocols(["h2"])
    return context


def plain(cluster: SecuredCluster) -> socket.socket:
    return socket.create_connection((HOST, cluster.ports[1]), timeout=DEADLINE_S)


def nothing(cluster: SecuredCluster) -> socket.socket:
    return plain(cluster)


def half_a_hello(cluster: SecuredCluster) -> socket.socket:
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = context_of(cluster).wrap_bio(coming, going, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    content = going.read()
    connection = plain(cluster)
    connection.sendall(content[: len(content) // 2])
    return connection


def tls_alone(cluster: SecuredCluster) -> socket.socket:
    return context_of(cluster).wrap_socket(plain(cluster), server_hostname=HOST)


def half_a_frame(cluster: SecuredCluster) -> socket.socket:
    connection = tls_alone(cluster)
    connection.sendall(HTTP2_PREFACE + EMPTY_SETTINGS[:5])
    return connection


def half_a_login(cluster: SecuredCluster) -> socket.socket:
    """Ten bytes of a message of a hundred."""
    connection = tls_alone(cluster)
    begun = b"\x00" + (100).to_bytes(4, "big") + bytes(10)
    headers = frame(_HEADERS, _END_HEADERS, 1, call_headers(AUTHENTICATE, b"https"))
    connection.sendall(HTTP2_PREFACE + EMPTY_SETTINGS + headers + frame(_DATA, 0, 1, begun))
    return connection


def is_ended(connection: socket.socket) -> bool:
    """Whether the broker has closed it."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True


def test_connections_that_stop_in_their_beginning_are_closed(cluster: SecuredCluster) -> None:
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack, Producer({**cluster.client, "linger.ms": 0}) as producer:
        strangers = {
            stop.__name__: [stack.enter_context(stop(cluster)) for _ in range(TOGETHER)]
            for stop in (nothing, half_a_hello, tls_alone, half_a_frame)
        }
        while still_open := [name for name, some in strangers.items() if not all(map(is_ended, some))]:
            assert time.monotonic() - began_s < DEADLINE_S + SLACK_S, still_open
            producer.send(TOPIC, b"honest").result(timeout=DEADLINE_S)
            time.sleep(PAUSE_S)


def test_a_login_that_stops_half_way_is_ended(cluster: SecuredCluster) -> None:
    with half_a_login(cluster) as stranger:
        stranger.settimeout(DEADLINE_S + SLACK_S)
        came = b""
        while not ended_streams(came):
            content = stranger.recv(1 << 16)
            assert content, came
            came += content


def ended_streams(content: bytes) -> int:
    """How many frames end a stream: a reset, or the last one of its answer."""
    ended = 0
    while len(content) >= 9:
        length, kind, flags = int.from_bytes(content[:3], "big"), content[3], content[4]
        ended += kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and bool(flags & _END_STREAM))
        content = content[9 + length :]
    return ended


def test_logins_that_never_read_are_ended(cluster: SecuredCluster) -> None:
    """Their windows are of nothing, so that no refusal can be written."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(tls_alone(cluster)) for _ in range(5)]
        no_window = frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + frame(_SETTINGS, 1, 0, b"")
        logins = [frame(_HEADERS, 4, number, call_headers(AUTHENTICATE, b"https")) for number in range(1, 200, 2)]
        for each in connections:
            each.sendall(HTTP2_PREFACE + no_window + b"".join(logins))
        deadline_s = time.monotonic() + 5 * DEADLINE_S
        came = dict.fromkeys(connections, b"")
        while sum(map(ended_streams, came.values())) <= 400:
            assert time.monotonic() < deadline_s, [ended_streams(each) for each in came.values()]
            for each in connections:
                each.settimeout(0.1)
                with contextlib.suppress(TimeoutError, ssl.SSLError):
                    came[each] += each.recv(1 << 16)


class _Tls:
    """A socket as HalfSender uses one, over TLS."""

    def __init__(self, cluster: SecuredCluster) -> None:
        context = ssl.create_default_context(cafile=str(cluster.folder / "clients.pem"))
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((HOST, cluster.ports[1]), timeout=5.0)
        self._socket = context.wrap_socket(plain, server_hostname=HOST)
        self._socket.sendall(HTTP2_PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0)))
        self._socket.setblocking(False)

    def recv(self, size: int) -> bytes:
        try:
            return self._socket.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, content: bytes) -> int:
        try:
            return self._socket.send(content)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def close(self) -> None:
        self._socket.close()


class Stranger(HalfSender):
    """Authenticate, with messages of any size, on a connection that takes no answer."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._socket = _Tls(cluster)  # type: ignore[assignment]
        self._came = self._going = b""
        self._window_bytes = self._first_window_bytes = 65_535
        self._streams = {}
        self.ended = False

    def ask(self, count: int, size_bytes: int) -> None:
        length = b""
        left = size_bytes
        while left >= 0x80:
            length += bytes([left & 0x7F | 0x80])
            left >>= 7
        content = b"\x12" + length + bytes([left])
        for number in range(1, 2 * count, 2):
            self._going += frame(1, 4, number, call_headers(AUTHENTICATE, b"https"))
            head = struct.pack(">BI", 0, size_bytes + len(content)) + content
            self._streams[number] = _Stream(size_bytes + len(head), self._first_window_bytes, head)


def test_strangers_that_send_without_end_do_not_stop_a_producer(cluster: SecuredCluster) -> None:
    with contextlib.ExitStack() as stack:
        strangers = [Stranger(cluster) for _ in range(8)]
        for each in strangers:
            stack.enter_context(each)
            each.pump(0.3)
            each.ask(8, 4_000_000)
        stop = threading.Event()

        def pump() -> None:
            while not stop.wait(0.001):
                for each in strangers:
                    each.pump(0.0)

        thread = threading.Thread(target=pump)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        time.sleep(10.0)
        settings = {**cluster.client, "delivery.timeout.ms": 15_000, "request.timeout.ms": 5_000}
        with Producer(settings) as producer:
            producer.send(TOPIC, b"honest").result(timeout=20.0)
