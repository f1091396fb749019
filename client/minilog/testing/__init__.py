"""A cluster for the tests of programs that use minilog: one real broker, in a process of its own, on a free port.

    from minilog.testing import running_cluster

    with running_cluster() as cluster:
        producer = Producer(cluster.settings)

For pytest there is the fixture `minilog_cluster` in `minilog.testing.fixtures`. At the end of the block the broker ends
and its data goes, also when the test process dies in the block. Brokers need the extra `broker`.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from minilog.addresses import parse_address
from minilog.errors import MinilogError
from minilog.sync.admin import Admin

__all__ = ["RunningCluster", "running_cluster"]

START_WITHIN_S = 60.0
"""A start takes about one second of CPU. A machine that runs many tests at a time may need long for it."""
_ANSWER_WITHIN_MS = 2_000
_LOOK_EVERY_S = 0.02
_LAST_LINES = 5  # of the log of a broker that did not start
_PREFIX = "bootstrap.servers="


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A cluster of one broker, ready for clients. A topic in it has one replica."""

    bootstrap_servers: str
    """`HOST:PORT`, for clients and for Spark's option `bootstrap.servers`."""

    @property
    def settings(self) -> dict[str, str]:
        """The settings for a Producer, a Consumer or an Admin: a new dictionary at each access, to which a test may add
        its own."""
        return {"bootstrap.servers": self.bootstrap_servers}


@contextlib.contextmanager
def running_cluster(
    settings: Mapping[str, str] | None = None, *, start_within_s: float = START_WITHIN_S
) -> Iterator[RunningCluster]:
    """A new and empty cluster for the length of the block.

    `settings`: those of its broker (docs/reference/settings.md). Raises RuntimeError, with the end of the broker's log,
    where the broker does not run in time.
    """
    with tempfile.TemporaryDirectory(prefix="minilog-testing-", ignore_cleanup_errors=True) as folder:
        directory = pathlib.Path(folder)
        with _broker(directory, settings or {}) as process:
            yield _started(process, directory, time.monotonic() + start_within_s)


@contextlib.contextmanager
def _broker(directory: pathlib.Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The broker's process. It is killed at the end of the block, since its data goes with it."""
    command = [sys.executable, "-m", "minilog_tools.single_broker", str(os.getpid()), str(directory)]
    command += [f"{name}={value}" for name, value in settings.items()]
    with _log(directory).open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, process_group=0
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _started(process: subprocess.Popen[bytes], directory: pathlib.Path, deadline_s: float) -> RunningCluster:
    """The cluster, as soon as it is ready for clients."""
    servers = _read_servers(process, deadline_s)
    # A call of gRPC to a closed port waits a second before it tries again. So the port is checked first.
    while servers and process.poll() is None and time.monotonic() < deadline_s:
        if _is_open(servers) and _is_running(servers):
            return RunningCluster(servers)
        time.sleep(_LOOK_EVERY_S)
    lines = _log(directory).read_text(errors="replace").splitlines()[-_LAST_LINES:]
    failure = "is not running in time" if process.poll() is None else f"ended with exit code {process.returncode}"
    raise RuntimeError(f"the broker of minilog.testing {failure}. Its log ends with: {' | '.join(lines) or 'nothing'}")


def _read_servers(process: subprocess.Popen[bytes], deadline_s: float) -> str:
    """The address in the first line of its output, empty where the line does not come in time."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
        return ""
    return process.stdout.readline().decode().strip().removeprefix(_PREFIX)


def _is_open(servers: str) -> bool:
    try:
        socket.create_connection(parse_address(servers), timeout=_ANSWER_WITHIN_MS / 1_000).close()
    except OSError:
        return False
    return True


def _is_running(servers: str) -> bool:
    try:
        with Admin({"bootstrap.servers": servers, "request.timeout.ms": _ANSWER_WITHIN_MS}) as admin:
            return any(broker.state == "running" for broker in admin.describe_cluster().brokers)
    except MinilogError:
        return False


def _log(directory: pathlib.Path) -> pathlib.Path:
    return directory / "broker-1.log"
