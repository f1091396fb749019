"""`minilog cluster`: the brokers and who controls them."""

from __future__ import annotations

from typing import Annotated

import typer

from minilog_broker.cli.common import (
    DEFAULT_BOOTSTRAP_SERVERS,
    AsJson,
    BootstrapServers,
    admin_client,
    print_json,
    print_table,
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """The brokers and who controls them."""


@app.command(epilog="Example: minilog cluster describe --json")
def describe(bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, as_json: AsJson = False) -> None:
    """Show the brokers, their states and the controller."""
    with admin_client(bootstrap_servers) as admin:
        found = admin.describe_cluster()
    if as_json:
        brokers = [
            {"id": each.id, "host": each.host, "port": each.port, "rack": each.rack, "state": each.state}
            for each in found.brokers
        ]
        print_json(
            {
                "cluster_id": found.cluster_id,
                "controller": found.controller,
                "controller_epoch": found.controller_epoch,
                "brokers": brokers,
                "voters": [
                    {"id": each.id, "directory_id": each.directory_id, "lost": each.lost} for each in found.voters
                ],
            }
        )
        return
    voters = {each.id: "lost its disk" if each.lost else "voter" for each in found.voters}
    rows = (
        (
            each.id,
            "controller" if each.id == found.controller else voters.get(each.id, ""),
            each.host,
            each.port,
            each.rack or "-",
            each.state,
        )
        for each in found.brokers
    )
    print_table(("broker", "role", "host", "port", "rack", "state"), rows, title=f"cluster {found.cluster_id}")


@app.command(
    "replace-voter",
    epilog="Example: minilog cluster replace-voter 2 (after broker 2 was started with a new, empty data directory)",
)
def replace_voter(
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="The voter whose disk is lost for good.")],
    lost_directory: Annotated[
        str | None,
        typer.Option(
            "--lost-directory", metavar="DIRECTORY_ID", help="Only this one: a command given twice replaces once."
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    as_json: AsJson = False,
) -> None:
    """Let the data directory that a voter runs with now vote in the place of the one it lost.

    Never do it while the lost one may come back: what was committed may stand on it and on one other alone.
    """
    with admin_client(bootstrap_servers) as admin:
        lost, found = admin.replace_voter(broker_id, lost_directory_id=lost_directory)
    if as_json:
        print_json({"id": broker_id, "lost_directory_id": lost, "directory_id": found})
    else:
        print(f"voter {broker_id} votes with data directory {found} from now on; {lost} is lost")
