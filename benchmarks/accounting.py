"""What a piece of work cost: wall time, and CPU seconds of every process, from the operating system."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

_TOUCH = "memory = bytearray({0}); memory[::4096] = bytes(len(range(0, {0}, 4096)))"


@dataclass(frozen=True, slots=True)
class Cost:
    """`cpu_s`: by the name of the process; `foreign_cpu_s`: of all processes that are not named. Each in seconds."""

    wall_s: float
    cpu_s: dict[str, float] = field(default_factory=dict)
    foreign_cpu_s: float = 0.0

    @property
    def total_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


def cpu_s(pid: int) -> float:
    """User and system seconds of a process and of the children it has waited for; 0 where it has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def tree_cpu_s(pid: int, without: frozenset[int] = frozenset()) -> float:
    """The same with all living descendants, but those in `without`."""
    try:
        children = psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return 0.0
    return cpu_s(pid) + sum(tree_cpu_s(child.pid, without) for child in children if child.pid not in without)


def resident_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others counted in parts (PSS)."""
    return int(psutil.Process(pid).memory_full_info().pss)


def cost_of(work: Callable[[], float | None], pids: Mapping[str, int], others: frozenset[int]) -> Cost:
    """Do the work, and measure it: the processes by name, and ourselves with our children, "clients", but `others`.

    `work` returns the seconds that count, where not all of its own do (a client's start); else None."""
    named = frozenset(pids.values())
    own_pid = os.getpid()

    def own() -> float:
        return tree_cpu_s(own_pid, named | others)

    def machine() -> float:
        times = psutil.cpu_times()
        return float(times.user + times.nice + times.system + times.irq + times.softirq)

    before, own_before, machine_before = {name: cpu_s(pid) for name, pid in pids.items()}, own(), machine()
    started_s = time.monotonic()
    counted_s = work()
    wall_s = time.monotonic() - started_s
    spent = {name: cpu_s(pid) - before[name] for name, pid in pids.items()} | {"clients": own() - own_before}
    foreign_s = max(0.0, machine() - machine_before - sum(spent.values()))
    return Cost(wall_s if counted_s is None else counted_s, spent, foreign_s)


def touch_memory(gibibytes: float) -> None:
    """Use so much memory once, and give it back: the first touch of a page of a virtual machine costs more than all
    else, and whoever comes first would pay for it."""
    size = int(gibibytes * (1 << 30))
    subprocess.run([sys.executable, "-c", _TOUCH.format(size)], check=True)


def settle() -> None:
    """What is dirty is written, so that nobody pays for another's page cache."""
    os.sync()
    time.sleep(0.5)
