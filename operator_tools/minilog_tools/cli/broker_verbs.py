"""`minilog broker alter` and `settings` change and list the settings of running brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from minilog.types import BrokerSetting
from minilog_tools.cli.common import DeletedSettings, Settings, changed_settings
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

app = typer.Typer()
_ALL = "all brokers"


@verb(app, "minilog broker alter --all -c replica.lag.time.max.ms=20000", "minilog broker alter 2 -d log.level")
def alter(
    cluster: Cluster,
    broker_id: Annotated[
        int | None, typer.Argument(metavar="ID", min=1, help="The broker. Give --all in its place for all brokers.")
    ] = None,
    of_all: Annotated[bool, typer.Option("--all", help="All brokers that have no such setting of their own.")] = False,
    settings: Settings = None,
    deleted: DeletedSettings = None,
) -> Output:
    """Change settings of brokers while they run, or go back to the brokers' own configuration.

    They count before files and command lines. The cluster keeps them: a broker that starts later has them, too.
    """
    if (broker_id is None) != of_all:
        raise typer.BadParameter("give the ID of a broker, or --all, and not both")
    configs, unset = changed_settings(settings, None, deleted)
    if not configs and not unset:
        raise typer.BadParameter("nothing to alter: give -c KEY=VALUE or -d KEY")
    former = cluster.admin.alter_broker_settings(broker_id, set_configs=configs, unset_configs=unset)
    before = {setting.name: setting.value for setting in former}
    return Output(
        {"id": broker_id, "set": configs, "deleted": unset, "former": [_document(setting) for setting in former]},
        *(f"{_owner(broker_id)}: {_change(name, configs.get(name), before.get(name))}" for name in (*configs, *unset)),
    )


def _change(name: str, value: str | None, before: str | None) -> str:
    now = f"{name} is deleted" if value is None else f"{name}={value}"
    return f"{now} ({'nothing was set before' if before is None else f'before: {before}'})"


@verb(app, "minilog broker settings", "minilog broker settings --json")
def settings(cluster: Cluster) -> Output:
    """List the settings that `alter` has changed. `minilog config print broker --id ID` has all of one broker."""
    kept = cluster.admin.describe_broker_settings()
    rows = ((_owner(setting.broker_id), setting.name, setting.value) for setting in kept)
    return Output([_document(setting) for setting in kept], TextTable(("of", "setting", "value"), rows))


def _owner(broker_id: int | None) -> str:
    return _ALL if broker_id is None else f"broker {broker_id}"


def _document(setting: BrokerSetting) -> dict[str, int | str | None]:
    return {"id": setting.broker_id, "name": setting.name, "value": setting.value}
