"""`minilog config print` shows each setting as it counts, and its origin, without secrets. It asks a broker only with
--id."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Annotated

import typer

from minilog import config as client_config
from minilog.effective import EffectiveSetting, Origin, Source
from minilog.properties import properties_file
from minilog_broker.server.config_layers import explain_config
from minilog_tools.cli.common import (
    DEFAULT_BOOTSTRAP_SERVERS,
    AlsoSet,
    Assignments,
    BootstrapServers,
    CommandConfig,
    Settings,
    admin_client,
    attributes,
    client_settings,
    current_environment,
    parse_assignments,
)
from minilog_tools.cli.verb import Output, TextTable, verb

app = typer.Typer(no_args_is_help=True)
print_ = typer.Typer(no_args_is_help=True, help="Print the settings of a broker, or of a client.")
app.add_typer(print_, name="print")

Changed = Annotated[bool, typer.Option("--changed", help="Leave out settings with their default.")]


@verb(
    print_,
    "minilog config print broker --config broker.toml -c log.level=debug",
    "minilog config print broker --id 2 --changed",
)
def broker(
    broker_id: Annotated[
        int | None, typer.Option("--id", min=1, help="A running broker, which answers with its own settings.")
    ] = None,
    config_file: Annotated[pathlib.Path | None, typer.Option("--config", metavar="FILE.toml", help="Settings.")] = None,
    assignments: Assignments = None,
    also_set: AlsoSet = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    changed: Changed = False,
) -> Output:
    """Print the settings that `minilog broker` would have with the same options and environment.

    With --id: print the settings of a running broker, also those that were set while it ran.
    """
    if broker_id is not None:
        if config_file is not None or assignments or also_set:
            raise typer.BadParameter("a running broker has its own configuration: leave --config and -c out")
        with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
            return _output(admin.broker_config(broker_id), changed=changed)
    if bootstrap_servers is not None or command_config is not None:
        raise typer.BadParameter("without --id the command asks no broker: give --id, or leave the address out")
    settings = parse_assignments(assignments, also_set)
    return _output(explain_config(config_file, current_environment(), settings), changed=changed)


@verb(
    print_,
    "minilog config print client --command-config client.properties --changed",
    "minilog config print client -c acks=1 --json",
)
def client(
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    settings: Settings = None,
    changed: Changed = False,
) -> Output:
    """Print the settings that a client has with this file and these options. Verbs set a few more."""
    layers: list[tuple[Origin, dict[str, str]]] = []
    if command_config is not None:
        layers.append((Origin(Source.FILE, command_config), properties_file(command_config)))
    layers.append((Origin(Source.OPTION, "-c"), parse_assignments(settings)))
    if bootstrap_servers is not None:
        layers.append((Origin(Source.OPTION, "-b"), {"bootstrap.servers": bootstrap_servers}))
    environment = current_environment()
    servers = "bootstrap.servers"
    if not environment.get(client_config.variable_of(servers)) and not any(servers in layer for _, layer in layers):
        layers.insert(0, (Origin(Source.DEFAULT), {servers: DEFAULT_BOOTSTRAP_SERVERS}))
    return _output(client_config.explain_config(layers, environment), changed=changed)


def _output(settings: Sequence[EffectiveSetting], *, changed: bool) -> Output:
    shown = [setting for setting in settings if not changed or setting.origin.source is not Source.DEFAULT]
    rows = (
        (setting.name, setting.value, f"{setting.origin.source.value} {setting.origin.where}".strip())
        for setting in shown
    )
    documents = [
        {
            **attributes(setting, "name", "value"),
            "source": setting.origin.source.value,
            "where": setting.origin.where,
        }
        for setting in shown
    ]
    return Output(documents, TextTable(("setting", "value", "from"), rows))
