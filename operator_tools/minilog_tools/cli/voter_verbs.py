"""`minilog cluster add-voter`, `remove-voter`, `move-voter` and `replace-voter` change the voters of the metadata
quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from minilog_tools.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    say,
)
from minilog_tools.cli.examples import examples

if TYPE_CHECKING:
    from minilog.types import VoterChange

Voter = Annotated[int, typer.Argument(metavar="ID", help="The id of the broker.")]


def add_voter(
    broker_id: Voter,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Let a running broker vote on metadata.

    The command waits until the broker has fetched the metadata log, and until a majority of the former voters and one
    of the new voters have the change. Run 3 or 5 voters: an even number survives no more losses.
    """
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        change = admin.add_voter(broker_id)
    _print(broker_id, change, f"broker {broker_id} votes", f"broker {broker_id} was a voter already", as_json=as_json)


def remove_voter(
    broker_id: Voter,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Let a voter vote no more. Its broker runs on, and may be decommissioned then.

    The broker may be down. A majority of the voters that are left must run.
    """
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        change = admin.remove_voter(broker_id)
    _print(broker_id, change, f"broker {broker_id} votes no more", f"broker {broker_id} was no voter", as_json=as_json)


def move_voter(
    broker_id: Voter,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Record the new address of a voter, where the other voters reach it from then on.

    Start the broker at its new address first. The command records the address that it is registered with.
    """
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        change = admin.move_voter(broker_id)
    done = f"the other voters reach voter {broker_id} at the address that it is registered with"
    _print(broker_id, change, done, f"the address of voter {broker_id} was recorded already", as_json=as_json)


def _print(broker_id: int, change: VoterChange, done: str, nothing: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": broker_id, "changed": change.changed, "voters": change.voters})
    else:
        say(f"{done if change.changed else nothing}; the voters are {', '.join(map(str, change.voters))}")


def replace_voter(
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="The voter whose disk is lost for good.")],
    lost_directory: Annotated[
        str | None,
        typer.Option(
            "--lost-directory", metavar="DIRECTORY_ID", help="Only this one: a command given twice replaces once."
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Let the data directory that a voter runs with now vote instead of the one it lost.

    Never do it while the lost one may come back: what was committed may stand on it and on one other alone.
    """
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        lost, directory = admin.replace_voter(broker_id, lost_directory_id=lost_directory)
    if as_json:
        print_json({"id": broker_id, "lost_directory_id": lost, "directory_id": directory})
    else:
        say(f"voter {broker_id} now uses data directory {directory} instead of {lost}")


def add_to(app: typer.Typer) -> None:
    """Add these verbs to `minilog cluster`."""
    app.command("add-voter", epilog=examples("minilog cluster add-voter 4", "minilog cluster add-voter 4 --json"))(
        add_voter
    )
    app.command(
        "remove-voter", epilog=examples("minilog cluster remove-voter 1", "minilog cluster remove-voter 1 --json")
    )(remove_voter)
    app.command("move-voter", epilog=examples("minilog cluster move-voter 2", "minilog cluster move-voter 2 --json"))(
        move_voter
    )
    app.command(
        "replace-voter",
        epilog=examples(
            "minilog cluster replace-voter 2", "minilog cluster replace-voter 2 -b 10.0.0.1:9092,10.0.0.3:9092"
        ),
    )(replace_voter)
