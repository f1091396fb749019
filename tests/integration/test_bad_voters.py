"""Voter lists that disagree, and broker ids used twice: a recorded cluster goes on, and a new one is not founded."""

from __future__ import annotations

import pathlib
import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic, Producer
from tests.cluster import HOST, Cluster, free_ports, running_cluster
from tests.pool import THREE, shared_cluster

ENDS_WITHIN_S = 30.0
TOPIC = "served"


shared = shared_cluster(THREE)


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    with Admin(shared.client) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])
    return shared


@pytest.fixture(autouse=True)
def the_cluster_goes_on(cluster: Cluster) -> Iterator[None]:
    before = {broker_id: process.pid for broker_id, process in cluster.processes.items()}
    yield
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send(TOPIC, value=b"still here").result(timeout=20)
    assert {broker_id: process.pid for broker_id, process in cluster.processes.items()} == before
    assert all(process.poll() is None for process in cluster.processes.values())


def controller(cluster: Cluster) -> int:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        found = admin.describe_cluster().controller
    assert found is not None
    return found


def command_of(cluster: Cluster, broker_id: int, directory: pathlib.Path, voters: str) -> list[str]:
    """To start one more broker, at a port of its own."""
    (port,) = free_ports(1)
    command = cluster.command(cluster.voters[0])
    for option, value in (("--id", broker_id), ("--listen", f"{HOST}:{port}"), ("--voters", voters)):
        command[command.index(option) + 1] = str(value)
    command[command.index("--data-dir") + 1] = str(directory)
    return command


def ended(cluster: Cluster, broker_id: int, directory: pathlib.Path, voters: str) -> str:
    """It ends by itself with code 1 and one sentence: that one."""
    command = command_of(cluster, broker_id, directory, voters)
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    assert done.returncode == 1, said
    return said.strip().splitlines()[-1]


def list_of(cluster: Cluster, *ids: int) -> str:
    (port,) = free_ports(1)
    return ",".join(f"{each}@{HOST}:{cluster.ports.get(each, port)}" for each in ids)


def registers(command: list[str]) -> None:
    """The broker of this command comes so far that it is registered, and stops in order."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as broker:
        assert broker.stdout is not None
        assert any("registered" in line for line in broker.stdout)
        broker.terminate()
        broker.stdout.read()
    assert broker.returncode == 0


@pytest.mark.long
@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_brokers_that_are_started_with_other_voters_go_on_with_the_recorded_ones(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path) as other, Admin({"bootstrap.servers": other.bootstrap_servers}) as admin:
        registers(command_of(other, 9, tmp_path / "new", list_of(other, 1, 2, 4)))
        other.stop(3)
        registers(command_of(other, 3, other.data_directory(3), list_of(other, 3, 7)))
        registers(command_of(other, 3, other.data_directory(3), list_of(other, 1)))
        assert [voter.id for voter in admin.describe_cluster().voters] == [1, 2, 3]


def test_a_broker_id_used_twice_is_refused_while_the_first_lives(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    broker_id = next(each for each in cluster.voters if each != controller(cluster))
    said = ended(cluster, broker_id, tmp_path / "second", cluster.voter_list)
    assert re.search(
        rf"^minilog: broker {broker_id}: a live process at .* has broker id {broker_id} and another data directory",
        said,
    ), said


@pytest.mark.long
def test_the_controllers_id_used_twice_waits_and_says_why(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Nobody refuses it: everybody says that the controller is whoever has its id."""
    command = command_of(cluster, controller(cluster), tmp_path / "second", cluster.voter_list)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as second:
        try:
            assert second.stdout is not None
            said = second.stdout.readline()
        finally:
            second.terminate()
    assert "no other process runs under its id" in said
    assert second.returncode == 0


def test_new_voters_that_disagree_found_nothing_and_say_so(tmp_path: pathlib.Path) -> None:
    """Two say 1, 2, 3, the third says 1, 3, 4: no cluster comes of it, and each names both lists, once."""
    new = Cluster(tmp_path)
    (new.ports[4],) = free_ports(1)
    try:
        new.start(1, 2)
        new.voters = [1, 3, 4]
        new.start(3)
        deadline = time.monotonic() + ENDS_WITHIN_S
        while not all("refuses this broker" in new.log_text(each) for each in (1, 2, 3)):
            assert time.monotonic() < deadline, [new.log_text(each) for each in (1, 2, 3)]
            time.sleep(0.1)
        new.end()
        said = [new.log_text(each) for each in (1, 2, 3)]
    finally:
        new.end()
    for each in said:
        assert "[1, 2, 3]" in each
        assert "[1, 3, 4]" in each
        assert each.count("refuses this broker") == 1
        assert "registered" not in each
