"""`minilog broker alter` and `settings` change and list the settings of running brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from minilog.types import BrokerSetting
from minilog_tools.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    DeletedSettings,
    Settings,
    admin_client,
    changed_settings,
    client_settings,
    print_json,
    print_table,
    say,
)
from minilog_tools.cli.examples import examples

_ALL = "all brokers"


def alter(
    broker_id: Annotated[
        int | None, typer.Argument(metavar="ID", min=1, help="The broker. Give --all in its place for all brokers.")
    ] = None,
    of_all: Annotated[bool, typer.Option("--all", help="All brokers that have no such setting of their own.")] = False,
    settings: Settings = None,
    deleted: DeletedSettings = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of brokers while they run, or go back to the brokers' own configuration.

    They count before files and command lines. The cluster keeps them: a broker that starts later has them, too.
    """
    if (broker_id is None) != of_all:
        raise typer.BadParameter("give the ID of a broker, or --all, and not both")
    configs, unset = changed_settings(settings, None, deleted)
    if not configs and not unset:
        raise typer.BadParameter("nothing to alter: give -c KEY=VALUE or -d KEY")
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        former = admin.alter_broker_settings(broker_id, set_configs=configs, unset_configs=unset)
    if as_json:
        print_json(
            {"id": broker_id, "set": configs, "deleted": unset, "former": [_document(setting) for setting in former]}
        )
        return
    before = {setting.name: setting.value for setting in former}
    for name in (*configs, *unset):
        now = f"{name}={configs[name]}" if name in configs else f"{name} is deleted"
        was = f"before: {before[name]}" if name in before else "nothing was set before"
        say(f"{_owner(broker_id)}: {now} ({was})")


def settings(
    bootstrap_servers: BootstrapServers = None, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """List the settings that `alter` has changed. `minilog config print broker --id ID` has all of one broker."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        kept = admin.describe_broker_settings()
    if as_json:
        print_json([_document(setting) for setting in kept])
    else:
        print_table(
            ("of", "setting", "value"), ((_owner(setting.broker_id), setting.name, setting.value) for setting in kept)
        )


def add_to(app: typer.Typer) -> None:
    """Add the verbs `alter` and `settings` to `minilog broker`."""
    app.command(
        epilog=examples(
            "minilog broker alter --all -c replica.lag.time.max.ms=20000",
            "minilog broker alter 2 -d log.level",
        )
    )(alter)
    app.command(epilog=examples("minilog broker settings", "minilog broker settings --json"))(settings)


def _owner(broker_id: int | None) -> str:
    return _ALL if broker_id is None else f"broker {broker_id}"


def _document(setting: BrokerSetting) -> dict[str, int | str | None]:
    return {"id": setting.broker_id, "name": setting.name, "value": setting.value}
