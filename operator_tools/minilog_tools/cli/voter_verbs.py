"""`minilog cluster add-voter`, `remove-voter`, `move-voter` and `replace-voter` change the voters of the metadata
quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from minilog_tools.cli.verb import Cluster, Output, verb

if TYPE_CHECKING:
    from minilog.types import VoterChange

app = typer.Typer()
Voter = Annotated[int, typer.Argument(metavar="ID", help="The id of the broker.")]


@verb(app, "minilog cluster add-voter 4", "minilog cluster add-voter 4 --json", name="add-voter")
def add_voter(cluster: Cluster, broker_id: Voter) -> Output:
    """Let a running broker vote on metadata.

    The command waits until the broker has fetched the metadata log, and until a majority of the former voters and one
    of the new voters have the change. Run 3 or 5 voters: an even number survives no more losses.
    """
    change = cluster.admin.add_voter(broker_id)
    return _output(broker_id, change, f"broker {broker_id} votes", f"broker {broker_id} was a voter already")


@verb(app, "minilog cluster remove-voter 1", "minilog cluster remove-voter 1 --json", name="remove-voter")
def remove_voter(cluster: Cluster, broker_id: Voter) -> Output:
    """Let a voter vote no more. Its broker runs on, and may be decommissioned then.

    The broker may be down. A majority of the voters that are left must run.
    """
    change = cluster.admin.remove_voter(broker_id)
    return _output(broker_id, change, f"broker {broker_id} votes no more", f"broker {broker_id} was no voter")


@verb(app, "minilog cluster move-voter 2", "minilog cluster move-voter 2 --json", name="move-voter")
def move_voter(cluster: Cluster, broker_id: Voter) -> Output:
    """Record the new address of a voter, where the other voters reach it from then on.

    Start the broker at its new address first. The command records the address that it is registered with.
    """
    change = cluster.admin.move_voter(broker_id)
    done = f"the other voters reach voter {broker_id} at the address that it is registered with"
    return _output(broker_id, change, done, f"the address of voter {broker_id} was recorded already")


def _output(broker_id: int, change: VoterChange, done: str, nothing: str) -> Output:
    return Output(
        {"id": broker_id, "changed": change.changed, "voters": change.voters},
        f"{done if change.changed else nothing}; the voters are {', '.join(map(str, change.voters))}",
    )


@verb(
    app,
    "minilog cluster replace-voter 2",
    "minilog cluster replace-voter 2 -b 10.0.0.1:9092,10.0.0.3:9092",
    name="replace-voter",
)
def replace_voter(
    cluster: Cluster,
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="The voter whose disk is lost for good.")],
    lost_directory: Annotated[
        str | None,
        typer.Option(
            "--lost-directory", metavar="DIRECTORY_ID", help="Only this one: a command given twice replaces once."
        ),
    ] = None,
) -> Output:
    """Let the data directory that a voter runs with now vote instead of the one it lost.

    Never do it while the lost one may come back: what was committed may stand on it and on one other alone.
    """
    lost, directory = cluster.admin.replace_voter(broker_id, lost_directory_id=lost_directory)
    return Output(
        {"id": broker_id, "lost_directory_id": lost, "directory_id": directory},
        f"voter {broker_id} now uses data directory {directory} instead of {lost}",
    )
