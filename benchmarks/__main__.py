"""minilog beside its peers, in turns, in one run: `python -m benchmarks [TARGET ...]`; all targets by default.

T1 T10 produce    T1r record by record    T2 consume    T3 T4 T5 Spark reads, streams, writes    T6 latency
T7 failover       T8 idle                 T9 many partitions    T11 micro-batches         T12 many producers
T13 T14 T15 rows in columns, queried and written    T20-scan rows into Arrow, beside Parquet
T19-latest the newest row of each key, beside a window
T21 T21-live a queue that workers share             T21-idle workers without work
T20-groups members of a group come and go           T20-idle an idle group of 1,000 members
(docs/spec/performance.md)

--quick       T1, T3, T5 and T11, smaller: at most 8 minutes
--json FILE   {"T1": {"ratio": ..., "minilog": ..., "kafka": ..., "unit": ..., ...}, ...}
--report DIR  a report (Markdown), results.json and plots (PNG)
--alone       without peers, as where Java, Maven or Go are missing
--secured     TLS, and SCRAM for clients, on both sides: T1, T1r, T2 and T6
Nothing fails on a time: exit 1 where records are missing or too many.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.accounting import touch_memory
from benchmarks.arena import Arena
from benchmarks.artifacts import Unavailable
from benchmarks.figures import Result, markdown, spread
from benchmarks.workloads import Turn, Workload, WrongRecords
from benchmarks.workloads.consume import consume
from benchmarks.workloads.failover import failover
from benchmarks.workloads.group_idle import idle_group
from benchmarks.workloads.groups import groups
from benchmarks.workloads.idle import idle
from benchmarks.workloads.latency import latency
from benchmarks.workloads.latest import latest
from benchmarks.workloads.micro_batch import micro_batch
from benchmarks.workloads.produce import batches, record_by_record
from benchmarks.workloads.queues import queue_backlog, queue_idle, queue_live
from benchmarks.workloads.scale import partitions, producers, restart
from benchmarks.workloads.scan import scan_columns
from benchmarks.workloads.spark import batch_read, stream_read, write
from benchmarks.workloads.typed import typed

PEERS = pathlib.Path.home() / ".cache" / "minilog-benchmarks"
TOUCHED_GIB = 6.0
_SECURED = ("T1", "T1r", "T2", "T6")


def workloads(*, is_quick: bool) -> list[Workload]:
    """In the order in which they are run: what is idle first."""
    if is_quick:
        return [
            batches("T1", 1_024, 3.0, megabytes=200, is_quick=True),
            batch_read(2_000_000),
            write(1_000_000, is_quick=True),
            micro_batch(20, runs=2),
        ]
    return [
        idle(1, 0.15),
        idle(300, 0.1),
        idle_group(1_000),
        queue_idle(200),
        latency(100),
        latency(1_000),
        batches("T1", 1_024, 3.0),
        batches("T1-100B", 100, 5.0, megabytes=150),
        record_by_record("T1r", 1_024, 1.5),
        record_by_record("T1r-100B", 100, 1.0),
        consume("T2", 1_024, 3.0),
        consume("T2-100B", 100, 2.5),
        consume("T2-send", 100, 2.0, kind="records", megabytes=40),
        batch_read(5_000_000),
        stream_read(5_000_000),
        write(3_000_000),
        micro_batch(50),
        *typed(6_000_000),
        latest(10_000_000, 1_000_000),
        scan_columns(10_000_000),
        groups(50, 300, 1_000.0),
        queue_backlog(200_000, 100),
        queue_live(1_000, 100),
        producers(100),
        partitions(300, 0.9),
        partitions(1_000, 0.9),
        restart(1_000, 10.0),
        failover(10, 2),
    ]


def prepared(workload: Workload, arena: Arena, result: Result) -> dict[str, Turn]:
    """The contestants that there are; of the others it is said why not."""
    turns: dict[str, Turn] = {}
    for name, prepare in workload.contestants.items():
        try:
            turns[name] = prepare(arena)
        except Unavailable as error:
            result.missing[name] = str(error)
    return turns


def take_turns(workload: Workload, arena: Arena, runs: int, progress: Progress) -> list[Result]:
    """A B A B; the first of each warm up. Whose records are missing or too many has no figure, and no further turn."""
    result = workload.result()
    turns = prepared(workload, arena, result)
    task = progress.add_task(
        f"{workload.target.name} {workload.target.title}", total=len(turns) * (workload.warm_ups + runs)
    )
    for number in range(-workload.warm_ups, runs):
        for name, turn in turns.items():
            progress.advance(task)
            if name in result.wrong:
                continue
            try:
                run = turn(number)
            except WrongRecords as error:
                result.wrong[name] = str(error)
                result.runs.pop(name, None)
                continue
            if number >= 0:
                result.runs.setdefault(name, []).append(run)
    return [result, *workload.detail_results(result)]


def show(console: Console, results: Sequence[Result]) -> None:
    table = Table("target", "what", "unit", "minilog", "peer", "ratio", "to reach")
    for result in results:
        ours, theirs = ([run.figure for run in result.runs.get(name, ())] for name in (result.ours, result.theirs))
        cells = (spread(ours), spread(theirs) or result.absent().get(result.theirs, ""), spread(result.ratios(), 2))
        table.add_row(
            result.target.name,
            result.target.title,
            result.target.unit,
            *cells,
            "" if result.target.aim is None else f"{result.target.aim:g}",
        )
    console.print(table)


def save(results: Sequence[Result], chosen: argparse.Namespace) -> None:
    found = {result.target.name: result.to_json() for result in results}
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.report is not None:
        from benchmarks.plots import plot

        chosen.report.mkdir(parents=True, exist_ok=True)
        (chosen.report / "results.json").write_text(json.dumps(found, indent=1) + "\n")
        (chosen.report / "report").with_suffix(".md").write_text(markdown(results))
        plot(results, chosen.report)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, help="of each contestant that are counted")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--peers", type=pathlib.Path, default=PEERS, help="where fetched artifacts are kept")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--secured", action="store_true")
    return parser.parse_args()


def main() -> int:
    chosen = parse()
    wanted = workloads(is_quick=chosen.quick)
    known = {each.target.name for each in wanted}
    if unknown := set(chosen.targets) - known:
        print(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    wanted = [each for each in wanted if not chosen.targets or each.target.name in chosen.targets]
    if chosen.secured:
        wanted = [each for each in wanted if each.target.name.partition("-")[0] in _SECURED]
    console, results = Console(width=150), list[Result]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    touch_memory(TOUCHED_GIB)
    with tempfile.TemporaryDirectory(prefix="minilog-bench-") as folder:
        arena = Arena(pathlib.Path(folder), chosen.peers, is_alone=chosen.alone, is_secured=chosen.secured)
        try:
            with Progress(*columns, console=console) as progress:
                for each in wanted:
                    results += take_turns(each, arena, chosen.runs or (2 if chosen.quick else each.runs), progress)
                    save(results, chosen)
        finally:
            arena.end()
            show(console, results)
    wrong = [f"{result.target.name}, {name}: {why}" for result in results for name, why in result.wrong.items()]
    print("".join(f"wrong: {line}\n" for line in wrong), end="", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
