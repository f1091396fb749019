"""`minilog up` runs a local cluster of real broker processes in the foreground."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from minilog_broker.failure import CommandFailed
from minilog_broker.server.config_layers import load_config
from minilog_broker.stop_signal import StopSignal
from minilog_tools.cli.common import (
    AlsoSet,
    Assignments,
    current_environment,
    parse_assignments,
    say,
)
from minilog_tools.local_cluster import PEER_PORT_DISTANCE, LocalCluster
from minilog_tools.local_ports import HOST, check_ports_are_free, free_ports, port_trouble

if TYPE_CHECKING:
    from minilog_tools.local_security import LocalSecurity

_LOOK_EVERY_S = 0.2
DEFAULT_HTTP_PORT = 8080


def up(
    brokers: Annotated[int, typer.Option(min=1, max=100, help="The number of brokers.")] = 3,
    data_dir: Annotated[
        pathlib.Path, typer.Option(help="The directory of their data. The next start on it goes on with the data.")
    ] = pathlib.Path("minilog-data"),
    port: Annotated[
        int, typer.Option(min=0, max=65_436, help="The first broker's port. The others follow. 0: any free ports.")
    ] = 9092,
    secure: Annotated[
        bool, typer.Option("--secure", help="Use TLS, users and access rules. DIR/client.properties is for clients.")
    ] = False,
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_436,
            show_default=str(DEFAULT_HTTP_PORT),
            help="The first broker's port for health and metrics. The others follow. 0: none, the default "
            "with --port 0.",
        ),
    ] = None,
    console_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port of pages for a browser, which broker 1 serves. 0: none.")
    ] = 0,
    assignments: Assignments = None,
    also_set: AlsoSet = None,
) -> None:
    """Run a local cluster until SIGINT or SIGTERM."""
    settings = parse_assignments(assignments, also_set)
    load_config(None, current_environment(), settings)
    ports = _ports(port, brokers, secure=secure)
    check_ports_are_free(ports, "choose another with --port, or stop the process that listens there")
    if not secure and (data_dir / "security").exists():
        raise CommandFailed(
            f"{data_dir} belongs to a secured cluster, and in the clear anybody could use it: give --secure"
        )
    security = _open_security(data_dir, ports, settings) if secure else None
    http_ports = _http_ports(0 if http_port is None and port == 0 else http_port, ports)
    if console_port:
        _check_console_port(console_port, ports)
    stop = StopSignal((signal.SIGINT, signal.SIGTERM))
    cluster = LocalCluster(data_dir, ports, settings, http_ports, security, console_port or None)
    try:
        cluster.start_all()
        if cluster.wait_running(stop):
            print(f"minilog is ready: bootstrap.servers={cluster.bootstrap_servers}", flush=True)
            if security is not None:
                say(f"minilog: clients need --command-config {security.client_properties}", error=True)
            if console_port:
                say(f"minilog: the console is at http://{HOST}:{console_port}/", error=True)
            _watch(cluster, stop)
    finally:
        killed = cluster.stop()
    if killed:
        raise CommandFailed(f"brokers {killed} did not stop in time and were killed: they recover at the next start")


def _ports(first: int, brokers: int, *, secure: bool) -> Sequence[int]:
    if first:
        return range(first, first + brokers)
    return free_ports(brokers, (PEER_PORT_DISTANCE,) if secure else ())


def _open_security(data_dir: pathlib.Path, ports: Sequence[int], settings: Mapping[str, str]) -> LocalSecurity:
    """The certificates, users and rules of a secured cluster. Raises CommandFailed where a setting would undo them."""
    from minilog_tools.local_security import OWNED_SETTINGS, open_security  # loads cryptography: a quarter of a second

    if taken := sorted(OWNED_SETTINGS & settings.keys()):
        raise CommandFailed(f"{taken[0]} is set by --secure: leave it out, or start brokers by minilog broker")
    peer_ports = [port + PEER_PORT_DISTANCE for port in ports]
    check_ports_are_free(peer_ports, "brokers listen there for each other: choose another with --port")
    servers = ",".join(f"{HOST}:{port}" for port in ports)
    return open_security(data_dir, range(1, len(ports) + 1), servers)


def _http_ports(wanted_port: int | None, ports: Sequence[int]) -> list[int | None]:
    """The port for health and metrics of each broker. A broker whose default port is taken gets None. Raises
    CommandFailed where a port is taken that --http-port gave."""
    if wanted_port == 0:
        return [None] * len(ports)
    first = DEFAULT_HTTP_PORT if wanted_port is None else wanted_port
    http_ports: list[int | None] = []
    for broker_id, port in enumerate(range(first, first + len(ports)), start=1):
        own = f"port {port} on {HOST} belongs to a broker of this cluster" if port in ports else None
        trouble = own or port_trouble(port)
        if trouble is not None and wanted_port is not None:
            raise CommandFailed(f"{trouble}: choose another with --http-port, or stop the process that listens there")
        if trouble is not None:
            say(f"minilog: {trouble}: broker {broker_id} has no health and metrics. Choose --http-port", error=True)
        http_ports.append(port if trouble is None else None)
    return http_ports


def _check_console_port(port: int, ports: Sequence[int]) -> None:
    """Raises CommandFailed where the console could not listen."""
    remedy = "choose another with --console-port"
    if port in ports:
        raise CommandFailed(f"port {port} on {HOST} belongs to a broker of this cluster: {remedy}")
    check_ports_are_free([port], f"{remedy}, or stop the process that listens there")


def _watch(cluster: LocalCluster, stop: StopSignal) -> None:
    """Wait for the signal to stop. A broker that dies is reported, and not started again."""
    while not stop.wait(_LOOK_EVERY_S):
        for dead in cluster.take_dead():
            say(f"minilog: {dead}", error=True)
