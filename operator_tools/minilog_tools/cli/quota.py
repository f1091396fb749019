"""`minilog quota` sets, lists and removes quotas, which limit what a user may do on one broker."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from minilog.admin.security import Quota, QuotaAlteration
from minilog.security.quota_keys import DEFAULT_ENTITY, QUOTA_KEYS
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    parse_assignments,
    print_json,
    print_table,
    say,
)
from minilog_tools.cli.examples import examples

app = typer.Typer(no_args_is_help=True)
Entity = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY", help=f"User:NAME, or {DEFAULT_ENTITY} for all users without their own quota of that key."
    ),
]
_KEYS = ", ".join(QUOTA_KEYS)


@app.callback()
def quota() -> None:
    """Set, list and remove quotas of users. Each broker counts by itself."""


@app.command(
    "set",
    epilog=examples(
        "minilog quota set User:alice producer_byte_rate=10000000 connections=20",
        "minilog quota set default consumer_byte_rate=50000000",
    ),
)
def set_(
    entity: Entity,
    assignments: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help=f"The keys are {_KEYS}.")],
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Set quotas for each broker: bytes a second, a number a second, or a number at a time."""
    wanted = [QuotaAlteration(entity, key, whole_number(key, value)) for key, value in _parsed(assignments).items()]
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        former = {limit.key: limit.value for limit in admin.alter_quotas(wanted)}
    if as_json:
        values = {alteration.key: alteration.value for alteration in wanted}
        print_json({"entity": entity, "quotas": values, "former": former})
        return
    for alteration in wanted:
        before = former.get(alteration.key, "without limit")
        say(f"{alteration.key} of {entity} is {alteration.value}, and was {before} before")


@app.command("list", epilog=examples("minilog quota list", "minilog quota list User:alice --json"))
def list_(
    entity: Annotated[str | None, typer.Argument(metavar="[ENTITY]", help="Default: all.")] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the quotas that are set."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        quotas = admin.describe_quotas(entity)
    if as_json:
        print_json(quota_documents(quotas))
        return
    rows = ((limit.entity, limit.key, limit.value, _unit(limit.key)) for limit in quotas)
    print_table(("entity", "key", "value", "unit"), rows)


@app.command(epilog=examples("minilog quota remove User:alice", "minilog quota remove User:alice connections"))
def remove(
    entity: Entity,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]", help="Default: all that are set.")] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Remove quotas."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        wanted = list(dict.fromkeys(keys)) if keys else [limit.key for limit in admin.describe_quotas(entity)]
        former = {
            limit.key: limit.value for limit in admin.alter_quotas(QuotaAlteration(entity, key, None) for key in wanted)
        }
    if missing := [key for key in wanted if key not in former] or ([] if wanted else ["quota"]):
        removed = f". The command removed {', '.join(former)}" if former else ""
        raise CommandFailed(f"{entity} had no {', no '.join(missing)}: see `minilog quota list`{removed}")
    if as_json:
        print_json({"entity": entity, "former": former})
        return
    for key, value in former.items():
        say(f"{key} of {entity} is without limit, and was {value} before")


def quota_documents(quotas: list[Quota]) -> list[dict[str, Any]]:
    """One document for each entity, for JSON."""
    entities = dict.fromkeys(limit.entity for limit in quotas)
    return [
        {"entity": name, "quotas": {limit.key: limit.value for limit in quotas if limit.entity == name}}
        for name in entities
    ]


def whole_number(key: str, text: str) -> int:
    """The number in a text. Raises BadParameter where it is no whole number."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise typer.BadParameter(
            f"{key}={text} is not valid: expected a whole number. `minilog quota remove` removes a quota"
        )
    return int(text)


def _parsed(assignments: list[str]) -> dict[str, str]:
    parsed = parse_assignments(assignments, option="KEY=VALUE")
    for key in parsed:
        if key not in QUOTA_KEYS:
            raise typer.BadParameter(f"{key} is no key of quotas: the keys are {_KEYS}")
    return dict(parsed)


def _unit(key: str) -> str:
    quota_key = QUOTA_KEYS.get(key)
    return quota_key.unit if quota_key else ""
