"""From runs to figures: medians with their ranges, and the ratio of two sides, pair by pair."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from benchmarks.accounting import Cost


class Better(Enum):
    """Which way a figure is better: a ratio is minilog's figure over the peer's all the same."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contestant: the figure in the target's unit; what it cost; `amount_bytes`, of values."""

    figure: float
    cost: Cost
    amount_bytes: float = 0.0
    details: dict[str, float] = field(default_factory=dict)

    @property
    def cpu_s_per_gb(self) -> float | None:
        return self.cost.total_cpu_s / (self.amount_bytes / 1e9) if self.amount_bytes else None


@dataclass(frozen=True, slots=True)
class Target:
    """A row of docs/spec/performance.md. `aim`: the ratio to reach; None where it is not one."""

    name: str
    title: str
    unit: str
    better: Better
    aim: float | None


@dataclass(slots=True)
class Result:
    """A target: the runs of each contestant, in turn. The ratio is that of `ours` and `theirs`."""

    target: Target
    ours: str
    theirs: str
    runs: dict[str, list[Run]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Contestants that could not take part, and why."""
    wrong: dict[str, str] = field(default_factory=dict)
    """Contestants that lost or doubled records: how many."""

    def absent(self) -> dict[str, str]:
        """Contestants without a figure, and why."""
        return self.missing | {name: f"wrong: {why}" for name, why in self.wrong.items()}

    def ratios(self) -> list[float]:
        """One for each turn in which both sides ran."""
        pairs = zip(self.runs.get(self.ours, ()), self.runs.get(self.theirs, ()), strict=False)
        return [ours.figure / theirs.figure for ours, theirs in pairs if theirs.figure]

    def ratio(self) -> float | None:
        ratios = self.ratios()
        return statistics.median(ratios) if ratios else None

    def median(self, contestant: str) -> float | None:
        runs = self.runs.get(contestant)
        return statistics.median(run.figure for run in runs) if runs else None

    def to_json(self) -> dict[str, object]:
        """What `--json` writes for the target. `minilog` and `kafka` are medians in `unit`."""
        return {
            "ratio": self.ratio(),
            "ratios": self.ratios(),
            "minilog": self.median(self.ours),
            "kafka": self.median(self.theirs),
            "unit": self.target.unit,
            "better": self.target.better.value,
            "aim": self.target.aim,
            "title": self.target.title,
            "contestants": {name: _to_json(runs) for name, runs in self.runs.items()},
            "missing": self.absent(),
        }


def _to_json(runs: Sequence[Run]) -> dict[str, object]:
    return {
        "figures": [run.figure for run in runs],
        "cpu_s_per_gb": [run.cpu_s_per_gb for run in runs],
        "cpu_s": [run.cost.cpu_s for run in runs],
        "foreign_cpu_s": [run.cost.foreign_cpu_s for run in runs],
        "wall_s": [run.cost.wall_s for run in runs],
        "details": [run.details for run in runs],
    }


def spread(values: Sequence[float | None], digits: int = 1) -> str:
    """Median (lowest to highest); empty where nothing was measured."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, middle, high = min(known), statistics.median(known), max(known)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def markdown(results: Sequence[Result]) -> str:
    """Tables for people: the ratios, then all contestants of each target."""
    lines = ["| target | what | unit | minilog | peer | ratio | to reach |", "|---|---|---|---|---|---|---|"]
    for result in results:
        cells = [spread([run.figure for run in result.runs.get(name, ())]) for name in (result.ours, result.theirs)]
        target = result.target
        aim = "" if target.aim is None else f"{target.aim:g}"
        lines.append(
            f"| {target.name} | {target.title} | {target.unit} | {cells[0]} | {cells[1] or 'not there'} | "
            f"{spread(result.ratios(), 2)} | {aim} |"
        )
    for result in results:
        lines += ["", f"### {result.target.name}: {result.target.title}", ""]
        lines += ["| | " + result.target.unit + " | CPU s per GB | brokers | clients |", "|---|---|---|---|---|"]
        lines += [_row(name, runs) for name, runs in result.runs.items()]
        lines += [f"| {name} | not there: {why} | | | |" for name, why in result.absent().items()]
    return "\n".join(lines) + "\n"


def _row(name: str, runs: Sequence[Run]) -> str:
    per_gb = [run.cpu_s_per_gb for run in runs]
    clients = [_share(run, clients=True) for run in runs]
    brokers = [_share(run, clients=False) for run in runs]
    figures = spread([run.figure for run in runs])
    return f"| {name} | {figures} | {spread(per_gb, 2)} | {spread(brokers, 2)} | {spread(clients, 2)} |"


def _share(run: Run, *, clients: bool) -> float | None:
    if not run.amount_bytes:
        return None
    spent = sum(seconds for name, seconds in run.cost.cpu_s.items() if (name == "clients") == clients)
    return spent / (run.amount_bytes / 1e9)
