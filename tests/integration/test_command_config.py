"""`--command-config FILE`: a file of a client's settings in the place of options."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

from minilog import Admin, Consumer, Producer, properties_file
from minilog.types import TopicPartition
from tests import programs
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

cluster = shared_cluster(THREE)


@pytest.fixture
def file(cluster: Cluster, tmp_path: pathlib.Path) -> pathlib.Path:
    """As Kafka's tools take it; with a group, which `consume` goes by."""
    found = tmp_path / "client.properties"
    servers = cluster.bootstrap_servers.replace(":", "\\:")
    found.write_text(f"# of {cluster}\nbootstrap.servers = {servers}\ngroup.id: readers\nclient.id=by-file\n")
    return found


def minilog(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    ended = programs.run(*arguments, stdin=stdin)
    assert "Traceback" not in ended.stderr
    return ended


def test_a_verb_needs_nothing_but_the_file(file: pathlib.Path) -> None:
    config = ["--command-config", str(file)]
    assert minilog("topic", "create", "letters", "-p", "1", "-r", "1", *config).returncode == 0
    assert minilog("produce", "letters", *config, stdin="a\nb\n").returncode == 0
    assert minilog("consume", "letters", "--exit-at-end", *config).stdout == "a\nb\n"
    assert minilog("produce", "letters", *config, stdin="c\n").returncode == 0
    assert minilog("consume", "letters", "--exit-at-end", *config).stdout == "c\n", "the file's group goes on"
    (described,) = json.loads(minilog("group", "describe", "readers", "--json", *config).stdout)["offsets"]
    assert (described["offset"], described["lag_records"]) == (3, 0)
    assert minilog("consume", "letters", "-o", "0", "-n", "1", *config).stdout == "a\n"


def test_a_file_that_is_refused_is_one_line_and_wrong_usage(file: pathlib.Path, cluster: Cluster) -> None:
    file.write_text(file.read_text() + "sasl.password=hidden\n")
    file.chmod(0o644)
    refused = minilog("cluster", "describe", "--command-config", str(file))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (f"minilog: {file} holds 'sasl.password', and other users may read it: chmod 600 {file}\n")
    file.write_text("linger.mss=1\n")
    refused = minilog("topic", "list", "-b", cluster.bootstrap_servers, "--command-config", str(file))
    assert (refused.returncode, refused.stderr) == (
        2,
        "minilog: there is no setting 'linger.mss': the nearest is 'linger.ms'\n",
    )


def test_the_clients_of_python_take_what_it_says(file: pathlib.Path) -> None:
    settings = properties_file(file)
    assert minilog("topic", "create", "words", "-p", "1", "-r", "1", "--command-config", str(file)).returncode == 0
    with Producer(settings) as producer:
        producer.send("words", b"a").result(timeout=10)
    with Consumer(settings | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("words", 0)])
        assert [record.value for record in consumer.poll(timeout=10.0)] == [b"a"]
    with Admin(settings) as admin:
        assert admin.list_topics().count("words") == 1
