"""`minilog user` creates, alters, deletes and lists users, which log in by SCRAM.

The command reads a password from the terminal, from a file or from stdin. A password is never an argument, because
other users of this machine can read the arguments of a process. The command does not send the password, but a SCRAM
credential that it makes of it.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from minilog.admin.security import UserDeletion, UserDescription, UserExpectation, UserUpsertion
from minilog.security.scram import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism
from minilog_tools.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    print_table,
    say,
    say_late_brokers,
)
from minilog_tools.cli.examples import examples

MAX_PASSWORD_BYTES = 4_096  # a larger file is hardly the file of a password
app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user. In rules and quotas it is User:NAME.")]
Mechanisms = Annotated[
    list[ScramMechanism] | None,
    typer.Option("--mechanism", help=f"Repeatable. Default: {ScramMechanism.SCRAM_SHA_512}."),
]
PasswordFile = Annotated[
    pathlib.Path | None, typer.Option("--password-file", metavar="FILE", help="Its one line is the password.")
]
PasswordStdin = Annotated[bool, typer.Option("--password-stdin", help="The password is the one line of stdin.")]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="The cost of each guess, and of each login."
    ),
]


@app.callback()
def user() -> None:
    """Create, alter, delete and list users, which log in by SCRAM."""


@app.command(
    epilog=examples(
        "minilog user create alice",
        "minilog user create alice --password-file alice.password --mechanism SCRAM-SHA-256",
    )
)
def create(
    name: Name,
    mechanisms: Mechanisms = None,
    password_file: PasswordFile = None,
    password_stdin: PasswordStdin = False,
    iterations: Iterations = DEFAULT_ITERATIONS,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Create a user. The command asks for the password where neither a file nor stdin has it."""
    settings = client_settings(bootstrap_servers, command_config)
    password = _password(name, password_file, from_stdin=password_stdin)
    _upsert(settings, name, mechanisms, password, iterations, UserExpectation.NEW)
    _done(name, "created", as_json=as_json)


@app.command(
    epilog=examples(
        "minilog user alter alice", "minilog user alter alice --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512"
    )
)
def alter(
    name: Name,
    mechanisms: Mechanisms = None,
    password_file: PasswordFile = None,
    password_stdin: PasswordStdin = False,
    iterations: Iterations = DEFAULT_ITERATIONS,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Give a user another password, or one more mechanism. Its credentials under other mechanisms stay."""
    settings = client_settings(bootstrap_servers, command_config)
    password = _password(name, password_file, from_stdin=password_stdin)
    _upsert(settings, name, mechanisms, password, iterations, UserExpectation.EXISTING)
    _done(name, "altered", as_json=as_json)


@app.command(epilog=examples("minilog user delete alice", "minilog user delete alice --mechanism SCRAM-SHA-256"))
def delete(
    name: Name,
    mechanisms: Annotated[
        list[ScramMechanism] | None, typer.Option("--mechanism", help="Only this mechanism. Repeatable.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete a user, or its credential under a mechanism. Its rules and quotas stay: see `minilog acl list`."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.alter_users([UserDeletion(name, mechanism) for mechanism in dict.fromkeys(mechanisms or (None,))])
        say_late_brokers(admin)
    if as_json or not mechanisms:
        _done(name, "deleted", as_json=as_json)
    else:
        say(f"user {name} has no {' and no '.join(mechanisms)} any more")


@app.command("list", epilog=examples("minilog user list", "minilog user list alice --json"))
def list_(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Default: all.")] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the users with their mechanisms."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        users = admin.describe_users(None if name is None else [name])
    if as_json:
        print_json([user_document(description) for description in users])
        return
    rows = (
        (description.name, mechanism, count)
        for description in users
        for mechanism, count in description.iterations.items()
    )
    print_table(("user", "mechanism", "iterations"), rows)


def user_document(description: UserDescription) -> dict[str, Any]:
    """One user, for JSON."""
    credentials = [
        {"mechanism": str(mechanism), "iterations": count} for mechanism, count in description.iterations.items()
    ]
    return {"name": description.name, "credentials": credentials}


def _upsert(
    settings: Mapping[str, Any],
    name: str,
    mechanisms: list[ScramMechanism] | None,
    password: str,
    iterations: int,
    expectation: UserExpectation,
) -> None:
    wanted = dict.fromkeys(mechanisms or (ScramMechanism.SCRAM_SHA_512,))
    with admin_client(settings) as admin:
        admin.alter_users([UserUpsertion(name, password, mechanism, iterations, expectation) for mechanism in wanted])
        if expectation is UserExpectation.EXISTING:  # a broker that has not heard of it takes the former password
            say_late_brokers(admin)


def _password(name: str, file: pathlib.Path | None, *, from_stdin: bool) -> str:
    """The password, from the file or from stdin if the options say so. Else the command asks for it at the terminal,
    twice and without an echo. Raises BadParameter."""
    if file is not None and from_stdin:
        raise typer.BadParameter("give either --password-file or --password-stdin")
    if file is not None:
        with file.open("rb") as opened:
            return one_line(opened.read(MAX_PASSWORD_BYTES + 1), str(file))
    if from_stdin:
        return one_line(sys.stdin.buffer.read(MAX_PASSWORD_BYTES + 1), "stdin")
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "there is no terminal to ask for the password: give --password-file FILE or --password-stdin"
        )
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def one_line(content: bytes, where: str) -> str:
    """The only line of a content, without its end. Raises BadParameter where there is no line, or more than one."""
    if len(content) > MAX_PASSWORD_BYTES:
        raise typer.BadParameter(f"{where} has more than {MAX_PASSWORD_BYTES} bytes: it holds no password")
    try:
        line = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{where} is not UTF-8: write the password in UTF-8") from None
    if not line or "\n" in line:
        raise typer.BadParameter(f"{where} must have the password in one line, and nothing else")
    return line


def _done(name: str, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, what: True})
    else:
        say(f"user {name} {what}")
