"""Real broker processes for tests: started on free ports, killed, stopped and ended by their process id.

Where a cluster is `proxied`, what brokers and clients know of each broker is the port of a proxy in front of it
(tests/proxy.py), and links between any two can be spoiled.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from minilog import Admin
from minilog.errors import MinilogError
from minilog.v1 import common_pb2
from minilog.versions import PROTOCOL
from minilog_broker.server.config import BrokerConfig
from minilog_tools.local_ports import HOST as HOST
from minilog_tools.local_ports import free_ports as free_ports
from tests import programs
from tests.durations import STARTS
from tests.programs import Process
from tests.proxy import Proxy

START_TIMEOUT_S = 30.0
VOTERS = 3
"""How many of a cluster's brokers vote, unless a test says otherwise or there are fewer (then one)."""
STREAM_PORT_OFFSET = BrokerConfig().stream_port_offset
"""How far a port of streams is from its port of calls."""


OF_NOW = common_pb2.ClientIdentity(client_id="by hand", protocol=PROTOCOL.to_wire())
"""The identity of a test that asks for metadata by hand. Without one a broker assumes version 1 of the protocol."""


def pairs_of(public: int, own: int) -> tuple[tuple[int, int], ...]:
    """What a proxy has in front of both ports of a listener."""
    return (public, own), (public + STREAM_PORT_OFFSET, own + STREAM_PORT_OFFSET)


@contextlib.contextmanager
def running_program(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A program with pipes to it, that does not outlive the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # nothing, where it has ended


class Cluster:
    """Brokers 1 to `brokers`, the first `voters` of which are the metadata quorum; each is a process of its own."""

    def __init__(
        self,
        directory: pathlib.Path,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        voters: int | None = None,
        proxied: bool = False,
        arguments: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.directory = directory
        self.settings = dict(settings or {})
        self.arguments = dict(arguments or {})
        """More of the command line, by broker: such as ("--rack", "a")."""
        self.ports = dict(zip(range(1, brokers + 1), free_ports(brokers), strict=True))
        """Where clients and other brokers find each broker."""
        self.listen_ports = self.ports
        self.voters = list(range(1, (voters or (VOTERS if brokers >= VOTERS else 1)) + 1))
        self.environments: dict[int, Mapping[str, str]] = {}
        """More of the environment, by broker: such as where its version is installed. Counts from the next start."""
        self.processes: dict[int, Process] = {}
        self._life_starts: dict[int, int] = {}
        self.proxy: Proxy | None = None
        if proxied:
            self.listen_ports = dict(zip(self.ports, free_ports(brokers), strict=True))
            self.proxy = Proxy(
                {broker_name(each): pairs_of(self.ports[each], self.listen_ports[each]) for each in self.ports}
            )

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @property
    def client(self) -> dict[str, Any]:
        """The settings of a client that may do everything."""
        return {"bootstrap.servers": self.bootstrap_servers}

    @property
    def voter_list(self) -> str:
        return ",".join(f"{each}@{HOST}:{self.ports[each]}" for each in self.voters)

    def data_directory(self, broker_id: int) -> pathlib.Path:
        return self.directory / f"broker-{broker_id}"

    def log_text(self, broker_id: int) -> str:
        """What the broker has said in all its lives."""
        return (self.directory / f"broker-{broker_id}.log").read_text(errors="replace")

    def command(self, broker_id: int) -> list[str]:
        """How the broker is started."""
        command = [*programs.MINILOG, "broker", "--id", str(broker_id)]
        command += ["--listen", f"{HOST}:{self.listen_ports[broker_id]}", "--voters", self.voter_list]
        command += ["--data-dir", str(self.data_directory(broker_id))]
        if self.proxy is not None:
            command += ["--set", f"advertised.address={HOST}:{self.ports[broker_id]}"]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return [*command, *self.arguments.get(broker_id, ())]

    def start(self, *broker_ids: int) -> None:
        """Start the named brokers, all by default; does not wait."""
        STARTS["cluster"] += not self._life_starts
        self.directory.mkdir(parents=True, exist_ok=True)
        for broker_id in broker_ids or self.ports:
            with (self.directory / f"broker-{broker_id}.log").open("ab") as log:
                self._life_starts[broker_id] = log.tell()
                process = self._begin(broker_id, log)
            self.processes[broker_id] = process
            if self.proxy is not None:
                self.proxy.name(process.pid, broker_name(broker_id))
                self.proxy.accept(broker_name(broker_id))

    def _begin(self, broker_id: int, log: IO[bytes]) -> Process:
        """What has another version, or stands behind another program, is started as users start it."""
        command, environment = self.command(broker_id), self.environments.get(broker_id)
        if environment or command[: len(programs.MINILOG)] != list(programs.MINILOG):
            env = {**os.environ, **(environment or {})}
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        with open(os.devnull, "rb") as nothing:
            streams = [nothing.fileno(), log.fileno(), log.fileno()]
            return programs.start(command[len(programs.MINILOG) :], streams)

    def said_in_this_life(self, broker_id: int) -> str:
        """What the broker has said since it was started last."""
        with (self.directory / f"broker-{broker_id}.log").open("rb") as log:
            log.seek(self._life_starts[broker_id])
            return log.read().decode(errors="replace")

    def states(self) -> dict[int, str]:
        """State of each broker, as the cluster tells. MinilogError where nobody answers."""
        with Admin({"bootstrap.servers": self.bootstrap_servers, "request.timeout.ms": 2000}) as admin:
            return {broker.id: broker.state for broker in admin.describe_cluster().brokers}

    def wait_running(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until every started broker is registered in its present life and unfenced, as the cluster itself tells."""
        wanted = set(self.processes)
        deadline = time.monotonic() + timeout_s
        seen: object = None
        while time.monotonic() < deadline:
            try:
                if all(
                    '"event": "registered"' in self.said_in_this_life(each) for each in wanted
                ):  # cheaper than to ask
                    seen = states = self.states()
                    if {each for each, state in states.items() if state == "running"} >= wanted:
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
        self._gone(*broker_ids)
        for broker_id in broker_ids:
            self.processes.pop(broker_id).wait()

    def stop(self, *broker_ids: int, timeout_s: float = 30.0) -> dict[int, int]:
        """SIGTERM: a clean stop; the exit codes."""
        chosen = broker_ids or tuple(self.processes)
        for broker_id in chosen:
            self.processes[broker_id].send_signal(signal.SIGTERM)
        codes = {broker_id: self.processes.pop(broker_id).wait(timeout_s) for broker_id in chosen}
        self._gone(*chosen)
        return codes

    def pause(self, *broker_ids: int) -> None:
        """SIGSTOP: the processes hang, their connections stay open."""
        for broker_id in broker_ids:
            self.processes[broker_id].send_signal(signal.SIGSTOP)

    def resume(self, *broker_ids: int) -> None:
        """SIGCONT."""
        for broker_id in broker_ids:
            self.processes[broker_id].send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Whatever is still alive ends now."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes.clear()
        if self.proxy is not None:
            self.proxy.close()
            self.proxy = None

    def _gone(self, *broker_ids: int) -> None:
        """The proxies in front of dead brokers refuse, as the brokers' own ports do."""
        if self.proxy is not None:
            for broker_id in broker_ids:
                self.proxy.refuse(broker_name(broker_id))


def broker_name(broker_id: int) -> str:
    """What the proxy calls a broker."""
    return f"broker-{broker_id}"


@contextlib.contextmanager
def running_cluster(
    directory: pathlib.Path,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    *,
    voters: int | None = None,
    proxied: bool = False,
    arguments: Mapping[int, Sequence[str]] | None = None,
) -> Iterator[Cluster]:
    """A cluster that runs, and whose processes are gone afterwards."""
    cluster = Cluster(directory, brokers, settings, voters=voters, proxied=proxied, arguments=arguments)
    try:
        cluster.start()
        cluster.wait_running()
        yield cluster
    finally:
        cluster.end()
