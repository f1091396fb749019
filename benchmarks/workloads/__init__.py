"""The targets' workloads, one a file; `WORKLOADS` in __main__ has them in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks.arena import Arena
from benchmarks.figures import Better, Result, Run, Target

Turn = Callable[[int], Run]
"""One run of one contestant; its argument is the number of the run, below 0 where it only warms up."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A second target out of the same runs: one of their details."""

    target: Target
    detail: str


def details_of(target: str, rows: Iterable[tuple[str, str, str, str]]) -> tuple[Detail, ...]:
    """Details without a bound: less is better. A row has the end of the name, the title, the unit and the key."""
    return tuple(
        Detail(Target(f"{target}-{name}", title, unit, Better.LOWER, None), key) for name, title, unit, key in rows
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """What is done by turns. `contestants`: from an arena to a turn; each may raise artifacts.Unavailable."""

    target: Target
    ours: str
    theirs: str
    contestants: dict[str, Callable[[Arena], Turn]]
    warm_ups: int = 1
    runs: int = 5
    details: tuple[Detail, ...] = field(default=())

    def result(self) -> Result:
        return Result(self.target, self.ours, self.theirs)

    def detail_results(self, result: Result) -> list[Result]:
        """The targets that are details of these runs; without a figure where nobody could measure it."""
        found = []
        for each in self.details:
            one = Result(each.target, self.ours, self.theirs)
            for name, runs in result.runs.items():
                known = [run for run in runs if each.detail in run.details]
                if known:
                    one.runs[name] = [Run(run.details[each.detail], run.cost, run.amount_bytes) for run in known]
            one.missing = result.absent()
            found.append(one)
        return found


class WrongRecords(Exception):
    """What a benchmark fails on: records that are missing or too many."""


def check_records(found: float, expected: float, where: str) -> None:
    if found != expected:
        raise WrongRecords(f"{found:,.0f} records are in {where}, {expected:,.0f} were written")
