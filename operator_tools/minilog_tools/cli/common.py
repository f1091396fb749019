"""The parts that verbs share: their options, the client that they use, and the output for people and for machines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minilog.errors import InvalidConfig, MinilogError
from minilog.place_words import named_place
from minilog.properties import properties_file
from minilog_broker.imports import uncollected
from minilog_broker.printable import printable
from minilog_broker.printable import say as say
from minilog_tools.cli.held_offsets import HeldOffsets

if TYPE_CHECKING:
    from minilog import Admin, TopicPartition

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
# A person waits at the terminal, so a command gives up soon where no broker answers.
ANSWER_WITHIN_MS = 15_000

_SERVERS = "bootstrap.servers"
_SERVERS_VARIABLE = "MINILOG_BOOTSTRAP_SERVERS"

BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="One or more brokers of the cluster. Default: those of --command-config, else of "
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
DeletedSettings = Annotated[
    list[str] | None,
    typer.Option("-d", "--delete-config", metavar="KEY", help="A setting that goes back to its default. Repeatable."),
]
Assignments = Annotated[  # their --config is a file
    list[str] | None, typer.Option("-c", metavar="KEY=VALUE", help="A broker's setting. Repeatable.")
]
Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=1,
        metavar="BYTES_PER_SECOND",
        help="The rate at which each broker may copy its new replicas.",
    ),
]
# Words of former versions, which scripts use.
AlsoSet = Annotated[list[str] | None, typer.Option("--set", hidden=True)]
AlsoUnset = Annotated[list[str] | None, typer.Option("--unset", hidden=True)]


OFFSET_FORMS = "start|end|N|-N|@TIMESTAMP_MS"
_OFFSET = re.compile(r"earliest|latest|-?\d+|@\d+", re.ASCII)


def parse_assignments(*given: Iterable[str] | None, option: str = "-c") -> dict[str, str]:
    """The settings in texts of the form `key=value`, as `option` has them. The last value of a key counts.
    Raises InvalidConfig."""
    parsed: dict[str, str] = {}
    for pair in (pair for pairs in given for pair in pairs or ()):
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise InvalidConfig(f"{option} {pair}: expected key=value")
        parsed[name.strip()] = value.strip()
    return parsed


def changed_settings(
    assigned: Iterable[str] | None, also: Iterable[str] | None, *deleted: Iterable[str] | None
) -> tuple[dict[str, str], list[str]]:
    """The settings to set, and those that go back to their defaults. Raises BadParameter and InvalidConfig."""
    configs = parse_assignments(assigned, also)
    unset = list(dict.fromkeys(name for names in deleted for name in names or ()))
    if both := sorted(configs.keys() & set(unset)):
        raise typer.BadParameter(f"{both[0]} is both in -c and in -d: give it once")
    return configs, unset


def read_offset(text: str) -> str:
    """The place in one of the OFFSET_FORMS, its words as in place_words. Raises BadParameter."""
    place = named_place(text)
    if _OFFSET.fullmatch(place) is not None:
        return place
    raise typer.BadParameter(
        f"{text!r} is not valid: expected start, end, N, -N or @TIMESTAMP_MS", param_hint="--offset"
    )


def read_ranges(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, HeldOffsets]:
    """The offsets of each partition that a client can read now."""
    wanted = list(partitions)
    starts = admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    ends = admin.list_offsets(dict.fromkeys(wanted, "latest"))
    return {partition: HeldOffsets(starts[partition] or 0, ends[partition] or 0) for partition in wanted}


def client_settings(bootstrap_servers: str | None, command_config: str | None) -> dict[str, str]:
    """The settings of a client. The servers of the command line count before those of the file, and these before those
    of the environment. Raises InvalidConfig."""
    settings = {"isolation.level": "read_committed"}
    if command_config is not None:
        settings |= properties_file(command_config)
    if bootstrap_servers is not None:
        settings[_SERVERS] = bootstrap_servers
    settings.setdefault(_SERVERS, current_environment().get(_SERVERS_VARIABLE) or DEFAULT_BOOTSTRAP_SERVERS)
    return settings


@contextlib.contextmanager
def admin_client(settings: Mapping[str, Any]) -> Iterator[Admin]:
    """An Admin for one command. Its isolation level decides what "latest" means."""
    with uncollected():
        from minilog import Admin  # with it comes gRPC, which no help needs

    with Admin({"request.timeout.ms": ANSWER_WITHIN_MS, **settings}) as admin:
        yield admin


def print_json(document: object) -> None:
    """Print one JSON document on one line of stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def say_late_brokers(admin: Admin) -> None:
    """Name the brokers that have not heard of a change, on stderr. There a right that was taken away may still hold."""
    try:
        missing = admin.not_heard_by()
    except MinilogError as error:
        say(f"it is done. The command does not know which brokers have heard of it: {error}", error=True)
        return
    if missing:
        say(
            f"brokers {', '.join(map(str, missing))} have not heard of it yet. A broker that hears no controller for "
            "broker.session.timeout.ms refuses clients, unless it has stale.access.rules.enable: see minilog cluster "
            "health",
            error=True,
        )


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], title: str | None = None) -> None:
    """Print a table for people. It is as wide as the terminal, else 200 characters. Cells are text, never markup. None
    is shown as a dash."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    heading = None if title is None else Text(printable(title))
    table = Table(*columns, title=heading, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*(Text("-" if cell is None else printable(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def attributes(described: object, *names: str) -> dict[str, Any]:
    """The named attributes, for JSON."""
    return {name: getattr(described, name) for name in names}


def current_environment() -> Mapping[str, str]:
    """The environment variables, which may hold settings."""
    return os.environ


def join(numbers: Iterable[Any]) -> str:
    """Numbers as people read them: 1, 2, 3."""
    return ", ".join(map(str, numbers)) or "none"
