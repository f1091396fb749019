"""How long the demonstration waits: by signs of life, and not by the clock alone.

A machine that does other work lets Spark start in a minute and not in ten seconds. A fixed time-out would call that a
failure. So a wait for the Spark job ends only when the job shows no sign of life:

    sign                                        counts
    a new window, a micro-batch begun or done   always
    a second of CPU time                        while the job starts, or while a micro-batch is under way: an idle job
                                                uses CPU time, too

Waits for brokers have a fixed limit on a calm machine. A load above the number of cores makes it longer.
"""

from __future__ import annotations

import os
import pathlib
from dataclasses import dataclass

SILENCE_S = 60.0  # a calm machine starts Spark in 10 s, and does a micro-batch in 1 s
LONGEST_S = 1_200.0  # whatever the signs are: a job that computes for so long without a window is in a loop
_CPU_SIGN_S = 1.0
_MOST_SLOWNESS = 20.0


@dataclass(frozen=True, slots=True)
class Signs:
    """What a job has done so far. `cpu_s` is the CPU time of its processes, which is less after a restart."""

    windows: int
    begun_batches: int
    finished_batches: int
    cpu_s: float


class Patience:
    """Judges one wait for the job. `look` takes the signs of this moment, in the order of time."""

    def __init__(self, signs: Signs, now_s: float) -> None:
        self._first = self._last = signs
        self._window_s = self._sign_s = now_s
        self._cpu_s_at_sign = signs.cpu_s

    def look(self, signs: Signs, now_s: float) -> str | None:
        """None while the wait goes on. At its end, a sentence with the signs."""
        before, self._last = self._last, signs
        if signs.windows > before.windows:
            self._window_s = now_s
        if self._lives(before, signs):
            self._sign_s, self._cpu_s_at_sign = now_s, signs.cpu_s
        silent_s, without_s = now_s - self._sign_s, now_s - self._window_s
        if silent_s <= SILENCE_S and without_s <= LONGEST_S:
            return None
        return (
            f"nothing for {without_s:.0f} s, and no other sign of life for {silent_s:.0f} s: it has begun "
            f"{signs.begun_batches} micro-batches and finished {signs.finished_batches}, and used "
            f"{signs.cpu_s:.0f} s of CPU time. {machine_load()}"
        )

    def _lives(self, before: Signs, signs: Signs) -> bool:
        if (before.windows, before.begun_batches, before.finished_batches) != (
            signs.windows,
            signs.begun_batches,
            signs.finished_batches,
        ):
            return True
        is_starting = signs.begun_batches == self._first.begun_batches
        is_busy = signs.begun_batches > signs.finished_batches
        return (is_starting or is_busy) and abs(signs.cpu_s - self._cpu_s_at_sign) >= _CPU_SIGN_S


def limit_on_this_machine_s(calm_limit_s: float) -> float:
    """The limit of a wait, longer where more processes want to run than there are cores."""
    slowness = os.getloadavg()[0] / (os.cpu_count() or 1)
    return calm_limit_s * min(_MOST_SLOWNESS, max(1.0, slowness))


def machine_load() -> str:
    """A sentence about the machine, for the errors of waits."""
    return f"The machine has {os.cpu_count()} cores and a load of {os.getloadavg()[0]:.1f}"


def cpu_s_of_group(process_group: int) -> float:
    """The CPU time of all living processes of a process group."""
    ticks = 0
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:  # behind the name in parentheses: state, parent, process group, …, and utime and stime as 12th and 13th
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[2]) == process_group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
