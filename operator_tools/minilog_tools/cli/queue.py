"""`minilog queue` lists, describes, alters and deletes queues, shows their records, and redrives their dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from minilog.types import QueueDescription, QueuePosition, Redriven
from minilog_tools.cli.common import (
    AlsoSet,
    AlsoUnset,
    DeletedSettings,
    Settings,
    admin_client,
    changed_settings,
    read_ranges,
)
from minilog_tools.cli.queue_peek import Peeked, partition_of, pieces, print_peeked
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

app = typer.Typer(no_args_is_help=True)
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
_STATES = ("ready", "leased", "settling", "dead")


@verb(app, "minilog queue list", "minilog queue list --json", name="list")
def list_(cluster: Cluster) -> Output:
    """List the queues, with the number of their partitions, and of the records that workers have now."""
    documents = [
        {"queue": listing.queue, "partitions": listing.partition_count, "leased": listing.leased_count}
        for listing in cluster.admin.list_queues()
    ]
    return Output(documents, TextTable(("queue", "partitions", "leased"), (found.values() for found in documents)))


@verb(app, "minilog queue describe jobs", "minilog queue describe jobs --json")
def describe(cluster: Cluster, name: Queue) -> Output:
    """Show the settings of a queue, its progress in each partition, and the records that are not settled."""
    description = cluster.admin.describe_queue(name)
    of_offsets = ("settled to", "next", "end", "undecided")
    columns = ("topic", "partition", *of_offsets, *_STATES[:-1], "dead letters", "died", "expired")
    tables = [TextTable(columns, map(_row, description.partitions), title=name)]
    if description.settings:
        tables.insert(0, TextTable(("setting", "value"), description.settings.items(), title=name))
    if any(position.ranges for position in description.partitions):
        of_ranges = ("topic", "partition", "offsets", "state", "deliveries", "worker", "seconds left", "died")
        tables.append(TextTable(of_ranges, _range_rows(description), title="leased, and not settled"))
    return Output(queue_document(description), *tables)


def _range_rows(description: QueueDescription) -> Iterator[tuple[object, ...]]:
    for position in description.partitions:
        for part in position.ranges:
            yield (
                position.topic,
                position.partition,
                f"{part.first_offset}-{part.last_offset}",
                part.state,
                part.delivery_count,
                part.worker_id or "-",
                f"{part.remaining_ms / 1000:.1f}" if part.state != "settling" else "-",
                part.death_reason or "",
            )


def _row(position: QueuePosition) -> tuple[object, ...]:
    return (
        position.topic,
        position.partition,
        position.settled_to,
        position.next_offset,
        position.end_offset,
        position.undecided_count,
        *(position.count(state) for state in _STATES),
        position.dead_count,
        position.expired_count,
    )


@verb(
    app,
    "minilog queue peek jobs",
    "minilog queue peek jobs --state ready -n 100",
    "minilog queue peek jobs --json",
)
def peek(
    cluster: Cluster,
    name: Queue,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Show at most this many records.")] = 10,
    state: Annotated[Peeked, typer.Option("--state", help="fresh: never leased.")] = Peeked.ALL,
) -> None:
    """Show records that are not settled, with their state and the number of their deliveries. It leases nothing."""
    config = {**cluster.settings, "isolation.level": "read_committed"}
    with admin_client(config) as admin:
        description = admin.describe_queue(name)
        held = read_ranges(admin, [partition_of(position) for position in description.partitions])
    ends = {partition: offsets.end for partition, offsets in held.items()}
    print_peeked(config, pieces(description, ends, state), count, as_json=cluster.as_json)


@verb(
    app,
    "minilog queue alter jobs -c group.share.record.lock.duration.ms=60000",
    "minilog queue alter jobs -d group.share.delivery.count.limit",
)
def alter(
    cluster: Cluster,
    name: Queue,
    settings: Settings = None,
    deleted: DeletedSettings = None,
    also_set: AlsoSet = None,
    also_unset: AlsoUnset = None,
) -> Output:
    """Change settings of a queue. The queue need not exist yet."""
    changed, dropped = changed_settings(settings, also_set, deleted, also_unset)
    if not changed and not dropped:
        raise typer.BadParameter("nothing to alter: give -c KEY=VALUE or -d KEY")
    cluster.admin.alter_queue(name, set=changed, unset=dropped)
    return Output({"queue": name, "set": changed, "unset": dropped}, f"queue {name} altered")


@verb(app, "minilog queue delete jobs", "minilog queue delete jobs --command-config client.properties")
def delete(cluster: Cluster, name: Queue) -> Output:
    """Delete a queue, with its settings and its progress. Stop its workers first."""
    cluster.admin.delete_queue(name)
    return Output({"queue": name, "deleted": True}, f"queue {name} deleted")


@verb(app, "minilog queue redrive jobs", "minilog queue redrive jobs --max-letters 10")
def redrive(
    cluster: Cluster,
    name: Queue,
    max_letters: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Redrive at most this many letters.")
    ] = None,
) -> Output:
    """Make the records of a queue's dead letters ready again, each one once, for this queue alone. If the record of a
    letter is gone, the copy in the letter becomes a new record of its topic."""
    redriven = cluster.admin.redrive_queue(name, max_letters=max_letters)
    document = {
        "queue": name,
        "made_ready": redriven.made_ready_count,
        "written": redriven.written_count,
        "written_to": dict(redriven.written_to),
        "gone": redriven.gone_count,
        "unsettled": redriven.unsettled_count,
        "passed_over": redriven.passed_over_count,
        "full": redriven.is_full,
    }
    return Output(document, *_redriven_lines(name, redriven))


def _redriven_lines(name: str, redriven: Redriven) -> list[str]:
    lines = [f"queue {name}: {redriven.made_ready_count} records are ready again, for this queue alone"]
    for topic, count in redriven.written_to.items():
        lines.append(
            f"{count} records were gone from topic {topic}, and are new records there: every group, queue and query "
            "that reads the topic gets them"
        )
    if redriven.gone_count:
        lines.append(f"{redriven.gone_count} letters have no copy of their record, which is gone")
    if redriven.unsettled_count:
        lines.append(f"{redriven.unsettled_count} letters are of records that the queue delivers anyway")
    if redriven.passed_over_count:
        lines.append(f"{redriven.passed_over_count} records of the dead-letter topic are no letters of this queue")
    if redriven.is_full:
        lines.append(
            "letters are left: the queue has as many unsettled records as group.share.partition.max.record.locks "
            "allows. Run the command again when workers have settled some"
        )
    return lines


def queue_document(description: QueueDescription) -> dict[str, Any]:
    """A described queue, for machines."""
    return {
        "queue": description.queue,
        "settings": description.settings,
        "partitions": [{**asdict(position), "backlog": position.backlog} for position in description.partitions],
    }
