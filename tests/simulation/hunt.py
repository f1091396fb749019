"""Hunts for the mutants of the whole brokers: which of them a search finds, after how many seeds, and by which rule.

A kill counts where the judge says what is wrong, not where the code raised an error of its own, and where the true code
is clean on that very seed. The search goes seed by seed over all that still live, so that what is easily found is known
early.

`pins.tsv` has a row for each mutant: the seed of the cheapest kill, or none; the theme it was searched under (none:
each seed's own); and how many seeds were searched.
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.rules.table import SIMULATION
from tests.simulation.run import Result, run_each

PATH = pathlib.Path(__file__).with_name("pins.tsv")
_HEAD = "mutant\tseed\ttheme\trule\tseeds needed\tCPU s"
_ERROR = "error"


class Pin(NamedTuple):
    """`seed` None: the mutant lived through all of the `seeds` that were searched. Else `seeds` says how many it took
    to find it first, and the pin is the cheapest of those found."""

    seed: int | None
    theme: str | None
    rule: str
    seeds: int
    cpu_s: float


def load() -> dict[str, Pin]:
    """The table; empty where there is none."""
    if not PATH.exists():
        return {}
    rows = (line.split("\t") for line in PATH.read_text().splitlines()[1:])
    return {
        name: Pin(int(seed) if seed else None, theme or None, rule, int(seeds), float(cpu_s))
        for name, seed, theme, rule, seeds, cpu_s in rows
    }


def store(found: dict[str, Pin]) -> None:
    """Rewrite the table: what was found now, else what was known. A search in vain takes no pin away."""
    table = load()
    table |= {name: pin for name, pin in found.items() if pin.seed is not None or table.get(name, pin).seed is None}
    rows = [
        "\t".join(
            (
                name,
                "" if pin.seed is None else str(pin.seed),
                pin.theme or "",
                pin.rule,
                str(pin.seeds),
                f"{pin.cpu_s:.1f}",
            )
        )
        for name in SIMULATION
        if (pin := table.get(name)) is not None
    ]
    PATH.write_text("\n".join([_HEAD, *rows]) + "\n")


def rule_of(result: Result) -> str | None:
    """The rule that the judge found broken; None where it found none, also where an error ended the run."""
    rule = (result.failure or _ERROR).partition(":")[0].split()[0]
    return None if rule == _ERROR else rule


class _Search:
    """What is known of one mutant by now."""

    def __init__(self, name: str, theme: str | None) -> None:
        self.name = name
        self._theme = theme
        self.seeds = 0
        self.needed = 0
        self.kills: list[tuple[Result, str]] = []

    def take(self, result: Result) -> None:
        self.seeds += 1
        if (rule := rule_of(result)) is not None:
            self.needed = self.needed or self.seeds
            self.kills.append((result, rule))

    def pin(self) -> Pin:
        if not self.kills:
            return Pin(None, self._theme, "", self.seeds, 0.0)
        result, rule = min(self.kills, key=lambda kill: kill[0].cpu_s)
        return Pin(result.seed, self._theme, rule, self.needed, result.cpu_s)


def hunt(
    names: Iterable[str], seeds: Sequence[int], processes: int, kills: int = 1, theme: str | None = None
) -> Iterator[tuple[str, Pin]]:
    """Each mutant when it was found in so many seeds, or when all seeds are searched."""
    alive = [_Search(name, theme) for name in names]
    for seed in seeds:
        if not alive:
            return
        (true,) = run_each([(seed, None)], 1, theme)
        if true.failure:
            continue
        runs = [(seed, search.name) for search in alive]
        for search, result in zip(list(alive), run_each(runs, processes, theme), strict=True):
            search.take(result)
            if len(search.kills) == kills:
                alive.remove(search)
                yield search.name, search.pin()
    for search in alive:
        yield search.name, search.pin()


def report(console: Console, names: Collection[str], found: Iterator[tuple[str, Pin]], *, write_pins: bool) -> bool:
    """Print the table, each row as it is known; whether all were found."""
    table = Table("mutant", "seeds needed", "seed", "rule", "CPU s")
    all_found: dict[str, Pin] = {}
    for name, pin in found:
        all_found[name] = pin
        row = (name, str(pin.seeds), "lives" if pin.seed is None else str(pin.seed), pin.rule, f"{pin.cpu_s:.1f}")
        console.print("\t".join(row), markup=False, highlight=False, soft_wrap=True)
        table.add_row(*row)
        if write_pins:
            store(all_found)
    lives = sum(pin.seed is None for pin in all_found.values())
    console.print(table)
    console.print(f"{len(names) - lives} of {len(names)} found", highlight=False)
    return not lives
