"""`python -m tests.spark.kills`: kill, and judge; a table in the end. Exit 1 where anything is lost or doubled."""

from __future__ import annotations

import argparse
import collections
import itertools
import pathlib
import statistics
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from tests.integration.forms import RECORDS, ROWS
from tests.spark.kills.run import LOCAL, STANDALONE, CopyOutcome, run
from tests.spark.kills.soak import in_random_order, soak
from tests.spark.kills.victims import VICTIMS

_BUT_EXECUTORS = [name for name in VICTIMS if name != "executor"]


def show(outcome: CopyOutcome) -> None:
    """Kills by victim, then what became of the records."""
    table = Table("victim", "kills", "a batch after: median", "worst", "driver starts")
    by_victim = collections.defaultdict(list)
    for each in outcome.kills:
        by_victim[each.victim].append(each)
    for victim, kills in sorted(by_victim.items()):
        times = [each.flows_again_s for each in kills]
        starts = sum(each.driver_starts for each in kills)
        table.add_row(victim, str(len(kills)), f"{statistics.median(times):.2f} s", f"{max(times):.2f} s", str(starts))
    Console(width=120).print(table)
    verdict = outcome.verdict
    print(
        f"kills {len(outcome.kills)}, seed {outcome.seed}: input {verdict.input}, acknowledged {outcome.acknowledged}, "
        f"copies {verdict.copies}, read meanwhile {outcome.read}, of aborted attempts (shown to nobody) "
        f"{outcome.aborted}, duplicates {verdict.duplicates}, lost {verdict.lost}, wrong {len(verdict.wrong)}"
    )
    for line in verdict.wrong[:20]:
        print("  " + line)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--minutes", type=float, help="instead: a kill every 20 s, memory and open files sampled")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--victims", default=",".join(_BUT_EXECUTORS), help=f"of {', '.join(VICTIMS)}; default: %(default)s"
    )
    masters = f"executor as a victim needs {STANDALONE} (started here) or local-cluster[2,1,1024]; default: %(default)s"
    parser.add_argument("--master", default=LOCAL, help=masters)
    parser.add_argument("--typed", action="store_true", help="typed topics, whose schemas evolve before each kill")
    parser.add_argument("--queue", help="the copy takes its records from a queue of this name")
    parser.add_argument("--secured", action="store_true", help="a closed cluster; tasks log in by tokens of 20 s")
    parser.add_argument("--at-least-once", action="store_true", help="what the judgement is worth: it should object")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="leave logs and data in this directory")
    chosen = parser.parse_args()
    names, form = chosen.victims.split(","), ROWS if chosen.typed else RECORDS
    with tempfile.TemporaryDirectory(prefix="minilog-spark-kills-") as folder:
        directory = chosen.keep or pathlib.Path(folder)
        if chosen.minutes:
            outcome, samples = soak(names, chosen.minutes, chosen.seed, directory, master=chosen.master, form=form)
            samples.show()
        else:
            victims = itertools.islice(in_random_order(names, chosen.seed), chosen.times)
            at_least_once = chosen.at_least_once
            outcome = run(
                victims,
                chosen.seed,
                directory,
                master=chosen.master,
                at_least_once=at_least_once,
                form=form,
                secured=chosen.secured,
                queue=chosen.queue,
            )
    show(outcome)
    return 1 if outcome.verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
