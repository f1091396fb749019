"""Real broker processes on this machine, each with its own data directory. `up` and `demo` use them.

The first 1, 3 or 5 brokers are voters of the metadata quorum. On existing data directories the recorded voters stay.
Each broker has its own process group, so that a Ctrl-C at the terminal reaches only the parent process. The parent
stops the brokers in order. The voters are last, since the other brokers need them to hand leadership over. The parent
signals processes by their ids, never by name.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog import Admin
from minilog.errors import MinilogError
from minilog_broker.failure import CommandFailed
from minilog_broker.server.console_options import TRUSTSTORE as CONSOLE_TRUSTSTORE
from minilog_broker.stop_signal import Stoppable, ending_of
from minilog_broker.storage.data_directory import recorded_voters
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import OsFileSystem
from minilog_tools.local_ports import HOST

if TYPE_CHECKING:
    from minilog_tools.local_security import LocalSecurity  # loads cryptography

PEER_PORT_DISTANCE = 100  # of a secured broker's listener for the others from that for clients
_QUORUM_SIZES = (5, 3, 1)
_CONSOLE_BROKER = 1
# A start replays the metadata log and recovers the topics' logs. An unclean start with large logs takes longest.
START_WITHIN_S = 120.0
# controlled.shutdown.timeout.ms is 10 s by default. After it the broker flushes and closes its files.
STOP_WITHIN_S = 20.0
_ASK_EVERY_S = 0.1
_OWNER_ONLY = 0o700  # only the owner may read the records
_ANSWER_WITHIN_MS = 2_000


def choose_voters(directory: pathlib.Path, broker_ids: Sequence[int]) -> list[int]:
    """The voters of the cluster below `directory`: the recorded ones, or the first 1, 3 or 5 of a new cluster.

    Raises CommandFailed where a recorded voter is not among the brokers, and where the record cannot be read.
    """
    for broker_id in broker_ids:
        path = directory / f"broker-{broker_id}"
        try:
            voters = recorded_voters(OsFileSystem(), str(path.absolute())) if path.is_dir() else ()
        except CorruptFile as error:
            raise CommandFailed(f"{error}: restore it, or start with an empty --data-dir") from None
        if missing := sorted(set(voters) - set(broker_ids)):
            raise CommandFailed(
                f"the cluster in {directory} has the voters {list(voters)}, and this command does not start brokers "
                f"{missing}: give at least --brokers {max(voters)}"
            )
        if voters:
            return list(voters)
    size = next(size for size in _QUORUM_SIZES if size <= len(broker_ids))
    return sorted(broker_ids)[:size]


@dataclass(frozen=True, slots=True)
class DeadBroker:
    """A broker process that ended without a request to stop."""

    broker_id: int
    exit_code: int
    last_words: str

    def __str__(self) -> str:
        how = ending_of(self.exit_code)
        return f"broker {self.broker_id} died ({how})" + (f": {self.last_words}" if self.last_words else "")


class LocalCluster:
    """Brokers 1 to n below one directory. Not thread-safe: one thread starts, watches and stops them."""

    def __init__(
        self,
        directory: pathlib.Path,
        ports: Sequence[int],
        settings: Mapping[str, str],
        http_ports: Sequence[int | None] = (),
        security: LocalSecurity | None = None,
        console_port: int | None = None,
    ) -> None:
        """`http_ports`: the port of each broker for its health and metrics, None for a broker without one.
        `console_port`: the port of the console that broker 1 serves, None for a cluster without one."""
        self._console_port = console_port
        self._security = security
        self.directory = directory
        self._ports = dict(enumerate(ports, start=1))
        self._http_ports = {broker_id: port for broker_id, port in enumerate(http_ports, start=1) if port is not None}
        self._settings = dict(settings)
        self._voters = choose_voters(directory, list(self._ports))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[int, int] = {}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    @property
    def broker_ids(self) -> list[int]:
        return list(self._ports)

    def log_file(self, broker_id: int) -> pathlib.Path:
        """The file of a broker's log lines. It is beside the data directory, which only the broker writes to."""
        return self.directory / f"broker-{broker_id}.log"

    def start(self, broker_id: int) -> None:
        """Start one broker, and do not wait for it."""
        data_directory = self.directory / f"broker-{broker_id}"
        self.directory.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
        log_file = self.log_file(broker_id)
        with log_file.open("ab") as log:
            self._log_starts[broker_id] = log.tell()
            self._processes[broker_id] = subprocess.Popen(
                self._command(broker_id, data_directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def start_all(self) -> None:
        for broker_id in self._ports:
            self.start(broker_id)

    def wait_running(self, stop: Stoppable, timeout_s: float = START_WITHIN_S) -> bool:
        """Wait until every started broker is registered and running. False where `stop` was set meanwhile.

        Raises CommandFailed for a broker that died, and after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not stop.wait(_ASK_EVERY_S):
            for dead in self.take_dead():
                raise CommandFailed(f"{dead} (its log is {self.log_file(dead.broker_id)})")
            if self.running_ids() >= set(self._processes):
                return True
            if time.monotonic() > deadline:
                missing = sorted(set(self._processes) - self.running_ids())
                raise CommandFailed(
                    f"brokers {missing} are not running after {timeout_s:.0f} s: see {self.log_file(missing[0])}"
                )
        return False

    def running_ids(self) -> set[int]:
        """The brokers that the controller reports as running; none while no broker answers."""
        try:
            settings: dict[str, object] = {} if self._security is None else self._security.client_settings()
            settings |= {"bootstrap.servers": self.bootstrap_servers, "request.timeout.ms": _ANSWER_WITHIN_MS}
            with Admin(settings) as admin:
                return {broker.id for broker in admin.describe_cluster().brokers if broker.state == "running"}
        except MinilogError:
            return set()

    def take_dead(self) -> list[DeadBroker]:
        """The brokers that have died since the last call. Each appears once."""
        ended = [broker_id for broker_id, process in self._processes.items() if process.poll() is not None]
        codes = {broker_id: self._processes.pop(broker_id).returncode for broker_id in ended}
        # A killed process has no last words: the last line of its log is older than the trouble.
        return [
            DeadBroker(broker_id, code, self._last_words(broker_id) if code >= 0 else "")
            for broker_id, code in codes.items()
        ]

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL: the broker flushes nothing, and announces nothing."""
        process = self._processes.pop(broker_id)
        process.kill()
        process.wait()

    def stop(self, timeout_s: float = STOP_WITHIN_S) -> list[int]:
        """Send SIGTERM to all, the voters last, and wait. The answer has the brokers that had to be killed after
        `timeout_s`."""
        killed: list[int] = []
        voters = [broker_id for broker_id in self._processes if broker_id in self._voters]
        for group in ([broker_id for broker_id in self._processes if broker_id not in self._voters], voters):
            killed += self._stop_group(group, timeout_s)
        return killed

    def end(self) -> None:
        """Kill every broker that is still alive, for exits that do not wait."""
        for broker_id in list(self._processes):
            self.kill(broker_id)

    def _stop_group(self, broker_ids: list[int], timeout_s: float) -> list[int]:
        killed = []
        for broker_id in broker_ids:
            self._processes[broker_id].terminate()
        deadline = time.monotonic() + timeout_s
        for broker_id in broker_ids:
            process = self._processes.pop(broker_id)
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed.append(broker_id)
        return killed

    def _command(self, broker_id: int, data_directory: pathlib.Path) -> list[str]:
        command = [sys.executable, "-m", "minilog_tools.cli.main", "broker", "--id", str(broker_id)]
        command += ["--listen", f"{HOST}:{self._ports[broker_id]}", "--data-dir", str(data_directory)]
        command += ["--voters", ",".join(f"{voter}@{self._peer_address(voter)}" for voter in self._voters)]
        if (http_port := self._http_ports.get(broker_id)) is not None:
            command += ["--http", f"{HOST}:{http_port}"]
        secured = {}
        if self._security is not None:
            secured = self._security.settings(broker_id, self._peer_address(broker_id))
        if self._console_port is not None and broker_id == _CONSOLE_BROKER:
            command += ["--console", f"{HOST}:{self._console_port}"]
            if self._security is not None:
                secured[CONSOLE_TRUSTSTORE] = str(self._security.clients_authority)
        for name, value in {**secured, **self._settings}.items():
            if name.startswith("console.") and broker_id != _CONSOLE_BROKER:
                continue  # the others serve no console, and refuse its settings
            command += ["-c", f"{name}={value}"]
        return command

    def _peer_address(self, broker_id: int) -> str:
        """The address of a broker for the other brokers."""
        distance = 0 if self._security is None else PEER_PORT_DISTANCE
        return f"{HOST}:{self._ports[broker_id] + distance}"

    def _last_words(self, broker_id: int) -> str:
        with self.log_file(broker_id).open("rb") as log:
            log.seek(self._log_starts[broker_id])
            lines = log.read().decode(errors="replace").split("\n")
        words = [line.strip().removeprefix("minilog: ") for line in lines if line.strip()]
        return _event_of(words[-1]) if words else ""


def _event_of(line: str) -> str:
    """The event of a line of a broker's log, which is JSON in a file; the line itself where it is no JSON."""
    try:
        document = json.loads(line)
    except ValueError:
        return line
    return str(document.get("event", line)) if isinstance(document, dict) else line
