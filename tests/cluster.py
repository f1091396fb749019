"""Real broker processes for tests: started on free ports, killed and ended by their process id."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from minilog import Admin
from minilog.errors import MinilogError

START_TIMEOUT_S = 30.0


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


class Cluster:
    """Brokers 1 to `brokers`, of which broker 1 is the voter; each is a process of its own."""

    def __init__(self, directory: pathlib.Path, brokers: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.settings = dict(settings or {})
        self.ports = dict(zip(range(1, brokers + 1), free_ports(brokers), strict=True))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def data_directory(self, broker_id: int) -> pathlib.Path:
        return self.directory / f"broker-{broker_id}"

    def log_text(self, broker_id: int) -> str:
        return (self.directory / f"broker-{broker_id}.log").read_text(errors="replace")

    def start(self, *broker_ids: int) -> None:
        """Start the named brokers, all by default; does not wait."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for broker_id in broker_ids or self.ports:
            command = [sys.executable, "-m", "minilog_broker.cli.main", "broker", "--id", str(broker_id)]
            command += [
                "--listen",
                f"127.0.0.1:{self.ports[broker_id]}",
                "--data-dir",
                str(self.data_directory(broker_id)),
            ]
            command += ["--voters", f"1@127.0.0.1:{self.ports[1]}"]
            for name, value in self.settings.items():
                command += ["--set", f"{name}={value}"]
            with (self.directory / f"broker-{broker_id}.log").open("ab") as log:
                self.processes[broker_id] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def wait_running(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until every started broker is registered and unfenced, as the cluster itself tells."""
        wanted = set(self.processes)
        deadline = time.monotonic() + timeout_s
        seen: object = None
        while time.monotonic() < deadline:
            try:
                with Admin({"bootstrap.servers": self.bootstrap_servers, "request.timeout.ms": 2000}) as admin:
                    described = admin.describe_cluster()
                seen = {broker.id: broker.state for broker in described.brokers}
                if {broker.id for broker in described.brokers if broker.state == "running"} >= wanted:
                    return
            except MinilogError as error:
                seen = error
            time.sleep(0.05)
        logs = "\n".join(self.log_text(each)[-2000:] for each in wanted)
        raise AssertionError(f"brokers {sorted(wanted)} are not all running after {timeout_s} s: {seen}\n{logs}")

    def kill(self, *broker_ids: int) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        for broker_id in broker_ids:
            self.processes[broker_id].kill()
        for broker_id in broker_ids:
            self.processes.pop(broker_id).wait()

    def stop(self, *broker_ids: int, timeout_s: float = 30.0) -> dict[int, int]:
        """SIGTERM: a clean stop; the exit codes."""
        chosen = broker_ids or tuple(self.processes)
        for broker_id in chosen:
            self.processes[broker_id].send_signal(signal.SIGTERM)
        return {broker_id: self.processes.pop(broker_id).wait(timeout_s) for broker_id in chosen}

    def end(self) -> None:
        """Whatever is still alive ends now."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes.clear()


@contextlib.contextmanager
def running_cluster(
    directory: pathlib.Path, brokers: int = 3, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A cluster that runs, and whose processes are gone afterwards."""
    cluster = Cluster(directory, brokers, settings)
    try:
        cluster.start()
        cluster.wait_running()
        yield cluster
    finally:
        cluster.end()
