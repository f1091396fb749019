"""A reader of what is not in memory waits for the disk, and nobody else does: a real broker whose reads are slow."""

from __future__ import annotations

import contextlib
import pathlib
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from minilog import Consumer, NewTopic, Producer
from tests import programs
from tests.cluster import Cluster
from tests.integration import slow_disk
from tests.integration.moving import admin as admin_of
from tests.rules import proves

pytestmark = proves("RD.7", "RD.8")

RECORDS, RECORD_BYTES = 64, 65_536  # 4 MiB: a message and a little more
CONFIRMED_WITHIN_S = 0.4  # on a machine with much else to do; less than a read takes


class SlowCluster(Cluster):
    """One broker; while `flag` is there, each read of the topic `cold` takes so long."""

    def __init__(self, directory: pathlib.Path, seconds: float) -> None:
        super().__init__(directory, brokers=1)
        self.flag = directory / "slow"
        self._seconds = seconds

    def command(self, broker_id: int) -> list[str]:
        slow = [sys.executable, slow_disk.__file__, str(self._seconds), str(self.flag), "/cold-"]
        return [*slow, *super().command(broker_id)[len(programs.MINILOG) :]]

    def reading_threads(self) -> set[str]:
        reads = self.flag.with_suffix(".reads")
        return set(reads.read_text().split()) if reads.exists() else set()


@pytest.fixture(params=[0.5, pytest.param(2.0, marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[SlowCluster]:
    cluster = SlowCluster(tmp_path, request.param)
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.end)
        cluster.start()
        cluster.wait_running()
        with admin_of(cluster) as admin:
            admin.create_topics([NewTopic("cold", 1, 1), NewTopic("other", 1, 1)])
        with Producer(cluster.client) as producer:
            for _ in range(RECORDS):
                producer.send("cold", b"x" * RECORD_BYTES)
            producer.send("other", b"first")
        cluster.flag.touch()
        yield cluster


def confirmations(cluster: Cluster, ended: threading.Event) -> list[float]:
    """How long each record of `other` takes to be acknowledged, one after the other until the end."""
    took_s = []
    with Producer(cluster.client) as producer:
        while not ended.is_set():
            began_s = time.monotonic()
            producer.send("other", b"record").result(timeout=30)
            took_s.append(time.monotonic() - began_s)
            ended.wait(0.02)
    return took_s


@pytest.mark.dear("it waits until a bad or full disk is noticed")
def test_acknowledgements_of_another_topic_do_not_wait_and_the_reader_gets_on(cluster: SlowCluster) -> None:
    ended, took_s = threading.Event(), list[float]()
    writing = threading.Thread(target=lambda: took_s.extend(confirmations(cluster, ended)))
    writing.start()
    try:
        with Consumer({**cluster.client, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["cold"])
            found, until_s = 0, time.monotonic() + 30
            while found < RECORDS and time.monotonic() < until_s:
                found += len(consumer.poll(timeout=1.0))
        assert found == RECORDS
    finally:
        ended.set()
        writing.join()
    assert max(took_s) < CONFIRMED_WITHIN_S
    assert cluster.reading_threads()
    assert all(thread.startswith("data-reader") for thread in cluster.reading_threads())
