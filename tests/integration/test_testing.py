"""`minilog.testing`, as the tests of a user's program use it."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from minilog import Admin, Consumer, NewTopic, Producer
from minilog.testing import running_cluster

_CONFTEST = 'pytest_plugins = ["minilog.testing.fixtures"]\n'
_TESTS = """
import pytest
from minilog import Admin, NewTopic

@pytest.mark.parametrize("name", ["a", "b"])
def test_a_topic(minilog_cluster, name):
    with Admin(minilog_cluster.settings) as admin:
        admin.create_topics([NewTopic(name)])
        assert name in set(admin.list_topics())
"""
_UNTIL_KILLED = """
import time
from minilog.testing import running_cluster
with running_cluster() as cluster:
    print(cluster.bootstrap_servers, flush=True)
    time.sleep(60)
"""
_GONE_WITHIN_S = 20.0


def _brokers(folder: pathlib.Path) -> list[int]:
    """The processes whose command line names the folder."""
    process_ids = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"minilog_tools.single_broker" in words and any(os.fsencode(folder) in word for word in words):
            process_ids.append(int(path.parent.name))
    return process_ids


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_records_go_in_and_come_out_and_nothing_is_left(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with running_cluster({"num.partitions": "2"}) as cluster:
        assert _brokers(tmp_path)
        with Admin(cluster.settings) as admin:
            admin.create_topics([NewTopic("flights")])
            (described,) = admin.describe_topics(["flights"])
            assert len(described.partitions) == 2
        with Producer(cluster.settings) as producer:
            producer.send("flights", b"late").result(timeout=30)
        group = {"group.id": "report", "auto.offset.reset": "earliest"}
        with Consumer({**cluster.settings, **group}) as consumer:
            consumer.subscribe(["flights"])
            records = [record for _ in range(30) for record in consumer.poll(timeout=0.2)]
            assert [record.value for record in records] == [b"late"]
    assert not _brokers(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_the_fixture_is_one_cluster_for_all_tests_of_a_run(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_program.py").write_text(_TESTS)
    base = tmp_path / "base"
    base.mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(base)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr
    assert not _brokers(base)


def test_a_broker_ends_and_its_data_goes_when_the_test_process_is_killed(tmp_path: pathlib.Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _UNTIL_KILLED], env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"127.0.0.1:")
        (broker,) = _brokers(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + _GONE_WITHIN_S
    while broker in _brokers(tmp_path) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not _brokers(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_broker_that_does_not_start_says_why() -> None:
    with (
        pytest.raises(RuntimeError, match=r"exit code 2.*did you mean segment\.bytes"),
        running_cluster({"segment.byte": "1"}),
    ):
        pass


def test_a_run_without_the_fixture_loads_nothing_of_minilog(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith('minilog')]\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in ended.stdout, ended.stdout
