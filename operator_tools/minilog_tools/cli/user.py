"""`minilog user` creates, alters, deletes and lists users, which log in by SCRAM.

The command reads a password from the terminal, from a file or from stdin. A password is never an argument, because
other users of this machine can read the arguments of a process. The command does not send the password, but a SCRAM
credential that it makes of it.
"""

from __future__ import annotations

import pathlib
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from minilog.admin.security import UserDeletion, UserDescription, UserExpectation, UserUpsertion
from minilog.security.scram import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism
from minilog_tools.cli.common import say_late_brokers
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

MAX_PASSWORD_BYTES = 4_096  # a larger file is hardly the file of a password
app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user. In rules and quotas it is User:NAME.")]


@dataclass(frozen=True, slots=True)
class CredentialOptions:
    """The options that give a password, and what is made of it."""

    mechanisms: Annotated[
        list[ScramMechanism] | None,
        typer.Option("--mechanism", help=f"Repeatable. Default: {ScramMechanism.SCRAM_SHA_512}."),
    ] = None
    password_file: Annotated[
        pathlib.Path | None, typer.Option("--password-file", metavar="FILE", help="Its one line is the password.")
    ] = None
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="The password is the one line of stdin.")] = (
        False
    )
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="The cost of each guess, and of each login."
        ),
    ] = DEFAULT_ITERATIONS

    def upsertions(self, name: str, expectation: UserExpectation) -> list[UserUpsertion]:
        """A credential for each mechanism. Raises as _password does."""
        password = _password(self.password_file, from_stdin=self.password_stdin)
        mechanisms = dict.fromkeys(self.mechanisms or (ScramMechanism.SCRAM_SHA_512,))
        return [UserUpsertion(name, password, mechanism, self.iterations, expectation) for mechanism in mechanisms]


@verb(
    app,
    "minilog user create alice",
    "minilog user create alice --password-file alice.password --mechanism SCRAM-SHA-256",
)
def create(cluster: Cluster, name: Name, credentials: CredentialOptions) -> Output:
    """Create a user. The command asks for the password where neither a file nor stdin has it."""
    cluster.check_settings()
    upsertions = credentials.upsertions(name, UserExpectation.NEW)
    cluster.admin.alter_users(upsertions)
    return Output({"name": name, "created": True}, f"user {name} created")


@verb(app, "minilog user alter alice", "minilog user alter alice --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512")
def alter(cluster: Cluster, name: Name, credentials: CredentialOptions) -> Output:
    """Give a user another password, or one more mechanism. Its credentials under other mechanisms stay."""
    cluster.check_settings()
    upsertions = credentials.upsertions(name, UserExpectation.EXISTING)
    cluster.admin.alter_users(upsertions)
    say_late_brokers(cluster.admin)  # a broker that has not heard of it takes the former password
    return Output({"name": name, "altered": True}, f"user {name} altered")


@verb(app, "minilog user delete alice", "minilog user delete alice --mechanism SCRAM-SHA-256")
def delete(
    cluster: Cluster,
    name: Name,
    mechanisms: Annotated[
        list[ScramMechanism] | None, typer.Option("--mechanism", help="Only this mechanism. Repeatable.")
    ] = None,
) -> Output:
    """Delete a user, or its credential under a mechanism. Its rules and quotas stay: see `minilog acl list`."""
    cluster.admin.alter_users([UserDeletion(name, mechanism) for mechanism in dict.fromkeys(mechanisms or (None,))])
    say_late_brokers(cluster.admin)
    line = f"user {name} has no {' and no '.join(mechanisms)} any more" if mechanisms else f"user {name} deleted"
    return Output({"name": name, "deleted": True}, line)


@verb(app, "minilog user list", "minilog user list alice --json", name="list")
def list_(
    cluster: Cluster, name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Default: all.")] = None
) -> Output:
    """List the users with their mechanisms."""
    users = cluster.admin.describe_users(None if name is None else [name])
    rows = (
        (description.name, mechanism, count)
        for description in users
        for mechanism, count in description.iterations.items()
    )
    columns = ("user", "mechanism", "iterations")
    return Output([user_document(description) for description in users], TextTable(columns, rows))


def user_document(description: UserDescription) -> dict[str, Any]:
    """One user, for JSON."""
    credentials = [
        {"mechanism": str(mechanism), "iterations": count} for mechanism, count in description.iterations.items()
    ]
    return {"name": description.name, "credentials": credentials}


def _password(file: pathlib.Path | None, *, from_stdin: bool) -> str:
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
