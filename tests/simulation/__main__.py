"""`python -m tests.simulation`: run one seed, many, or the search for mutants. Exit 1 where anything is found wrong.

--seed 4711              one run; --trace prints its trace
--seeds 1000             many, on all cores; --first N, --minutes M bound them
--theme NAME             every seed under this theme, for looking at it
--mutant NAME|all        the true rule replaced: how many seeds until the judge finds it
--pin                    search anew for one seed of each mutant, and rewrite the table of pins
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.simulation import mutants, pins
from tests.simulation.many import Hunt, check_pins, hunt_many, run_many
from tests.simulation.report import Report, reproduce, show_failure
from tests.simulation.run import run_seed
from tests.simulation.themes import THEMES


def main() -> int:
    """See the module's text."""
    options = _parse()
    console = Console()
    if options.pin:
        return _pin(console, options)
    if options.mutant is not None:
        return _search(console, options)
    if options.seed is not None:
        return _one(console, options, None)
    return _many(console, options)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", type=int, help="run so many (default: 100; without an end where --minutes is given)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--minutes", type=float, help="begin no seed after so many minutes")
    parser.add_argument("--theme", choices=THEMES, help="of all seeds, instead of each seed's own")
    parser.add_argument("--mutant", metavar="NAME", help="a mutant's name or number, or all")
    parser.add_argument("--pin", action="store_true", help="search a seed for each mutant and rewrite the table")
    parser.add_argument("--trace", action="store_true", help="print the trace of --seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at once (default: cores)")
    return parser.parse_args()


def _one(console: Console, options: argparse.Namespace, mutant: str | None) -> int:
    with mutants.mutated(mutant):
        result = run_seed(options.seed, trace=True, theme=options.theme)
    if options.trace:
        for line in result.lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    report = Report()
    report.add(result)
    report.show(console)
    return 1 if result.failure is not None else 0


# -- many


def _many(console: Console, options: argparse.Namespace) -> int:
    report, started_s = Report(), time.monotonic()
    total = options.seeds or (None if options.minutes else 100)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=total)
        for result in run_many(options.first, total, options.minutes, options.processes, options.theme):
            report.add(result)
            progress.update(task, advance=1, description=f"{report.events:,} events, {len(report.failures)} failures")
            if result.failure is not None:
                progress.console.print(f"seed {result.seed}: {result.failure.message}", style="red", markup=False)
                progress.console.print(f"    {reproduce(result.seed, theme=result.theme)}", markup=False)
    report.show(console)
    elapsed_s = time.monotonic() - started_s
    console.print(f"{report.events / elapsed_s:,.0f} events/s on {options.processes} processes, {elapsed_s:.0f} s")
    return 1 if report.failures else 0


# -- mutants


def _hunts(options: argparse.Namespace, names: list[str]) -> Iterator[Hunt]:
    return hunt_many(names, options.first, options.seeds or 100, options.minutes, options.processes, options.theme)


def _search(console: Console, options: argparse.Namespace) -> int:
    names = mutants.named(options.mutant)
    if options.seed is not None:
        return max(_one(console, options, name) for name in names)
    alive = []
    for name, count, result in _hunts(options, names):
        if result is None or result.failure is None:
            alive.append(name)
            console.print(f"[red]ALIVE[/red] after {count:4} seeds  ", name)
        else:
            rule = result.failure.message[:100]
            console.print(
                f"killed by {count:4} seeds, seed {result.seed:4}  {name}: {rule}", markup=False, soft_wrap=True
            )
            if len(names) == 1:
                show_failure(console, result, name)
    console.print(f"{len(names) - len(alive)} of {len(names)} mutants killed", style="bold", markup=False)
    return 1 if alive else 0


def _pin(console: Console, options: argparse.Namespace) -> int:
    """Keep pins that still kill, search for the others."""
    table = pins.load()
    stale = [name for name, kills in check_pins(list(mutants.MUTANTS), options.processes) if not kills]
    table = {name: pin for name, pin in table.items() if name not in stale}
    for name, count, result in _hunts(options, stale):
        if result is None or result.failure is None:
            console.print(f"[red]no seed of {count}[/red]", name)
        else:
            table[name] = pins.Pin(result.seed, result.failure.rule, count)
            console.print(f"seed {result.seed} ({result.failure.rule})", name, markup=False)
        pins.store({each: table[each] for each in mutants.MUTANTS if each in table})  # what it has, if it is stopped
    return 1 if len(table) < len(mutants.MUTANTS) else 0


if __name__ == "__main__":
    sys.exit(main())
