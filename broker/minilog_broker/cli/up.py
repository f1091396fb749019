"""`minilog up`: a local cluster of real broker processes in the foreground."""

from __future__ import annotations

import pathlib
import signal
from typing import Annotated

import typer

from minilog_broker.cli.common import Assignments, current_environment, say
from minilog_broker.failure import CommandFailed
from minilog_broker.local_cluster import LocalCluster, check_ports_are_free
from minilog_broker.server.config import load_config, parse_assignments
from minilog_broker.stop_signal import StopSignal

_LOOK_EVERY_S = 0.2


def up(
    brokers: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 3,
    data_dir: Annotated[
        pathlib.Path, typer.Option(help="Where their data lives; starting again on it resumes.")
    ] = pathlib.Path("minilog-data"),
    port: Annotated[int, typer.Option(min=1, max=65_436, help="The first broker's port; the others follow.")] = 9092,
    assignments: Assignments = None,
) -> None:
    """Run a local cluster until SIGINT or SIGTERM."""
    settings = parse_assignments(assignments or [], "--set")
    load_config(None, current_environment(), settings)
    ports = range(port, port + brokers)
    check_ports_are_free(ports, "choose another with --port, or stop what listens there")
    stop = StopSignal((signal.SIGINT, signal.SIGTERM))
    cluster = LocalCluster(data_dir, ports, settings)
    try:
        cluster.start_all()
        if cluster.wait_running(stop):
            print(f"minilog is ready: bootstrap.servers={cluster.bootstrap_servers}", flush=True)
            _watch(cluster, stop)
    finally:
        killed = cluster.stop()
    if killed:
        raise CommandFailed(f"brokers {killed} did not stop in time and were killed: they recover at the next start")


def _watch(cluster: LocalCluster, stop: StopSignal) -> None:
    """Until told to stop; a broker that dies is reported, not started again."""
    while not stop.wait(_LOOK_EVERY_S):
        for dead in cluster.take_dead():
            say(f"minilog: {dead}", error=True)
