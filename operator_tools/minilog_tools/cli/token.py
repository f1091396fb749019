"""`minilog token` is about delegation tokens. With a token a client logs in for a while in the name of the owner.

A broker gives the secret of a token once, when it creates the token. With --out the command writes all that a client
needs to log in to a file that only its owner can read. With --print it prints the secret. No other verb shows the
secret, and all name a token by its id.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import IO, Annotated, Any

import typer

from minilog.admin.security import DelegationToken, TokenInformation
from minilog.config import parse_config
from minilog.security.secret import Secret
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import join, say_late_brokers
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

app = typer.Typer(no_args_is_help=True)
TokenId = Annotated[str, typer.Argument(metavar="ID", help="The token's id: see `minilog token list`.")]


@verb(
    app,
    "minilog token create --out job.properties --command-config client.properties",
    "minilog token create --print --max-life-time-period 86400000 --command-config client.properties",
)
def create(
    cluster: Cluster,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--out", metavar="FILE", help="A new file, mode 600, with all that a client needs to log in by the token."
        ),
    ] = None,
    to_stdout: Annotated[
        bool, typer.Option("--print", help="Print the secret on stdout, where others may see it.")
    ] = False,
    renewers: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer-principal", metavar="User:NAME", help="Another user that may renew and expire it. Repeatable."
        ),
    ] = None,
    max_life_time_period: Annotated[
        int | None, typer.Option("--max-life-time-period", metavar="MS", help="No renewal goes beyond this time.")
    ] = None,
) -> Output:
    """Create a token. The command shows the secret only once: give --out FILE, or --print."""
    if (out is None) == (not to_stdout):
        raise typer.BadParameter(
            "the command shows the token's secret only once: give --out FILE or --print, one of them"
        )
    cluster.check_settings()
    with contextlib.nullcontext() if out is None else _private_file(out) as file:
        made = cluster.admin.create_delegation_token(renewers or (), max_life_time_period)
        if file is not None:
            file.write(client_file(cluster.settings, made))
    document, lines = token_document(made.information), []
    if to_stdout:
        document["hmac"] = made.hmac.reveal()
        lines = [f"hmac: {document['hmac']}"]
    if out is not None:
        lines = [f"{out} has all that a client needs to log in with it"]
    return Output(document, _table([made.information]), *lines)


@verb(
    app,
    "minilog token renew 0f1e2d3c4b5a69788796a5b4c3d2e1f0 --command-config client.properties",
    "minilog token renew 0f1e2d3c4b5a69788796a5b4c3d2e1f0 --renew-time-period 3600000",
)
def renew(
    cluster: Cluster,
    token_id: TokenId,
    renew_time_period: Annotated[
        int | None,
        typer.Option(
            "--renew-time-period", metavar="MS", help="Counts from now on. Default: a setting of the brokers."
        ),
    ] = None,
) -> Output:
    """Let a token end later. The user must be its owner or one of its renewers."""
    return _ends(token_id, cluster.admin.renew_delegation_token(token_id, renew_time_period))


@verb(
    app,
    "minilog token expire 0f1e2d3c4b5a69788796a5b4c3d2e1f0 --command-config client.properties",
    "minilog token expire 0f1e2d3c4b5a69788796a5b4c3d2e1f0 --expiry-time-period 60000",
)
def expire(
    cluster: Cluster,
    token_id: TokenId,
    expiry_time_period: Annotated[
        int | None, typer.Option("--expiry-time-period", metavar="MS", help="Counts from now on. Default: at once.")
    ] = None,
) -> Output:
    """End a token, and the sessions that began with it.

    The user must be its owner, one of its renewers, or a user that may alter the cluster.
    """
    expiry_ms = cluster.admin.expire_delegation_token(token_id, expiry_time_period)
    say_late_brokers(cluster.admin)
    return _ends(token_id, expiry_ms)


@verb(
    app,
    "minilog token list --command-config client.properties",
    "minilog token list --owner-principal User:alice --json --command-config client.properties",
    name="list",
)
def list_(
    cluster: Cluster,
    owners: Annotated[
        list[str] | None,
        typer.Option("--owner-principal", metavar="User:NAME", help="The owners. Default: all. Repeatable."),
    ] = None,
) -> Output:
    """List the tokens that the user owns or may renew, without secrets.

    A user that may describe the cluster sees all tokens.
    """
    tokens = cluster.admin.describe_delegation_tokens(owners)
    return Output([token_document(information) for information in tokens], _table(tokens))


def token_document(information: TokenInformation) -> dict[str, Any]:
    """One token without its secret, for JSON."""
    return {
        "id": information.token_id,
        "owner": information.owner,
        "renewers": list(information.renewers),
        "issue_timestamp": information.issue_timestamp_ms,
        "expiry_timestamp": information.expiry_timestamp_ms,
        "max_timestamp": information.max_timestamp_ms,
    }


def client_file(settings: Mapping[str, Any], made: DelegationToken) -> str:
    """The text of a properties file, by which a client logs in with the token. `settings` are those of the client that
    got it."""
    config = parse_config(settings)
    properties: dict[str, str | Secret] = {
        "bootstrap.servers": str(settings["bootstrap.servers"]),
        "security.protocol": config.security_protocol,
        "ssl.truststore.location": config.ssl_truststore_location,
        **made.client_settings(),
    }
    texts = {name: value.reveal() if isinstance(value, Secret) else value for name, value in properties.items()}
    return "".join(f"{name}={value.replace(_BACKSLASH, _BACKSLASH * 2)}\n" for name, value in texts.items() if value)


_BACKSLASH = "\\"


@contextlib.contextmanager
def _private_file(path: pathlib.Path) -> Iterator[IO[str]]:
    """A new file that only its owner may read. After a failure it is removed. Raises CommandFailed where it exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandFailed(f"{path} exists, and is left as it is: name a new file with --out") from None
    try:
        with os.fdopen(descriptor, "w") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _table(tokens: list[TokenInformation]) -> TextTable:
    rows = (
        (
            information.token_id,
            information.owner,
            join(information.renewers),
            *map(_moment, (information.expiry_timestamp_ms, information.max_timestamp_ms)),
        )
        for information in tokens
    )
    return TextTable(("id", "owner", "renewers", "ends", "is renewed until"), rows)


def _moment(timestamp_ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # later than any date that datetime holds
        return f"{timestamp_ms} ms"


def _ends(token_id: str, expiry_ms: int) -> Output:
    return Output({"id": token_id, "expiry_timestamp": expiry_ms}, f"token {token_id} ends at {_moment(expiry_ms)}")
