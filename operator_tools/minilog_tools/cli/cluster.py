"""`minilog cluster` describes and upgrades the cluster, and lists its problems. Other modules have more verbs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from minilog.admin.health import ClusterHealth
from minilog.types import BrokerDescription, VoterDescription
from minilog.versions import VersionRange
from minilog_tools.cli import cluster_backup, cluster_rebalance, voter_verbs
from minilog_tools.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    print_table,
    say,
)
from minilog_tools.cli.examples import examples

app = typer.Typer(no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Describe, upgrade, rebalance, back up and restore the cluster, and list its problems."""


@app.command(epilog=examples("minilog cluster describe", "minilog cluster describe --json"))
def describe(
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the brokers, their states and the controller."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        description = admin.describe_cluster()
    if as_json:
        print_json(
            {
                "cluster_id": description.cluster_id,
                "level": description.level,
                "controller": description.controller,
                "controller_epoch": description.controller_epoch,
                "brokers": [broker_document(broker) for broker in description.brokers],
                "voters": [_voter_document(voter) for voter in description.voters],
            }
        )
        return
    voters = {voter.id: "lost its disk" if voter.lost else "voter" for voter in description.voters}
    rows = (
        (
            broker.id,
            "controller" if broker.id == description.controller else voters.get(broker.id, ""),
            broker.host or "-",
            broker.port or "-",
            broker.rack or "-",
            broker.host_label or "-",
            broker.state,
            broker.version or "-",
            str(VersionRange(broker.lowest_level, broker.highest_level)),
        )
        for broker in description.brokers
    )
    columns = ("broker", "role", "host", "port", "rack", "host label", "state", "version", "levels")
    print_table(columns, rows, title=f"cluster {description.cluster_id}, level {description.level}")


def _voter_document(voter: VoterDescription) -> dict[str, Any]:
    return {
        "id": voter.id,
        "directory_id": voter.directory_id,
        "lost": voter.lost,
        "host": voter.host or None,
        "port": voter.port or None,
        "moved": voter.moved,
    }


def broker_document(broker: BrokerDescription) -> dict[str, Any]:
    """One broker, for JSON."""
    return {
        "id": broker.id,
        "host": broker.host or None,
        "port": broker.port or None,
        "rack": broker.rack,
        "host_label": broker.host_label,
        "state": broker.state,
        "version": broker.version,
        "levels": [broker.lowest_level, broker.highest_level],
    }


@app.command(epilog=examples("minilog cluster upgrade", "minilog cluster upgrade --level 3"))
def upgrade(
    level: Annotated[
        int | None, typer.Option("--level", min=1, help="Default: the highest level that any broker supports.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Raise the level of the cluster. All brokers must support the new level.

    There is no way back. From then on a broker refuses to start if its version does not support the level.
    """
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        former, reached = admin.upgrade_level(level)
    if as_json:
        print_json({"former_level": former, "level": reached})
    elif former == reached:
        say(f"the cluster is at level {reached} already")
    else:
        say(f"the cluster is at level {reached} from now on. It was at level {former}")


@app.command(epilog=examples("minilog cluster health", "minilog cluster health --json || echo look at it"))
def health(
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the problems of the cluster and their remedies. The exit code is 0 where there is no problem, else 1."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        report = admin.cluster_health()
    if as_json:
        print_json(health_document(report))
    elif report.healthy:
        say(
            f"healthy: {len(report.cluster.brokers)} brokers, controller {report.cluster.controller}, "
            f"{report.topic_count} topics with {report.partition_count} partitions"
        )
    for problem in report.problems if not as_json else ():
        say(f"{problem.code}: {problem.message}")
        say(f"    {problem.remedy}")
    raise typer.Exit(0 if report.healthy else 1)


def health_document(report: ClusterHealth) -> dict[str, Any]:
    """The health of the cluster, for JSON."""
    return {
        "cluster_id": report.cluster.cluster_id,
        "healthy": report.healthy,
        "controller": report.cluster.controller,
        "topics": report.topic_count,
        "partitions": report.partition_count,
        "problems": [
            {
                "code": problem.code,
                "message": problem.message,
                "remedy": problem.remedy,
                "brokers": problem.brokers,
                "partitions": [{"topic": at.topic, "partition": at.partition} for at in problem.partitions],
            }
            for problem in report.problems
        ],
    }


voter_verbs.add_to(app)
cluster_backup.add_to(app)
cluster_rebalance.add_to(app)
