"""The report of the demonstration: a frozen record, its tables for people, and its JSON for machines."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

from rich.console import Console
from rich.table import Table

from minilog_tools.demo.expected import Agreement, Census


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The seconds that each step took, by the wall clock."""

    cluster_start_s: float
    producing_s: float
    failover_s: float
    back_in_sync_s: float
    controller_failover_s: float
    controller_back_in_sync_s: float
    query_restart_s: float
    last_window_s: float
    total_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The numbers of written records, the comparison with the topics, and the times."""

    brokers: int
    killed_broker: int | None
    killed_controller: int | None
    acknowledged: int
    flights: Census
    weather: Census
    delays: Agreement
    delays_records: int
    times: Times

    @property
    def passed(self) -> bool:
        return self.flights.is_exact and self.weather.is_exact and self.delays.is_exact

    def document(self) -> dict[str, Any]:
        """The report, for JSON."""
        both = (self.flights, self.weather)
        return {
            "passed": self.passed,
            "records_acknowledged": self.acknowledged,
            "records_in_topic": sum(census.actual for census in both),
            "lost": sum(census.lost for census in both),
            "duplicated": sum(census.duplicated for census in both),
            "unexpected": sum(census.unexpected for census in both),
            "agreement": "exact" if self.delays.is_exact else "different",
            "brokers": self.brokers,
            "killed_broker": self.killed_broker,
            "killed_controller": self.killed_controller,
            "topics": {"flights": dataclasses.asdict(self.flights), "weather": dataclasses.asdict(self.weather)},
            "delays": {**dataclasses.asdict(self.delays), "records": self.delays_records},
            "times": {name: round(value, 2) for name, value in dataclasses.asdict(self.times).items()},
        }


def write_report(report: DemoReport, file: pathlib.Path) -> None:
    """Write the report as JSON. The file is whole, or does not exist."""
    unfinished = file.with_name(file.name + ".part")
    unfinished.write_text(json.dumps(report.document(), indent=2) + "\n")
    unfinished.replace(file)


def show(report: DemoReport, console: Console) -> None:
    """Print the tables at the end of the demonstration."""
    console.print()
    console.print(_topics_table(report))
    console.print(_times_table(report.times))
    if report.passed:
        console.print("[bold green]Nothing lost, nothing twice, and Spark and pyarrow agree to the last digit.[/]")
    else:
        console.print("[bold red]The topics do not hold what was written: this is a bug, please report it.[/]")


def _topics_table(report: DemoReport) -> Table:
    table = Table("topic", title=f"{report.acknowledged:,} records acknowledged", title_style="bold")
    for name in ("written", "in the topic", "lost", "duplicated", "agreement with pyarrow"):
        table.add_column(name, justify="right")
    for name, census in (("flights", report.flights), ("weather", report.weather)):
        table.add_row(
            name,
            f"{census.expected:,}",
            f"{census.actual:,}",
            _none_is_good(census.lost),
            _none_is_good(census.duplicated),
            _verdict(census.is_exact, f"{census.unexpected:,} unexpected"),
        )
    delays = report.delays
    wrong = f"{delays.missing:,} missing, {delays.different:,} different, {delays.unexpected:,} unexpected"
    verdict = _verdict(delays.is_exact, wrong)
    table.add_row("delays (by key)", f"{delays.expected:,}", f"{delays.actual:,}", "", "", verdict)
    return table


def _times_table(times: Times) -> Table:
    table = Table("what took how long", title_style="bold")
    table.add_column("seconds", justify="right")
    words = {
        "cluster_start_s": "the brokers started and found each other",
        "producing_s": "a year of flights and weather, replicated",
        "failover_s": "after SIGKILL: other leaders for the dead broker's partitions",
        "back_in_sync_s": "started again: back in every ISR, while producing",
        "controller_failover_s": "after SIGKILL of the controller: another one, and other leaders for its partitions",
        "controller_back_in_sync_s": "started again: back in every ISR, while producing",
        "query_restart_s": "the query stopped, and started again from its checkpoint",
        "last_window_s": "the last window written after the last event",
        "total_s": "all of it",
    }
    for name, meaning in words.items():
        table.add_row(meaning, f"{getattr(times, name):.1f}")
    return table


def _none_is_good(count: int) -> str:
    return "[green]0[/]" if count == 0 else f"[bold red]{count:,}[/]"


def _verdict(is_exact: bool, otherwise: str) -> str:
    return "[green]exact[/]" if is_exact else f"[bold red]{otherwise}[/]"
