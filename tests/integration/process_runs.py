"""What the runs of many processes have in common: a cluster with a progress bar, its end, and the report."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.cluster import Cluster, running_cluster

MOST_SHOWN = 20
TAIL_CHARACTERS = 2000


class Outcome(Protocol):
    """What a run gives."""

    wrong: list[str]

    def summary(self) -> dict[str, object]:
        """Counts for the table and for machines, with `seed`, `seconds` and `wrong`."""


@contextlib.contextmanager
def watched_cluster(
    directory: pathlib.Path, settings: Mapping[str, str], console: Console | None
) -> Iterator[tuple[Cluster, Progress]]:
    """Three brokers, and a progress bar on the console, if that is a terminal."""
    console = console or Console(quiet=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        running_cluster(directory, 3, settings) as cluster,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        yield cluster, progress


def broker_faults(cluster: Cluster) -> list[str]:
    """Stops all brokers. What is wrong: one that does not end well, or one whose log has a traceback."""
    ended = cluster.stop()
    texts = {name: cluster.log_text(name) for name in cluster.ports}
    wrong = [
        f"broker {name} ended with {code}: {texts[name][-TAIL_CHARACTERS:]}" for name, code in ended.items() if code
    ]
    return wrong + [
        f"broker {name} logged a traceback: {text[-TAIL_CHARACTERS:]}"
        for name, text in texts.items()
        if "Traceback" in text
    ]


def show(outcome: Outcome, words: str, console: Console) -> None:
    """The table: what was done, and what became of it."""
    table = Table("what", "count", show_header=False)
    summary = outcome.summary()
    title = f"{words}, {summary.pop('seconds'):.0f} s, seed {summary.pop('seed')}: wrong {len(outcome.wrong)}"
    del summary["wrong"]
    for name, value in summary.items():
        counts = value.items() if isinstance(value, dict) else None
        row = str(value) if counts is None else ", ".join(f"{count} {what}" for what, count in sorted(counts))
        table.add_row(name, row or "0")
    console.print(table)
    print(title)
    for line in outcome.wrong[:MOST_SHOWN]:
        print("  " + line)


def report(kind: str, words: str, run: Callable[[pathlib.Path, Console], Outcome], result: pathlib.Path | None) -> int:
    """Run it in a folder of its own, and show what became of it: 1 where anything is wrong."""
    console = Console()
    folder = tempfile.mkdtemp(prefix=f"minilog-{kind}-")
    print(f"what {kind} and brokers log is in {folder}, and stays there where anything is wrong", flush=True)
    outcome = run(pathlib.Path(folder), console)
    show(outcome, words, console)
    if not outcome.wrong:
        shutil.rmtree(folder)
    if result is not None:
        result.write_text(json.dumps(outcome.summary(), indent=2) + "\n")
    return 1 if outcome.wrong else 0
