"""`minilog broker` runs one broker process in the foreground. Its verbs are for running brokers. They are in
broker_verbs.py and retirement_verbs.py."""

from __future__ import annotations

import pathlib
import sys
from typing import Annotated

import typer

from minilog.addresses import Address, parse_address
from minilog_broker.imports import uncollected, without
from minilog_broker.server.addresses import check_plaintext
from minilog_broker.server.broker_options import BrokerOptions, VoterAddress
from minilog_broker.server.client_listeners import check_reachable
from minilog_broker.server.config_layers import load_with_origins
from minilog_broker.server.console_options import LISTEN as CONSOLE_LISTEN
from minilog_broker.stop_signal import ended_by_interrupt
from minilog_tools.cli import broker_verbs, retirement_verbs
from minilog_tools.cli.common import (
    AlsoSet,
    Assignments,
    current_environment,
    parse_assignments,
)
from minilog_tools.cli.examples import examples


def parse_voters(text: str) -> tuple[VoterAddress, ...]:
    """The addresses in `1@HOST:PORT,2@HOST:PORT`. Raises ValueError for a wrong part, and for an id given twice."""
    voters = []
    for part in text.split(","):
        number, separator, address = part.strip().partition("@")
        if not separator or not number.isascii() or not number.isdigit() or int(number) < 1:
            raise ValueError(f"{part!r} is not ID@HOST:PORT with an id of at least 1")
        voters.append(VoterAddress(int(number), *parse_address(address)))
    ids = [voter.id for voter in voters]
    if len(set(ids)) != len(ids):
        raise ValueError(f"a broker id is named twice: {text}")
    return tuple(voters)


def _read_address(text: str | None, option: str) -> Address | None:
    """The address in the option's text, or None without the option. Raises BadParameter."""
    try:
        return None if text is None else parse_address(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _read_voters(text: str) -> tuple[VoterAddress, ...]:
    """The voters in the text of --voters. Raises BadParameter."""
    try:
        return parse_voters(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--voters") from None


def _console_setting(address: str | None) -> dict[str, str]:
    """The setting that --console stands for. Raises BadParameter."""
    _read_address(address, "--console")
    return {} if address is None else {CONSOLE_LISTEN: address}


app = typer.Typer()
for others in (broker_verbs, retirement_verbs):
    app.add_typer(others.app)
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow plaintext on other addresses than loopback.")]


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        "minilog broker --id 1 --listen 127.0.0.1:9092 --data-dir d --voters 1@127.0.0.1:9092",
        "minilog broker --id 1 --data-dir d --voters 1@10.0.0.1:9192 --config broker.toml --http 127.0.0.1:8080",
    ),
)
def broker(
    context: typer.Context,
    broker_id: Annotated[
        int | None, typer.Option("--id", min=1, max=1_000_000, help="This broker's number, which never changes.")
    ] = None,
    data_dir: Annotated[
        pathlib.Path | None, typer.Option(help="The directory of its logs, which belongs to this broker alone.")
    ] = None,
    voters: Annotated[
        str | None, typer.Option(metavar="1@HOST:PORT,...", help="The voters of the metadata quorum.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The address for clients and brokers. The setting `listeners` has further ones."
        ),
    ] = None,
    rack: Annotated[str | None, typer.Option(metavar="NAME", help="The rack of the broker.")] = None,
    host_label: Annotated[
        str | None, typer.Option(metavar="NAME", help="The host of the broker, where several brokers share one.")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The address for health and metrics. None by default.")
    ] = None,
    console: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The address of the console. Off loopback it needs https.")
    ] = None,
    insecure: Insecure = False,
    config_file: Annotated[pathlib.Path | None, typer.Option("--config", metavar="FILE.toml", help="Settings.")] = None,
    assignments: Assignments = None,
    also_set: AlsoSet = None,
) -> None:
    """Run one broker until SIGINT or SIGTERM. It needs --id, --data-dir and --voters. The verbs take none of them."""
    if context.invoked_subcommand is not None:
        _check_none_given(context)
        return
    if broker_id is None or data_dir is None or voters is None:
        needed = {"--id": broker_id, "--data-dir": data_dir, "--voters": voters}
        missing = next(name for name, value in needed.items() if value is None)
        raise typer.BadParameter("a broker process needs this option: give it", param_hint=missing)
    listen_address = _read_address(listen, "--listen")
    addresses = _read_voters(voters)
    if host_label == "":
        raise typer.BadParameter("it is empty: name the host, or leave it out", param_hint="--host-label")
    http_address = _read_address(http, "--http")
    if http_address is not None:
        check_plaintext("--http", *http_address, insecure=insecure)
    settings = {**parse_assignments(assignments, also_set), **_console_setting(console)}
    config, origins = load_with_origins(config_file, current_environment(), settings)
    options = BrokerOptions(
        broker_id=broker_id,
        listen=listen_address,
        data_dir=data_dir,
        voters=addresses,
        rack=rack,
        host_label=host_label,
        http=http_address,
        config=config,
        origins=origins,
    )
    check_reachable(options.client_listeners(), config, insecure=insecure)
    _check_console(options)
    with ended_by_interrupt(), uncollected(), without(*_unused()):
        # Else the loop would stand still at the first batch, while Arrow loads its functions: see minilog.compute.
        import pyarrow.compute  # noqa: F401

        from minilog_broker.server.broker import run_broker

    raise typer.Exit(run_broker(options))


def _check_console(options: BrokerOptions) -> None:
    """Raises InvalidConfig where the console could not run as it is set."""
    served = options.console()
    if served is None or not served.keystore:
        return
    with ended_by_interrupt(), uncollected():
        from minilog_broker.server.ingress.transport.server_credentials import ServerFiles  # loads gRPC

    ServerFiles(served.keystore, "", (served.keystore_setting, "")).context()


def _check_none_given(context: typer.Context) -> None:
    """Raises BadParameter where an option of a broker process stands before a verb."""
    sources = (context.get_parameter_source(name) for name in context.params)
    if any(source is not None and source.name == "COMMANDLINE" for source in sources):
        raise typer.BadParameter(
            f"options of a broker process stand before the verb {context.invoked_subcommand}: give the verb's options "
            "behind it, and leave the others out"
        )


def _unused() -> tuple[str, ...]:
    """Packages that libraries import if they are installed, and that a broker does not use. Their import would take a
    tenth of its start, and 14 MiB. Arrow needs numpy only for numpy's arrays. Structlog needs rich only on a
    terminal."""
    return ("numpy",) if sys.stderr.isatty() else ("numpy", "rich")
