"""Brokers started wrongly, and commands interrupted at any moment: one line, the right exit code, no process left."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.errors import InconsistentClusterId, RetriableError, TimedOut
from tests import programs
from tests.cluster import STREAM_PORT_OFFSET, Cluster, free_ports, pairs_of, running_cluster, running_program
from tests.pool import THREE, shared_cluster
from tests.proxy import Proxy

END_WITHIN_S = 30.0


cluster = shared_cluster(THREE)


def broker(
    number: int, port: int, directory: pathlib.Path, voters: str, *more: str
) -> subprocess.CompletedProcess[str]:
    where = ("--listen", f"127.0.0.1:{port}", "--data-dir", str(directory), "--voters", voters)
    return programs.run("broker", "--id", str(number), *where, *more, timeout_s=END_WITHIN_S)


def refused(ended: subprocess.CompletedProcess[str], code: int, words: str) -> None:
    assert "Traceback" not in ended.stderr + ended.stdout
    last = ended.stderr.splitlines()[-1]
    assert re.search(words, last), ended.stderr
    assert ended.returncode == code


def test_a_data_directory_in_use_names_who_has_it(cluster: Cluster) -> None:
    (port,) = free_ports(1)
    directory = cluster.data_directory(1)
    ended = broker(1, port, directory, f"1@127.0.0.1:{port}")
    refused(ended, 1, f"^minilog: .*{re.escape(str(directory))} is in use by process {cluster.processes[1].pid}: ")
    assert cluster.processes[1].poll() is None


def test_a_data_directory_of_another_broker_is_refused(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path, brokers=1) as mine:
        assert mine.stop() == {1: 0}
    directory, port = mine.data_directory(1), mine.ports[1]
    before = (directory / "broker.json").read_bytes()
    ended = broker(2, port, directory, f"1@127.0.0.1:{port}")
    refused(ended, 1, r"^minilog: .* belongs to broker 1, and this is broker 2")
    assert (directory / "broker.json").read_bytes() == before
    mine.start()
    mine.wait_running()
    assert mine.stop() == {1: 0}


def test_a_port_taken_and_a_mistyped_setting_are_named(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    port = cluster.ports[1]
    refused(
        broker(2, port, tmp_path / "data", f"1@127.0.0.1:{port}"), 1, f"^minilog: broker 2 .*127.0.0.1:{port}.*taken"
    )
    ended = broker(2, port, tmp_path / "none", f"1@127.0.0.1:{port}", "--set", "segment.byte=1")
    refused(ended, 2, r"^minilog: .*segment\.byte \(-c\).*segment\.bytes")
    assert not (tmp_path / "none").exists()


# While it imports, or about when it starts, and when it is seen to run, on the directory of the one interrupted before.
MOMENTS = {signal.SIGINT: ("imports", "runs"), signal.SIGTERM: ("starts", "runs")}
STARTS_AFTER_S = 0.9
CODE_WHEN_RUNNING = {"up": 0, "broker": 0, "consume": 0, "produce": 1}


def wait_until_it_imports(process: subprocess.Popen[str]) -> None:
    """Before the first library is mapped the interrupt may be the interpreter's own, which is still starting."""
    maps = pathlib.Path(f"/proc/{process.pid}/maps")
    deadline = time.monotonic() + END_WITHIN_S
    while "site-packages" not in maps.read_text():
        assert time.monotonic() < deadline, "it imports nothing"
        time.sleep(0.005)


def wait_until_it_runs(process: subprocess.Popen[str], verb: str, data: pathlib.Path) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    if verb == "broker":
        deadline = time.monotonic() + END_WITHIN_S
        while not (data / "broker.pid").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return
    if verb == "produce":
        process.stdin.write("one\n")
        process.stdin.flush()
    assert process.stdout.readline()


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
@pytest.mark.parametrize(
    ("verb", "number"),
    [
        ("up", signal.SIGTERM),
        ("broker", signal.SIGTERM),
        ("produce", signal.SIGINT),
        ("consume", signal.SIGINT),
        *(pytest.param(verb, signal.SIGINT, marks=pytest.mark.long) for verb in ("up", "broker")),
        *(pytest.param(verb, signal.SIGTERM, marks=pytest.mark.long) for verb in ("produce", "consume")),
    ],
)
def test_a_signal_at_any_moment_ends_a_command_cleanly(
    cluster: Cluster, tmp_path: pathlib.Path, verb: str, number: signal.Signals
) -> None:
    port, http = free_ports(2)
    data, servers = tmp_path / "data", cluster.bootstrap_servers
    commands = {
        "up": f"up --brokers 1 --port {port} --http-port {http} --data-dir {data}",
        "broker": f"broker --id 1 --listen 127.0.0.1:{port} --data-dir {data} --voters 1@127.0.0.1:{port} "
        f"--http 127.0.0.1:{http}",
        "produce": f"produce signals --json -b {servers}",
        "consume": f"consume signals -b {servers}",
    }
    if verb in ("produce", "consume"):
        programs.run("topic", "create", "signals", "-b", servers)
    if verb == "consume":
        assert programs.run("produce", "signals", "-b", servers, stdin="one\n").returncode == 0
    for moment in MOMENTS[number]:
        with running_program([*programs.MINILOG, *commands[verb].split()]) as process:
            if moment == "runs":
                wait_until_it_runs(process, verb, data)
            elif moment == "imports":
                wait_until_it_imports(process)
            else:
                time.sleep(STARTS_AFTER_S)
            process.send_signal(number)
            _, said = process.communicate(timeout=END_WITHIN_S)
        assert "Traceback" not in said, (moment, said)
        # Before our own handler is there, SIGTERM does what it does to any process.
        expected = (CODE_WHEN_RUNNING[verb],) if moment == "runs" else (0, 1, -number)
        assert process.returncode in expected, (moment, said)
        for each in data.glob("**/broker.pid"):
            assert not pathlib.Path(f"/proc/{each.read_text().strip()}").exists(), (moment, "a process is left")
        (data / "broker.pid").unlink(missing_ok=True)


def test_a_broker_on_an_ipv6_address_registers_and_serves(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Once: brackets went into the host that others are given. A machine without ::1 gets the sentence that says so.
    A client that is given brokers of two clusters is refused."""
    (port,) = free_ports(1)
    address = f"[::1]:{port}"
    command = [*programs.MINILOG, "broker", "--id", "1", "--listen", address, "--voters", f"1@{address}"]
    with running_program([*command, "--data-dir", str(tmp_path), "--set", "min.insync.replicas=1"]) as running:
        if not socket.has_ipv6 or not has_ipv6_loopback():
            _, said = running.communicate(timeout=END_WITHIN_S)
            assert f"cannot listen on {address}" in said
            return
        servers = {"bootstrap.servers": address, "max.block.ms": 30_000}
        with Admin(servers) as admin, Producer(servers) as producer:
            wait_for(lambda: admin.create_topics([NewTopic("six", 1, 1)]))
            assert producer.send("six", b"v6").result(timeout=END_WITHIN_S).offset == 0
            assert [(each.host, each.port) for each in admin.describe_cluster().brokers] == [("::1", port)]
        both = {"bootstrap.servers": f"{address},{cluster.bootstrap_servers}"}
        with Admin(both) as admin, pytest.raises(InconsistentClusterId, match="brokers of one cluster"):
            [admin.list_topics() for _ in range(20)]  # another broker is asked first each time


@pytest.mark.long
def test_an_advertised_address_that_cannot_be_reached_is_named_by_all(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: clients told of no controller, of no leader and of 0 attempts, and `cluster health` advised to start what
    runs."""
    port, advertised = free_ports(2)
    address, where = f"127.0.0.1:{port}", f"127.0.0.1:{advertised}"
    command = [*programs.MINILOG, "broker", "--id", "1", "--listen", address, "--voters", f"1@{address}"]
    command += ["--data-dir", str(tmp_path), "--set", f"advertised.address={where}"]

    def named(reason: str) -> str:
        return (
            rf"broker 1 advertises {where}, but this client cannot connect to it \({reason}\): its advertised.address"
        )

    by_calls = named("Connection refused")
    stream_port = rf"127\.0\.0\.1:{advertised + STREAM_PORT_OFFSET} \(Connection refused\)"
    by_streams = rf"broker 1 advertises {where}, but this client cannot open a stream at .*{stream_port}"
    servers = {"bootstrap.servers": address, "request.timeout.ms": 1_500, "group.id": "report"}
    partition = TopicPartition("topic", 0)
    with running_program([*command, "--set", "min.insync.replicas=1"]):
        with contextlib.closing(Proxy({"broker": pairs_of(advertised, port)})) as there, Admin(servers) as admin:
            there.accept("broker")
            wait_for(lambda: admin.create_topics([NewTopic("topic", 1, 1)]))
        with Admin(servers) as admin:
            assert [each.code for each in admin.cluster_health().problems] == ["ADDRESS_NOT_REACHED"]
            for call in (
                lambda: admin.create_topics([NewTopic("another", 1, 1)]),
                lambda: admin.list_offsets({partition: "latest"}),
                admin.list_groups,
                admin.list_transactions,
                admin.describe_users,
            ):
                with pytest.raises(RetriableError, match=by_calls):
                    call()
        with (
            Producer({**servers, "delivery.timeout.ms": 2_500}) as producer,
            pytest.raises(TimedOut, match=f"{by_calls}|{by_streams}"),
        ):
            producer.send("topic", b"x").result(timeout=END_WITHIN_S)
        caplog.clear()
        with Consumer(servers) as consumer:
            consumer.assign({partition: 0})  # it may connect before the poll
            consumer.poll(2.5)
    assert [record.levelname for record in caplog.records if re.search(by_streams, record.getMessage())] == ["WARNING"]


def has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def wait_for(call: Callable[[], object]) -> None:
    """Until a broker that has just been started answers."""
    end_s = time.monotonic() + END_WITHIN_S
    while True:
        try:
            call()
        except RetriableError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)
        else:
            return
