"""`minilog demo` shows brokers, clients and Spark at work on real data. Its work is in minilog_tools.demo."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from minilog_broker.stop_signal import ended_by_interrupt


def demo(
    report: Annotated[pathlib.Path | None, typer.Option(metavar="FILE", help="Write the result there as JSON.")] = None,
    brokers: Annotated[int, typer.Option(min=2, max=9, help="The number of brokers.")] = 3,
    records: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N flights.")] = None,
) -> None:
    """Replicate the flights of 2013, let Spark join them with the weather, kill a broker, and count."""
    with ended_by_interrupt():
        from minilog_tools.demo.run import run_demo

    raise typer.Exit(run_demo(brokers=brokers, flights_limit=records, report_file=report))
