"""The spoiled network itself: what each rule does to bytes, ends of streams and new connections."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.cluster import HOST, free_ports
from tests.proxy import CLIENT, CUT, Proxy

SERVER = "broker-1"
SOON_S = 5.0
QUIET_S = 0.15


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as server:
        server.settimeout(SOON_S)
        yield server


@pytest.fixture
def proxy(listener: socket.socket) -> Iterator[Proxy]:
    proxy = Proxy({SERVER: [(free_ports(1)[0], listener.getsockname()[1])]})
    proxy.accept(SERVER)
    listener.accept()[0].close()  # the proxy's look whether somebody listens
    yield proxy
    proxy.close()


def public_port(proxy: Proxy) -> int:
    return proxy._targets[SERVER][0][0]


def connect(proxy: Proxy) -> socket.socket:
    deadline = time.monotonic() + SOON_S
    while True:
        try:
            connection = socket.create_connection((HOST, public_port(proxy)), timeout=SOON_S)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return connection


@contextlib.contextmanager
def connected(proxy: Proxy, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's end and the server's."""
    with connect(proxy) as client:
        server, _ = listener.accept()
        with server:
            server.settimeout(SOON_S)
            yield client, server


def receive(connection: socket.socket, count: int) -> bytes:
    """`count` bytes, or what came before the end."""
    received = b""
    while len(received) < count and (chunk := connection.recv(count - len(received))):
        received += chunk
    return received


def says_nothing(connection: socket.socket) -> bool:
    connection.settimeout(QUIET_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(SOON_S)
    return False


def test_bytes_and_ends_of_streams_pass_both_ways(proxy: Proxy, listener: socket.socket) -> None:
    sent = os.urandom(300_000)
    with connected(proxy, listener) as (client, server):
        client.sendall(sent[:1000])
        assert receive(server, 1000) == sent[:1000]
        server.sendall(sent)
        server.shutdown(socket.SHUT_WR)
        assert receive(client, len(sent) + 1) == sent
        client.close()
        assert server.recv(1) == b""


def test_a_one_way_cut_holds_one_direction_until_it_is_healed(proxy: Proxy, listener: socket.socket) -> None:
    with connected(proxy, listener) as (client, server):
        proxy.set_rule(CLIENT, SERVER, CUT)
        client.sendall(b"held")
        assert says_nothing(server)
        server.sendall(b"through")
        assert client.recv(7) == b"through"
        client.close()  # the end of the stream is held too
        assert says_nothing(server)
        server.sendall(b"to nobody")
        assert says_nothing(server)
        proxy.heal()
        assert receive(server, 4) == b"held"
        assert server.recv(1) == b""


def test_a_connection_made_during_a_cut_hangs(proxy: Proxy, listener: socket.socket) -> None:
    proxy.set_rule_both_ways(CLIENT, SERVER, CUT)
    with connected(proxy, listener) as (client, server):
        server.sendall(b"hello")
        assert says_nothing(client)
        proxy.heal()
        assert client.recv(5) == b"hello"


def test_a_reset_is_seen_by_both_ends(proxy: Proxy, listener: socket.socket) -> None:
    with connected(proxy, listener) as (client, server):
        client.sendall(b"x")
        assert server.recv(1) == b"x"
        proxy.reset(CLIENT, SERVER)
        for end in (client, server):
            with pytest.raises(ConnectionResetError):
                end.recv(1)


def test_a_broker_that_is_down_refuses(proxy: Proxy, listener: socket.socket) -> None:
    with connected(proxy, listener) as (client, server):
        proxy.refuse(SERVER)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, public_port(proxy)), timeout=SOON_S)
        client.sendall(b"still")
        assert server.recv(5) == b"still"


def test_a_source_is_known_by_its_process(proxy: Proxy, listener: socket.socket) -> None:
    program = f"import socket; s = socket.create_connection(('{HOST}', {public_port(proxy)})); s.send(b'x'); s.recv(1)"
    connect(proxy).close()  # it listens
    listener.accept()[0].close()
    for name, held in (("broker-2", True), (None, False)):
        proxy.set_rule("broker-2", SERVER, CUT)
        with subprocess.Popen([sys.executable, "-c", program]) as process:
            if name is not None:
                proxy.name(process.pid, name)
            server, _ = listener.accept()
            with server:
                server.settimeout(SOON_S)
                assert says_nothing(server) == held
                process.kill()
