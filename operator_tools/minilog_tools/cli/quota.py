"""`minilog quota` sets, lists and removes quotas, which limit what a user may do on one broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minilog.admin.security import Quota, QuotaAlteration
from minilog.security.quota_keys import DEFAULT_ENTITY, QUOTA_KEYS
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import parse_assignments
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

if TYPE_CHECKING:
    from minilog import Admin

app = typer.Typer(no_args_is_help=True)
Entity = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY", help=f"User:NAME, or {DEFAULT_ENTITY} for all users without their own quota of that key."
    ),
]
_KEYS = ", ".join(QUOTA_KEYS)


@verb(
    app,
    "minilog quota set User:alice producer_byte_rate=10000000 connections=20",
    "minilog quota set default consumer_byte_rate=50000000",
    name="set",
)
def set_(
    cluster: Cluster,
    entity: Entity,
    assignments: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help=f"The keys are {_KEYS}.")],
) -> Output:
    """Set quotas for each broker: bytes a second, a number a second, or a number at a time."""
    wanted = {key: whole_number(key, value) for key, value in _parsed(assignments).items()}
    former = _alter(cluster.admin, entity, wanted)
    return Output(
        {"entity": entity, "quotas": wanted, "former": former},
        *(
            f"{key} of {entity} is {value}, and was {former.get(key, 'without limit')} before"
            for key, value in wanted.items()
        ),
    )


@verb(app, "minilog quota list", "minilog quota list User:alice --json", name="list")
def list_(
    cluster: Cluster, entity: Annotated[str | None, typer.Argument(metavar="[ENTITY]", help="Default: all.")] = None
) -> Output:
    """List the quotas that are set."""
    quotas = cluster.admin.describe_quotas(entity)
    rows = ((limit.entity, limit.key, limit.value, _unit(limit.key)) for limit in quotas)
    return Output(quota_documents(quotas), TextTable(("entity", "key", "value", "unit"), rows))


@verb(app, "minilog quota remove User:alice", "minilog quota remove User:alice connections")
def remove(
    cluster: Cluster,
    entity: Entity,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]", help="Default: all that are set.")] = None,
) -> Output:
    """Remove quotas."""
    wanted = dict.fromkeys(keys or (limit.key for limit in cluster.admin.describe_quotas(entity)))
    former = _alter(cluster.admin, entity, wanted)
    if missing := [key for key in wanted if key not in former] or ([] if wanted else ["quota"]):
        removed = f". The command removed {', '.join(former)}" if former else ""
        raise CommandFailed(f"{entity} had no {', no '.join(missing)}: see `minilog quota list`{removed}")
    return Output(
        {"entity": entity, "former": former},
        *(f"{key} of {entity} is without limit, and was {value} before" for key, value in former.items()),
    )


def _alter(admin: Admin, entity: str, wanted: Mapping[str, int | None]) -> dict[str, int]:
    """Set quotas, or remove those that are None. Returns the former ones."""
    former = admin.alter_quotas([QuotaAlteration(entity, key, value) for key, value in wanted.items()])
    return {limit.key: limit.value for limit in former}


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
