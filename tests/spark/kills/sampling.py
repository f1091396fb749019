"""What each process of a run holds: memory and open files, sampled while it goes on, to see what grows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import psutil
from rich.console import Console
from rich.table import Table

from tests.spark.kills.victims import KillScene

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Held:
    """By one process, or by several of one kind together. Memory is that of no other process (USS)."""

    processes: int
    memory_mib: float
    files: int


@dataclass
class Samples:
    """All samples of a run: seconds since its start, and what was held by each kind."""

    started_s: float = field(default_factory=time.monotonic)
    taken: list[tuple[float, dict[str, Held]]] = field(default_factory=list)

    def take(self, scene: KillScene) -> str:
        """Sample now; in words."""
        kinds = {name: list(found) for name, found in scene.copying.processes().items()}
        kinds |= {f"broker {name}": _alive([each.pid]) for name, each in sorted(scene.cluster.processes.items())}
        kinds["this program"] = _alive([psutil.Process().pid])
        held = {name: _held(found) for name, found in kinds.items() if found}
        self.taken.append((time.monotonic() - self.started_s, held))
        words = [f"{name} {each.memory_mib:.0f} MiB, {each.files} files" for name, each in held.items()]
        return f"{self.taken[-1][0]:.0f} s: " + "; ".join(words)

    def show(self) -> None:
        """Of each kind: the first sample, the last, and the highest."""
        table = Table("process", "samples", "MiB: first", "last", "highest", "files: first", "last", "highest")
        for name in dict.fromkeys(name for _, held in self.taken for name in held):
            found = [held[name] for _, held in self.taken if name in held]
            memory, files = [round(each.memory_mib) for each in found], [each.files for each in found]
            cells = [str(cell) for each in (memory, files) for cell in (each[0], each[-1], max(each))]
            table.add_row(name, str(len(found)), *cells)
        Console(width=120).print(table)


def _alive(pids: Iterable[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def _held(processes: Iterable[psutil.Process]) -> Held:
    count, memory, files = 0, 0.0, 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):
            memory += process.memory_full_info().uss / _MIB
            files += process.num_fds()
            count += 1
    return Held(count, memory, files)
