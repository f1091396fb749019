"""How long it took and what it cost: wall time, and CPU seconds of every process from the operating system."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psutil


@dataclass
class Cost:
    """What happened between start and end: seconds of wall time, CPU seconds by process name."""

    wall_s: float = 0.0
    cpu_s: dict[str, float] | None = None

    @property
    def total_cpu_s(self) -> float:
        return sum((self.cpu_s or {}).values())


def _cpu_s(pid: int) -> float:
    """User and system seconds of a process and of its children, living and waited for."""
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        own = times.user + times.system + times.children_user + times.children_system
        return own + sum(_cpu_s(child.pid) for child in process.children())
    except psutil.NoSuchProcess:
        return 0.0


@contextlib.contextmanager
def cost(brokers: Iterable[int]) -> Iterator[Cost]:
    """Measure the block: this process with its children, and the brokers by process id."""
    pids = {f"broker {number}": pid for number, pid in enumerate(brokers, 1)}
    measured = Cost()
    own_pid = os.getpid()

    def own() -> float:
        return _cpu_s(own_pid) - sum(_cpu_s(pid) for pid in pids.values())

    before, own_before, started = {name: _cpu_s(pid) for name, pid in pids.items()}, own(), time.monotonic()
    yield measured
    measured.wall_s = time.monotonic() - started
    measured.cpu_s = {name: _cpu_s(pid) - before[name] for name, pid in pids.items()} | {"client": own() - own_before}
