"""One seed for each mutant that kills it, found by search: `pins.tsv`, rewritten by `python -m tests.simulation --pin`.

A pin holds as long as the code draws the same from the same seed: any change may break it, and it is searched anew.
"""

from __future__ import annotations

import pathlib
from typing import NamedTuple

from tests.simulation import mutants
from tests.simulation.run import run_seed

PATH = pathlib.Path(__file__).with_name("pins.tsv")
_HEAD = "mutant\tseed\ttheme\trule\tseeds needed"


class Pin(NamedTuple):
    """`theme`: the one searched under, None for the seed's own. `seeds`: how many the search ran, this one included."""

    seed: int
    theme: str | None
    rule: str
    seeds: int


def load() -> dict[str, Pin]:
    """The table; empty where there is none."""
    if not PATH.exists():
        return {}
    rows = (line.split("\t") for line in PATH.read_text().splitlines()[1:])
    return {name: Pin(int(seed), theme or None, rule, int(seeds)) for name, seed, theme, rule, seeds in rows}


def store(table: dict[str, Pin]) -> None:
    """Rewrite the table."""
    rows = [f"{name}\t{pin.seed}\t{pin.theme or ''}\t{pin.rule}\t{pin.seeds}" for name, pin in table.items()]
    PATH.write_text("\n".join([_HEAD, *rows]) + "\n")


def kills(name: str, pin: Pin | None) -> bool:
    """Whether the judge finds the mutant in its pinned run. What the code raises is found by no judge: a mutant of a
    function whose arguments are others now dies of a TypeError."""
    if pin is None:
        return False
    with mutants.mutated(name):
        failure = run_seed(pin.seed, theme=pin.theme).failure
    return failure is not None and failure.rule != "error"
