"""Run seeds of whole brokers, each in a process of its own. Exit 1 where anything is found wrong.

--seed 4711              one run; --trace prints its last lines where it fails, with what the brokers logged
--seeds 200 --first 0    many; --processes 2; or --minutes 10
--mutant NAME            the true rule replaced, until a seed finds it
--theme NAME             all seeds under this kind of trouble (themes.py); else half of them have one
--hunt all               a table: which mutants so many seeds find; else all whose names begin so.
                         --write-pins keeps the cheapest of --kills seeds in pins.tsv
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.rules.table import named
from tests.simulation.hunt import hunt, report
from tests.simulation.run import Result, run_many
from tests.simulation.themes import THEMES

SEEDS_AT_ONCE = 24  # where minutes bound them


def main() -> int:
    """The command's exit code."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of names: the same seed is the same run
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        return subprocess.call([sys.executable, "-m", "tests.simulation", *sys.argv[1:]], env=environment)
    options = _parse()
    console = Console(width=150)
    if options.hunt is not None:
        return _hunt(console, options)
    total = 1 if options.seed is not None else None if options.minutes else options.seeds
    results, began_s = [], time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=total)
        for result in _results(options, began_s):
            results.append(result)
            progress.update(task, advance=1)
            if result.failure is not None:
                progress.console.print(f"seed {result.seed}: {result.failure}", style="red", markup=False)
            if options.trace:
                progress.console.print("\n".join(result.trace), markup=False, highlight=False)
            if options.mutant and result.failure is not None:
                break
    _show(console, results, time.monotonic() - began_s)
    failures = sum(result.failure is not None for result in results)
    sys.stdout.flush()
    os._exit(1 if failures else 0)


def _results(options: argparse.Namespace, began_s: float) -> Iterator[Result]:
    """Of the one seed, of so many, or of as many as there is time for."""
    first = options.first if options.seed is None else options.seed
    count = 1 if options.seed is not None else SEEDS_AT_ONCE if options.minutes else options.seeds
    while True:
        yield from run_many(range(first, first + count), options.processes, options.mutant, options.theme)
        first += count
        if options.seed is not None or time.monotonic() >= began_s + 60.0 * options.minutes:
            return


def _hunt(console: Console, options: argparse.Namespace) -> int:
    names = named(options.hunt)
    seeds = range(options.first, options.first + options.seeds)
    found = hunt(names, seeds, options.processes, options.kills, options.theme)
    return 0 if report(console, names, found, write_pins=options.write_pins) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--mutant", metavar="NAME")
    parser.add_argument("--theme", choices=sorted(THEMES))
    parser.add_argument("--hunt", metavar="NAME")
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--write-pins", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _show(console: Console, results: list[Result], wall_s: float) -> None:
    faults: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
        writes.update(result.writes)
    table = Table("faults injected", "times")
    for name, times in sorted(faults.items()):
        table.add_row(name, f"{times:,}")
    console.print(table)
    virtual_s, cpu_s = sum(each.virtual_s for each in results), sum(each.cpu_s for each in results)
    console.print(
        f"{len(results)} seeds, {virtual_s:,.0f} virtual s in {cpu_s:,.0f} CPU s = {virtual_s / cpu_s:.1f} virtual s "
        f"per CPU s, {sum(each.events for each in results):,} events, wall {wall_s:,.0f} s; {dict(writes)}, "
        f"{sum(each.reads for each in results):,} records read, "
        f"{sum(each.failure is not None for each in results)} failures",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    sys.exit(main())
