"""Brokers that may open few files: hundreds of partitions are served and recovered, and who is deaf ends."""

from __future__ import annotations

import contextlib
import pathlib
import re
import resource
import subprocess
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog_broker.server.ingress.transport.connection_guard import DEAF_S
from tests.cluster import Cluster
from tests.integration import memory_attacks
from tests.integration.well_behaved import unnoticed
from tests.rules import proves

pytestmark = proves("DK.19")

OPEN_FILES = 160
PARTITIONS = 250
TOPIC = "many"
WITHIN_S = 60.0


class FewFiles(Cluster):
    """Whose brokers are started under `ulimit -n`."""

    open_files = OPEN_FILES

    def command(self, broker_id: int) -> list[str]:
        limit = f'ulimit -n {self.open_files} && exec "$@"'
        return ["/bin/sh", "-c", limit, "sh", *super().command(broker_id)]


def write_to_all(cluster: Cluster, value: bytes) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        futures = [producer.send(TOPIC, value=value, partition=partition) for partition in range(PARTITIONS)]
        for future in futures:
            future.result(timeout=WITHIN_S)


def read_all(cluster: Cluster, records: int) -> list[bytes]:
    found: list[bytes] = []
    deadline_s = time.monotonic() + WITHIN_S
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while len(found) < records and time.monotonic() < deadline_s:
            for record in consumer.poll(timeout=1.0):
                assert record.value is not None
                found.append(record.value)
    return sorted(found)


def open_files(cluster: Cluster, broker_id: int) -> int:
    return len(list(pathlib.Path(f"/proc/{cluster.processes[broker_id].pid}/fd").iterdir()))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_more_partitions_than_open_files_are_served_and_recovered(tmp_path: pathlib.Path) -> None:
    cluster = FewFiles(tmp_path)
    try:
        cluster.start()
        cluster.wait_running()
        with Admin({"bootstrap.servers": cluster.bootstrap_servers, "request.timeout.ms": 60_000}) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)])
        write_to_all(cluster, b"first")
        assert read_all(cluster, PARTITIONS) == [b"first"] * PARTITIONS
        cluster.kill(1)
        cluster.start(1)
        cluster.wait_running(WITHIN_S)
        assert set(cluster.stop().values()) == {0}
        cluster.start()
        cluster.wait_running(WITHIN_S)
        write_to_all(cluster, b"second")
        assert read_all(cluster, 2 * PARTITIONS) == [b"first"] * PARTITIONS + [b"second"] * PARTITIONS
        for broker_id in cluster.ports:
            assert open_files(cluster, broker_id) <= OPEN_FILES * 3 // 4
            assert "offline" not in cluster.log_text(broker_id)
            assert "Too many open files" not in cluster.log_text(broker_id)
    finally:
        cluster.end()


@contextlib.contextmanager
def running(directory: pathlib.Path) -> Iterator[FewFiles]:
    cluster = FewFiles(directory)
    try:
        cluster.start()
        cluster.wait_running()
        yield cluster
    finally:
        cluster.end()


@pytest.mark.long
@pytest.mark.quiet
def test_connections_without_number_leave_files_for_those_who_talk(tmp_path: pathlib.Path) -> None:
    _, cluster = unnoticed(tmp_path, memory_attacks.idle_connections, running)
    for broker_id in cluster.ports:
        assert "Too many open files" not in cluster.log_text(broker_id)


@proves("DK.20")
def test_a_broker_takes_the_hard_limit_and_ends_where_it_can_accept_nothing(tmp_path: pathlib.Path) -> None:
    class Soft(FewFiles):
        def command(self, broker_id: int) -> list[str]:
            return ["/bin/sh", "-c", 'ulimit -S -n 64 && exec "$@"', "sh", *Cluster.command(self, broker_id)]

    cluster = Soft(tmp_path, brokers=1)
    try:
        cluster.start()
        cluster.wait_running()
        process = cluster.processes[1]
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard > 64
        # As if something in the process had taken all there are: it keeps what it has, and is given nothing more.
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, 20_000))
        assert process.wait(DEAF_S + WITHIN_S) == 1
        cluster.processes.pop(1)
        said = cluster.log_text(1).splitlines()[-1]
        assert re.search(r"minilog: .*no file descriptor is left, .*ulimit -n", said), said
    finally:
        cluster.end()


def test_a_limit_too_low_for_any_broker_is_refused_at_the_start(tmp_path: pathlib.Path) -> None:
    cluster = FewFiles(tmp_path, brokers=1)
    cluster.open_files = 100
    ended = subprocess.run(cluster.command(1), capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ended.returncode == 1
    assert re.search(r"may open 100 files, and a broker needs at least 128: .*\(ulimit -n\)", ended.stderr)
