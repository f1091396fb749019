"""Programs that a benchmark starts: clients that run to their end, and servers that are ended by their process id."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

HOST = "127.0.0.1"
CLIENT_WITHIN_S = 600.0


class ProgramFailed(Exception):
    """A program ended with another code than 0, or too late: the text has its last words."""


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """A program's output, when it has ended. It is our child: its CPU time is counted as ours."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})}
    ) as process:
        timer = threading.Timer(CLIENT_WITHIN_S, process.kill)
        timer.daemon = True
        timer.start()
        assert process.stdout is not None
        output = process.stdout.read()
        timer.cancel()
    if process.returncode:
        raise ProgramFailed(f"{' '.join(command[:6])} ... ended with {process.returncode}: {output[-2_000:]}")
    return output


def run_client(module: str, *arguments: object) -> dict[str, Any]:
    """A module of benchmarks/clients in a process of its own; what its last line says."""
    output = run([sys.executable, "-m", f"benchmarks.clients.{module}", *map(str, arguments)])
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def wait_until(true: Callable[[], bool], what: str, within_s: float = 120.0) -> None:
    """Ask again and again. Raises ProgramFailed."""
    deadline_s = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline_s:
            raise ProgramFailed(f"{what} took longer than {within_s:.0f} s")
        time.sleep(0.05)


class Servers:
    """Processes by name, each with a log file."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def start(self, name: str, command: Sequence[str]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        for name in list(self._processes):
            self.kill(name)
