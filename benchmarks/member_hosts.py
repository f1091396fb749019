"""Processes with members of a group, and what their members have read (clients/group_members.py)."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import numpy as np

from benchmarks.handovers import ROW, Rows
from benchmarks.processes import ProgramFailed
from benchmarks.systems import System

_END_WITHIN_S = 120.0


class ClientProcess:
    """A process that runs a module of benchmarks/clients. It takes its commands as lines of its input. It ends where
    the input ends."""

    def __init__(self, log: pathlib.Path, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", f"benchmarks.clients.{module}", *map(str, arguments)]
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)

    def say(self) -> int:
        """Send a line; when, in nanoseconds of the clock of all processes."""
        assert self._process.stdin is not None
        now_ns = time.monotonic_ns()
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return now_ns

    def kill(self) -> int:
        """SIGKILL; when."""
        now_ns = time.monotonic_ns()
        self._process.kill()
        self._process.wait()
        return now_ns

    def end(self) -> None:
        """Wait for its end, and close its input before. Raises ProgramFailed."""
        self._process.communicate(timeout=_END_WITHIN_S)
        if self._process.returncode:
            raise ProgramFailed(f"{self._log.stem} ended with {self._process.returncode}: {self.last_words()}")

    def check_alive(self) -> None:
        """Raises ProgramFailed."""
        if self._process.poll() is not None:
            raise ProgramFailed(f"{self._log.stem} ended with {self._process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        return self._log.read_text()[-2_000:]


class MemberHosts:
    """The processes of one group, each with members that follow one another in number. `directory`: of their files."""

    def __init__(self, system: System, topic: str, group: str, directory: pathlib.Path) -> None:
        directory.mkdir(parents=True)
        self._system, self._topic, self._group, self.directory = system, topic, group, directory
        self._hosts: list[ClientProcess] = []
        self._members = 0
        self._files: dict[pathlib.Path, int] = {}
        self._rows: list[Rows] = []

    def start(self, members: int) -> ClientProcess:
        """A process that waits for its first line."""
        path = self.directory / f"members-{self._members}.rows"
        arguments = (self._system.servers, self._topic, self._group, self._members, members, path)
        host = ClientProcess(path.with_suffix(".log"), "group_members", self._system.name, *arguments)
        self._members += members
        self._files[path] = 0
        self._hosts.append(host)
        return host

    def join(self) -> None:
        """All members of all processes."""
        for host in self._hosts:
            host.say()

    def forget(self, host: ClientProcess) -> None:
        """It has left, or is dead."""
        self._hosts.remove(host)

    def rows(self) -> Rows:
        """What all of them have read so far."""
        for host in self._hosts:
            host.check_alive()
        for path, offset in self._files.items():
            if path.exists() and (count := (path.stat().st_size - offset) // ROW.itemsize):
                self._rows.append(np.fromfile(path, ROW, count, offset=offset))
                self._files[path] += count * ROW.itemsize
        self._rows = [np.concatenate(self._rows)] if self._rows else []
        return self._rows[0] if self._rows else np.empty(0, ROW)

    def latest_rows(self, start_ns: int) -> Rows:
        """Those that were read since then."""
        rows = self.rows()
        return rows[rows["read_ns"] >= start_ns]

    def end(self) -> None:
        """All members leave."""
        hosts, self._hosts = self._hosts, []
        for host in hosts:
            host.say()
        for host in hosts:
            host.end()
