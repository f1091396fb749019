"""What every verb shares: where the brokers are, what machines get to read, the failure that is told in one line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minilog.errors import InvalidConfig, MinilogError
from minilog.properties import properties_file
from minilog_broker.imports import uncollected
from minilog_broker.printable import printable
from minilog_broker.printable import say as say

if TYPE_CHECKING:
    from minilog import Admin, TopicPartition

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
# A person waits at the terminal: half a minute is long enough to say that nobody answers.
ANSWER_WITHIN_MS = 15_000

_SERVERS = "bootstrap.servers"
_SERVERS_VARIABLE = "MINILOG_BOOTSTRAP_SERVERS"

BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="One or more brokers of the cluster. Default: as --command-config says, else "
        f"{_SERVERS_VARIABLE}, else {DEFAULT_BOOTSTRAP_SERVERS}.",
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option("--command-config", metavar="FILE", help="A client's settings, as in Kafka's client.properties."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Settings = Annotated[
    list[str] | None, typer.Option("-c", "--config", metavar="KEY=VALUE", help="A setting. Repeatable.")
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A broker's setting. Repeatable.")
]


OFFSET_FORMS = "start|end|N|-N|@TIMESTAMP_MS"
_OFFSET = re.compile(r"start|end|-?\d+|@\d+", re.ASCII)


def parse_assignments(pairs: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` as typed after `option` (`--set`, `-c`) as a dictionary; the last of a name wins."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise InvalidConfig(f"{option} {pair}: expected key=value")
        parsed[name.strip()] = value.strip()
    return parsed


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """What one partition holds now: offsets from `start` up to, not including, `end`."""

    start: int
    end: int


def check_offset(text: str) -> None:
    """Wrong usage unless it is one of OFFSET_FORMS."""
    if _OFFSET.fullmatch(text) is None:
        raise typer.BadParameter(
            f"{text!r} is not valid: expected start, end, N, -N or @TIMESTAMP_MS", param_hint="--offset"
        )


def read_ranges(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, HeldOffsets]:
    """What may be read of each now."""
    wanted = list(partitions)
    starts = admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    ends = admin.list_offsets(dict.fromkeys(wanted, "latest"))
    return {partition: HeldOffsets(starts[partition] or 0, ends[partition] or 0) for partition in wanted}


def client_settings(bootstrap_servers: str | None, command_config: str | None) -> dict[str, str]:
    """What the command line says of a client: servers that are named win over those of the file, and these over the
    environment's. Raises InvalidConfig."""
    settings = {"isolation.level": "read_committed"}
    if command_config is not None:
        settings |= properties_file(command_config)
    if bootstrap_servers is not None:
        settings[_SERVERS] = bootstrap_servers
    settings.setdefault(_SERVERS, current_environment().get(_SERVERS_VARIABLE) or DEFAULT_BOOTSTRAP_SERVERS)
    return settings


@contextlib.contextmanager
def admin_client(settings: Mapping[str, Any]) -> Iterator[Admin]:
    """An Admin for the span of one command; its isolation level decides what "latest" means."""
    with uncollected():
        from minilog import Admin  # with it comes gRPC, which no help needs

    with Admin({"request.timeout.ms": ANSWER_WITHIN_MS, **settings}) as admin:
        yield admin


def print_json(document: object) -> None:
    """One JSON document on one line of stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def say_who_has_not_heard(admin: Admin) -> None:
    """On stderr: brokers where what was taken away, or forbidden, may hold still."""
    try:
        missing = admin.not_heard_by()
    except MinilogError as error:
        say(f"it is done; which brokers know of it is not known: {error}", error=True)
        return
    if missing:
        say(
            f"brokers {', '.join(map(str, missing))} have not heard of it yet. Where no controller is heard for "
            "broker.session.timeout.ms they refuse clients, unless stale.access.rules.enable is set there: see "
            "minilog cluster health",
            error=True,
        )


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], title: str | None = None) -> None:
    """A table for people; as wide as it needs when nobody looks at it on a terminal. Cells are text, never markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading = None if title is None else Text(printable(title))
    table = Table(*columns, title=heading, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def current_environment() -> Mapping[str, str]:
    """The environment that configuration is read from."""
    return os.environ


def join(numbers: Iterable[Any]) -> str:
    """Numbers as people read them: 1, 2, 3."""
    return ", ".join(map(str, numbers)) or "none"
