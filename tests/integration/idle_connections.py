"""What connections cost a secured broker that ask for nothing, and readers that take nothing.

python -m tests.integration.idle_connections --connections 5000 --readers 100

Connections are TLS to clients' listener, with an HTTP/2 preface and nobody behind it: strangers. Readers have a user
and a stream each; they ask for everything, and their programs take nothing. An honest client writes meanwhile, one
record after the other, in a process of its own: it waits for the broker alone, and not for the readers' threads.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import pathlib
import selectors
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

import psutil

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.cluster import HOST
from tests.integration.garbage import HTTP2_PREFACE
from tests.secured import SecuredCluster, running_secured_cluster

TOPIC = "written"
MIB = 1 << 20
WRITTEN_BYTES, RECORD_BYTES = 64 * MIB, 64 << 10
HONEST_WRITES = 300
SETTLE_S = 3.0
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an empty frame of them
_TOGETHER = 100  # handshakes at a time


def connected(cluster: SecuredCluster, count: int) -> list[ssl.SSLSocket]:
    """So many connections that say hello and then nothing."""
    context = ssl.create_default_context(cafile=str(cluster.folder / "clients.pem"))
    context.set_alpn_protocols(["h2"])
    found: list[ssl.SSLSocket] = []
    while len(found) < count:
        some = []
        for _ in range(min(_TOGETHER, count - len(found))):
            raw = socket.create_connection((HOST, cluster.ports[1]))
            raw.setblocking(False)
            some.append(context.wrap_socket(raw, server_hostname=HOST, do_handshake_on_connect=False))
        _shake_hands(some)
        for each in some:
            with contextlib.suppress(OSError):  # it is closed already
                each.send(HTTP2_PREFACE + _SETTINGS)
        found += some
    return found


def _shake_hands(some: list[ssl.SSLSocket]) -> None:
    """Until it is done; or the broker has closed the connection, for there are too many."""
    waiting = dict.fromkeys(some)
    with selectors.DefaultSelector() as selector:
        for each in some:
            selector.register(each, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while waiting:
            for key, _ in selector.select(1.0):
                ready = key.fileobj
                assert isinstance(ready, ssl.SSLSocket)
                try:
                    ready.do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                except OSError:
                    ready.close()
                selector.unregister(key.fileobj)
                del waiting[ready]


def still_open(connections: list[ssl.SSLSocket]) -> int:
    """How many the broker has not closed."""
    count = 0
    for each in connections:
        try:
            while each.recv(65_536):
                pass
        except (ssl.SSLWantReadError, BlockingIOError):
            count += 1
        except (OSError, ValueError):  # it is closed
            pass
    return count


@contextlib.contextmanager
def slow_readers(cluster: SecuredCluster, count: int) -> Iterator[None]:
    """Consumers that are assigned everything, and never polled again."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            consumer = stack.enter_context(Consumer({**cluster.client, "fetch.max.bytes": 50 * MIB}))
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            consumer.poll(0.05)
        yield


def resident_mib(cluster: SecuredCluster) -> float:
    """Of the broker that is asked."""
    return float(psutil.Process(cluster.processes[1].pid).memory_info().rss) / MIB


def honest(client: Mapping[str, Any]) -> str:
    """How long one record after the other takes."""
    took_ms = []
    with Producer({**client, "linger.ms": 0}) as producer:
        producer.send(TOPIC, b"first").result(timeout=30)
        for _ in range(HONEST_WRITES):
            began_s = time.perf_counter()
            producer.send(TOPIC, b"honest").result(timeout=30)
            took_ms.append(1000 * (time.perf_counter() - began_s))
    took_ms.sort()
    return f"p50 {statistics.median(took_ms):.1f} ms, p99 {took_ms[int(0.99 * len(took_ms))]:.1f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--max-connections", type=int, default=6_000, help="of the broker")
    chosen = parser.parse_args()
    settings = {"max.connections": str(chosen.max_connections)}
    with (
        tempfile.TemporaryDirectory(prefix="minilog-idle-") as folder,
        running_secured_cluster(pathlib.Path(folder), 1, settings) as cluster,
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as elsewhere,
    ):
        with Admin(cluster.client) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
        with Producer(cluster.client) as producer:
            for _ in range(WRITTEN_BYTES // RECORD_BYTES):
                producer.send(TOPIC, bytes(RECORD_BYTES))
            producer.flush()
        _tell(cluster, elsewhere, "nobody else")
        began_s = time.monotonic()
        strangers = connected(cluster, chosen.connections)
        print(f"{len(strangers)} connections in {time.monotonic() - began_s:.1f} s")
        time.sleep(SETTLE_S)
        _tell(cluster, elsewhere, f"{still_open(strangers)} idle connections of {len(strangers)}")
        with slow_readers(cluster, chosen.readers):
            time.sleep(SETTLE_S)
            _tell(cluster, elsewhere, f"and {chosen.readers} slow readers")
        for each in strangers:
            each.close()
        time.sleep(SETTLE_S)
        _tell(cluster, elsewhere, "they have gone")
    return 0


def _tell(cluster: SecuredCluster, elsewhere: Executor, when: str) -> None:
    before_mib = resident_mib(cluster)
    felt = elsewhere.submit(honest, cluster.client).result()
    print(f"{when}: {before_mib:.0f} MiB resident; an honest write {felt}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
