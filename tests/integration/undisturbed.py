"""A well-behaved writer beside messages that should not be: it hardly notices them, and sees no election."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from minilog import Admin, Producer
from tests.cluster import Cluster

P99_S = 0.25
ANSWER_S = 10.0


def leaders(cluster: Cluster, topic: str) -> list[object]:
    """The controller, the leaders of the topic, and their epochs: an election would show."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        described = admin.describe_cluster()
        partitions = admin.describe_topics([topic])[0].partitions
    epochs = [(each.partition, each.leader, each.leader_epoch) for each in partitions]
    return [described.controller, described.controller_epoch, *epochs]


@contextmanager
def undisturbed(cluster: Cluster, topic: str, *, least: int = 100) -> Iterator[None]:
    """One that writes one record after another meanwhile, at `least` so many: 99 of 100 take less than P99_S."""
    before = leaders(cluster, topic)
    took_s: list[float] = []
    stop = threading.Event()

    def write() -> None:
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}) as producer:
            producer.send(topic, value=b"beside: connects").result(timeout=ANSWER_S)
            while not stop.is_set():
                began_s = time.monotonic()
                producer.send(topic, value=f"beside {began_s}".encode()).result(timeout=ANSWER_S)
                took_s.append(time.monotonic() - began_s)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
        deadline_s = time.monotonic() + ANSWER_S
        while len(took_s) < least and thread.is_alive() and time.monotonic() < deadline_s:
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join()
    assert len(took_s) >= least, "the writer beside came to a stop"
    p99_s = statistics.quantiles(took_s, n=100)[-1]
    assert p99_s < P99_S, f"99 of 100 of {len(took_s)} writes took up to {p99_s * 1e3:.0f} ms"
    assert leaders(cluster, topic) == before
