"""The command line against real brokers: what is printed, the exit codes, and clean ends."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from minilog import Consumer, Producer
from minilog.errors import UnknownTopicOrPartition
from tests import programs
from tests.cluster import Cluster, free_ports, running_program
from tests.pool import THREE, shared_cluster

END_WITHIN_S = 60.0


cluster = shared_cluster(THREE)


def minilog(cluster: Cluster | None, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {} if cluster is None else {"MINILOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    ended = programs.run(*arguments, stdin=stdin, environment=environment)
    assert "Traceback" not in ended.stderr
    return ended


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_records_produced_are_consumed_with_keys_and_offsets(cluster: Cluster) -> None:
    assert minilog(cluster, "topic", "create", "letters", "-p", "1", "-r", "3").returncode == 0
    sent = minilog(cluster, "produce", "letters", "--key-delimiter", ":", "--json", stdin="a:1\nb:2\nc:3\n")
    assert (sent.returncode, [each["offset"] for each in documents(sent.stdout)]) == (0, [0, 1, 2])
    read = minilog(cluster, "consume", "letters", "-o", "start", "--exit-at-end", "--json")
    assert [(each["key"], each["value"], each["offset"]) for each in documents(read.stdout)] == [
        ("a", "1", 0),
        ("b", "2", 1),
        ("c", "3", 2),
    ]
    assert minilog(cluster, "consume", "letters", "-o", "-2", "-n", "1").stdout == "2\n"
    outside = minilog(cluster, "consume", "letters", "-o", "9")
    assert (outside.returncode, outside.stdout) == (1, "")
    assert "offset 9 is outside letters-0, whose log goes from 0 to 3" in outside.stderr


def test_a_topic_lives_from_create_to_delete(cluster: Cluster) -> None:
    assert minilog(cluster, "topic", "create", "short", "-c", "min.insync.replicas=2").returncode == 0
    again = minilog(cluster, "topic", "create", "short")
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert minilog(cluster, "topic", "alter", "short", "-p", "2").returncode == 0
    (described,) = documents(minilog(cluster, "topic", "describe", "short", "--json").stdout)
    assert described["configs"] == {"min.insync.replicas": "2"}
    assert [each["partition"] for each in described["partitions"]] == [0, 1]
    assert minilog(cluster, "topic", "delete", "short").returncode == 0
    assert "short" not in json.loads(minilog(cluster, "topic", "list", "--json").stdout)
    assert minilog(cluster, "topic", "describe", "short").returncode == 1


def test_a_mistyped_topic_setting_offers_the_nearest(cluster: Cluster) -> None:
    refused = minilog(cluster, "topic", "create", "typo", "-c", "min.insync.replica=2")
    assert refused.returncode == 2
    assert "min.insync.replicas" in refused.stderr


def test_a_setting_can_be_deleted_again(cluster: Cluster) -> None:
    assert minilog(cluster, "topic", "create", "unset", "-c", "retention.ms=1000000").returncode == 0
    assert minilog(cluster, "topic", "alter", "unset", "--delete-config", "retention.ms").returncode == 0
    (described,) = documents(minilog(cluster, "topic", "describe", "unset", "--json").stdout)
    assert "retention.ms" not in described["configs"]


def test_a_producer_finds_partitions_that_were_added_a_moment_ago(cluster: Cluster) -> None:
    """Once: it said that there was no such partition, until its metadata was refreshed by the clock."""
    assert minilog(cluster, "topic", "create", "growing", "-p", "1").returncode == 0
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "metadata.max.age.ms": 600_000}) as producer:
        producer.send("growing", b"one").result(10)
        assert minilog(cluster, "topic", "alter", "growing", "-p", "3").returncode == 0
        assert producer.send("growing", b"two", partition=2).result(10).partition == 2
        with pytest.raises(UnknownTopicOrPartition, match="has partitions 0 to 2, not 3"):
            producer.send("growing", b"none", partition=3)


def test_subscribing_to_a_topic_that_is_not_there_is_told(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        consumer.subscribe(["nowhere"])
        assert consumer.poll(timeout=2.0) == []
        assert consumer.missing_topics() == ["nowhere"]
    assert "'nowhere'" in caplog.text
    refused = minilog(cluster, "consume", "nowhere")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "create it (minilog topic create nowhere)" in refused.stderr


def test_a_group_of_any_name_is_listed(cluster: Cluster) -> None:
    """Once: one named [/x] ended the listing of all."""
    assert minilog(cluster, "topic", "create", "grouped", "-p", "1").returncode == 0
    for name in ("[/x]", "\x1b[2J"):
        assert minilog(cluster, "group", "seek", name, "-t", "grouped", "-o", "end").returncode == 0
    listed = minilog(cluster, "group", "list")
    assert listed.returncode == 0
    assert "[/x]" in listed.stdout
    assert "\\x1b[2J" in listed.stdout
    assert "\x1b" not in listed.stdout
    assert {"[/x]", "\x1b[2J"} <= {
        each["group_id"] for each in json.loads(minilog(cluster, "group", "list", "--json").stdout)
    }


def test_trim_says_what_was_done_and_what_was_not(cluster: Cluster) -> None:
    assert minilog(cluster, "topic", "create", "trimmed", "-p", "2").returncode == 0
    assert minilog(cluster, "produce", "trimmed", "-p", "0", stdin="a\nb\n").returncode == 0
    ended = minilog(cluster, "topic", "trim", "trimmed", "--to", "0:1", "--to", "1:500")
    assert ended.returncode == 1
    assert "partition 1 of topic 'trimmed'" in ended.stderr
    assert "partition 0 of topic 'trimmed' starts at 1 now" in ended.stderr


def test_the_cluster_is_described(cluster: Cluster) -> None:
    (found,) = documents(minilog(cluster, "cluster", "describe", "--json").stdout)
    assert found["controller"] in (1, 2, 3)
    assert [(each["id"], each["state"]) for each in found["brokers"]] == [(number, "running") for number in (1, 2, 3)]


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=1000\n")
    ended = minilog(None, "topic", "list", "-b", f"127.0.0.1:{port}", "--command-config", str(config))
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert str(port) in ended.stderr


def test_up_names_a_port_that_is_taken(tmp_path: pathlib.Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = minilog(None, "up", "--brokers", "1", "--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert ended.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken" in ended.stderr
    assert not (tmp_path / "data").exists()


@contextlib.contextmanager
def up(directory: pathlib.Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [
        *programs.MINILOG,
        "up",
        "--brokers",
        "2",
        "--port",
        str(port),
        "--http-port",
        "0",
        "--data-dir",
        str(directory),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready == f"minilog is ready: bootstrap.servers=127.0.0.1:{port},127.0.0.1:{port + 1}\n"
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=END_WITHIN_S)


def test_headers_a_key_of_a_file_a_timestamp_and_a_value_of_a_file(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    assert minilog(cluster, "topic", "create", "images").returncode == 0
    (tmp_path / "key").write_bytes(b"\x00\xff\n")
    (tmp_path / "value").write_bytes(b"two\nlines\n")
    given = ["--key-file", str(tmp_path / "key"), "-H", "source=radar", "-H", "empty=", "--timestamp", "1714566600000"]
    written = minilog(cluster, "produce", "images", *given, "--file", str(tmp_path / "value"))
    assert (written.returncode, written.stderr) == (0, "1 records acknowledged\n")
    (document,) = documents(minilog(cluster, "consume", "images", "--exit-at-end", "--json").stdout)
    assert (document["key_base64"], document["value"], document["timestamp"]) == ("AP8K", "two\nlines\n", 1714566600000)
    assert document["headers"] == [{"key": "source", "value": "radar"}, {"key": "empty", "value": ""}]


def test_several_topics_in_a_format(cluster: Cluster) -> None:
    for topic in ("left", "right"):
        assert minilog(cluster, "topic", "create", topic).returncode == 0
        assert minilog(cluster, "produce", topic, "-k", "k", stdin=f"of {topic}\n").returncode == 0
    form = r"%t-%p@%o %k=%s %K,%S%%\x21\n"
    read = minilog(cluster, "consume", "left", "right", "--exit-at-end", "-f", form)
    assert sorted(read.stdout.splitlines()) == ["left-0@0 k=of left 1,7%!", "right-0@0 k=of right 1,8%!"]


_READY = re.compile(r"minilog is ready: bootstrap\.servers=(\S+)\n")


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_up_on_any_free_ports_resumes_with_other_ports(tmp_path: pathlib.Path) -> None:
    """The addresses of brokers are not stored on disk, also with three voters."""
    command = [*programs.MINILOG, "up", "--port", "0", "--data-dir", str(tmp_path)]
    addresses = []
    for verb in ("topic create kept", "topic describe kept"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        with process:
            assert process.stdout is not None
            match = _READY.fullmatch(process.stdout.readline())
            assert match is not None
            servers = match.group(1)
            addresses.append(servers)
            assert minilog(None, *verb.split(), "-b", servers).returncode == 0
            process.terminate()
            assert process.wait(END_WITHIN_S) == 0
    assert all(len(set(servers.split(","))) == 3 for servers in addresses)
    assert addresses[0] != addresses[1]


def two_ports_in_a_row() -> int:
    for port in free_ports(20):
        with socket.socket() as next_one, contextlib.suppress(OSError):
            next_one.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two free ports in a row among twenty")


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
@pytest.mark.parametrize("stop_signal", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_up_stops_cleanly_and_resumes_on_the_same_directory(
    tmp_path: pathlib.Path, stop_signal: signal.Signals
) -> None:
    port = two_ports_in_a_row()
    servers = f"127.0.0.1:{port}"
    with up(tmp_path, port) as process:
        pids = [int((tmp_path / f"broker-{number}" / "broker.pid").read_text()) for number in (1, 2)]
        assert minilog(None, "topic", "create", "kept", "-b", servers).returncode == 0
        assert minilog(None, "produce", "kept", "-b", servers, stdin="one\n").returncode == 0
        process.send_signal(stop_signal)
        _, errors = process.communicate(timeout=END_WITHIN_S)
        assert (process.returncode, errors) == (0, "")
        assert not [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]
    with up(tmp_path, port):
        assert minilog(None, "consume", "kept", "--exit-at-end", "-b", servers).stdout == "one\n"


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_up_refuses_a_second_up_and_reports_a_broker_that_dies(tmp_path: pathlib.Path) -> None:
    """Once: the second was refused, and had overwritten and removed the pid files by then."""
    with up(tmp_path, two_ports_in_a_row()) as process:
        files = [tmp_path / f"broker-{number}" / "broker.pid" for number in (1, 2)]
        pids = [file.read_text() for file in files]
        arguments = ("--brokers", "2", "--port", str(two_ports_in_a_row()), "--http-port", "0")
        second = minilog(None, "up", *arguments, "--data-dir", str(tmp_path))
        assert second.returncode == 1
        assert "in use by process" in second.stderr
        assert [file.read_text() for file in files] == pids
        assert {file.parent.stat().st_mode & 0o777 for file in files} == {0o700}
        os.kill(int(pids[1]), signal.SIGKILL)
        assert process.stderr is not None
        assert process.stderr.readline() == "minilog: broker 2 died (SIGKILL)\n"
        assert process.poll() is None
    assert not files[0].exists()


def test_an_interrupted_consumer_ends_cleanly(cluster: Cluster) -> None:
    assert minilog(cluster, "topic", "create", "endless", "-p", "1").returncode == 0
    assert minilog(cluster, "produce", "endless", stdin="one\n").returncode == 0
    command = [*programs.MINILOG, "consume", "endless", "-b", cluster.bootstrap_servers]
    with running_program(command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=END_WITHIN_S)
    assert (process.returncode, errors) == (0, "")
