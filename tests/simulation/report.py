"""What many runs came to: sums, the states that were reached, and failures with the line that reproduces each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.simulation.run import Result

SHOWN_FAILURES = 5


@dataclass(slots=True)
class Report:
    """Fed with results, one by one."""

    seeds: int = 0
    events: int = 0
    virtual_ms: float = 0.0
    wall_s: float = 0.0  # of all processes together
    reads: int = 0
    states: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)  # in how many seeds
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.events += result.events
        self.virtual_ms += result.virtual_ms
        self.wall_s += result.wall_s
        self.reads += result.reads
        self.states.update(result.states)
        self.reached.update(result.states.keys())
        self.faults.update(result.faults)
        self.outcomes.update(result.outcomes)
        if result.failure is not None:
            self.failures.append(result)

    @property
    def line(self) -> str:
        """The sums in one line."""
        return (
            f"{self.seeds} seeds, {self.events:,} events, {self.events / max(self.wall_s, 1e-9):,.0f} events/s per "
            f"process, {self.virtual_ms / 3.6e6:.2f} simulated hours, {len(self.failures)} failures"
        )

    def show(self, console: Console) -> None:
        """All of it."""
        console.print(_table("states reached", "seeds", self.states, self.reached))
        console.print(_table("faults injected", "", self.faults, Counter()))
        writes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        console.print(f"writes: {writes}; {self.reads:,} records read")
        for result in self.failures[:SHOWN_FAILURES]:
            show_failure(console, result)
        if others := [result.seed for result in self.failures[SHOWN_FAILURES:]]:
            console.print(f"more failures: seeds {others}", markup=False)
        console.print(self.line, style="bold red" if self.failures else "bold green", markup=False)


def _table(title: str, second: str, counts: Counter[str], seeds: Counter[str]) -> Table:
    table = Table(title, "times", second)
    for name, count in sorted(counts.items()):
        table.add_row(name, f"{count:,}", f"{seeds[name]:,}" if seeds else "")
    return table


def show_failure(console: Console, result: Result, mutant: str | None = None) -> None:
    """The seed, the rule, the message, the trace reduced to what matters, and how to see it again."""
    failure = result.failure
    assert failure is not None
    for line in failure.trace:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    where = f"seed {result.seed}, event {result.events:,}, {result.virtual_ms / 1000:.3f} s"
    console.print(f"{where}: {failure.message}", style="bold red", markup=False, soft_wrap=True)
    console.print(f"    {reproduce(result.seed, mutant, result.theme)}", markup=False, soft_wrap=True)


def reproduce(seed: int, mutant: str | None = None, theme: str | None = None) -> str:
    """The command that runs a seed again. `theme`: where it was not the seed's own."""
    options = (f" --theme {theme}" if theme else "") + (f" --mutant '{mutant}'" if mutant else "")
    return f"python -m tests.simulation --seed {seed} --trace{options}"


def seeds_to(results: Iterable[Result]) -> tuple[int, Result | None]:
    """How many seeds it took to the first failure, and that one."""
    count = 0
    for result in results:
        count += 1
        if result.failure is not None:
            return count, result
    return count, None
