"""`minilog cluster` describes and upgrades the cluster, and lists its problems. Other modules have more verbs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from minilog.admin.health import ClusterHealth
from minilog.types import BrokerDescription, ClusterDescription, VoterDescription
from minilog.versions import VersionRange
from minilog_tools.cli import cluster_backup, cluster_rebalance, voter_verbs
from minilog_tools.cli.common import attributes
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

app = typer.Typer(no_args_is_help=True)
for others in (voter_verbs, cluster_backup, cluster_rebalance):
    app.add_typer(others.app)


@verb(app, "minilog cluster describe", "minilog cluster describe --json")
def describe(cluster: Cluster) -> Output:
    """Show the brokers, their states and the controller."""
    description = cluster.admin.describe_cluster()
    document = {
        **attributes(description, "cluster_id", "level", "controller", "controller_epoch"),
        "brokers": [broker_document(broker) for broker in description.brokers],
        "voters": [_voter_document(voter) for voter in description.voters],
    }
    columns = ("broker", "role", "host", "port", "rack", "host label", "state", "version", "levels")
    title = f"cluster {description.cluster_id}, level {description.level}"
    return Output(document, TextTable(columns, _broker_rows(description), title=title))


def _broker_rows(description: ClusterDescription) -> Iterator[tuple[object, ...]]:
    roles = {voter.id: "lost its disk" if voter.lost else "voter" for voter in description.voters}
    for broker in description.brokers:
        yield (
            broker.id,
            "controller" if broker.id == description.controller else roles.get(broker.id, ""),
            broker.host or "-",
            broker.port or "-",
            broker.rack or "-",
            broker.host_label or "-",
            broker.state,
            broker.version or "-",
            str(VersionRange(broker.lowest_level, broker.highest_level)),
        )


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


@verb(app, "minilog cluster upgrade", "minilog cluster upgrade --level 3")
def upgrade(
    cluster: Cluster,
    level: Annotated[
        int | None, typer.Option("--level", min=1, help="Default: the highest level that any broker supports.")
    ] = None,
) -> Output:
    """Raise the level of the cluster. All brokers must support the new level.

    There is no way back. From then on a broker refuses to start if its version does not support the level.
    """
    former, reached = cluster.admin.upgrade_level(level)
    line = f"the cluster is at level {reached} already"
    if former != reached:
        line = f"the cluster is at level {reached} from now on. It was at level {former}"
    return Output({"former_level": former, "level": reached}, line)


@verb(app, "minilog cluster health", "minilog cluster health --json || echo look at it")
def health(cluster: Cluster) -> Iterator[Output]:
    """List the problems of the cluster and their remedies. The exit code is 0 where there is no problem, else 1."""
    report = cluster.admin.cluster_health()
    lines: list[str] = []
    if report.healthy:
        lines.append(
            f"healthy: {len(report.cluster.brokers)} brokers, controller {report.cluster.controller}, "
            f"{report.topic_count} topics with {report.partition_count} partitions"
        )
    for problem in report.problems:
        lines += [f"{problem.code}: {problem.message}", f"    {problem.remedy}"]
    yield Output(health_document(report), *lines)
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
                **attributes(problem, "code", "message", "remedy", "brokers"),
                "partitions": [attributes(at, "topic", "partition") for at in problem.partitions],
            }
            for problem in report.problems
        ],
    }
