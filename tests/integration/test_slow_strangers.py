"""Strangers who stop half way, before it is known who they are: they are ended in time, and nobody else notices."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic, Producer
from tests.cluster import HOST
from tests.integration.garbage import EMPTY_SETTINGS, HTTP2_PREFACE
from tests.integration.memory_attacks import call_headers, frame
from tests.secured import SecuredCluster, running_secured_cluster

pytestmark = pytest.mark.long

TOPIC = "honest"
DEADLINE_S = 5.0
SLACK_S = 3.0
PAUSE_S = 0.05
TOGETHER = 20  # of each kind
AUTHENTICATE = b"/minilog.v1.AuthenticationService/Authenticate"
_DATA, _HEADERS, _RST_STREAM, _END_HEADERS, _END_STREAM = 0, 1, 3, 4, 1


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


def ends_a_stream(content: bytes) -> bool:
    """Whether there is a frame that ends a stream: a reset, or the last one of its answer."""
    while len(content) >= 9:
        length, kind, flags = int.from_bytes(content[:3], "big"), content[3], content[4]
        if kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            return True
        content = content[9 + length :]
    return False


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
        while not ends_a_stream(came):
            content = stranger.recv(1 << 16)
            assert content, came
            came += content
