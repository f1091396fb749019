"""`minilog queue` lists, describes, alters and deletes queues, shows their records, and redrives their dead letters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from minilog.types import QueueDescription, QueuePosition, Redriven
from minilog_tools.cli.common import (
    AlsoSet,
    AlsoUnset,
    AsJson,
    BootstrapServers,
    CommandConfig,
    DeletedSettings,
    Settings,
    admin_client,
    changed_settings,
    client_settings,
    print_json,
    print_table,
    read_ranges,
    say,
)
from minilog_tools.cli.examples import examples
from minilog_tools.cli.queue_peek import Peeked, partition_of, pieces, print_peeked

app = typer.Typer(no_args_is_help=True)
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
_STATES = ("ready", "leased", "settling", "dead")


@app.callback()
def queue() -> None:
    """List, describe, alter and delete queues, show their records, and redrive dead letters."""


@app.command("list", epilog=examples("minilog queue list", "minilog queue list --json"))
def list_(
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the queues, with the number of their partitions, and of the records that workers have now."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        listings = admin.list_queues()
    if as_json:
        print_json(
            [
                {"queue": listing.queue, "partitions": listing.partition_count, "leased": listing.leased_count}
                for listing in listings
            ]
        )
    else:
        print_table(
            ("queue", "partitions", "leased"),
            ((listing.queue, listing.partition_count, listing.leased_count) for listing in listings),
        )


@app.command(epilog=examples("minilog queue describe jobs", "minilog queue describe jobs --json"))
def describe(
    name: Queue,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a queue, its progress in each partition, and the records that are not settled."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        description = admin.describe_queue(name)
    if as_json:
        print_json(queue_document(description))
        return
    if description.settings:
        print_table(("setting", "value"), description.settings.items(), title=name)
    print_table(
        (
            "topic",
            "partition",
            "settled to",
            "next",
            "end",
            "undecided",
            *_STATES[:-1],
            "dead letters",
            "died",
            "expired",
        ),
        (_row(position) for position in description.partitions),
        title=name,
    )
    rows = [
        (
            position.topic,
            position.partition,
            f"{part.first_offset}-{part.last_offset}",
            part.state,
            part.delivery_count,
            part.worker_id or "-",
            f"{part.remaining_ms / 1000:.1f}" if part.state != "settling" else "-",
            part.death_reason or "",
        )
        for position in description.partitions
        for part in position.ranges
    ]
    if rows:
        print_table(
            ("topic", "partition", "offsets", "state", "deliveries", "worker", "seconds left", "died"),
            rows,
            title="leased, and not settled",
        )


def _row(position: QueuePosition) -> tuple[object, ...]:
    return (
        position.topic,
        position.partition,
        position.settled_to,
        position.next_offset,
        "-" if position.end_offset is None else position.end_offset,
        "-" if position.undecided_count is None else position.undecided_count,
        *(position.count(state) for state in _STATES),
        position.dead_count,
        position.expired_count,
    )


@app.command(
    epilog=examples(
        "minilog queue peek jobs",
        "minilog queue peek jobs --state ready -n 100",
        "minilog queue peek jobs --json",
    )
)
def peek(
    name: Queue,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Show at most this many records.")] = 10,
    state: Annotated[Peeked, typer.Option("--state", help="fresh: never leased.")] = Peeked.ALL,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show records that are not settled, with their state and the number of their deliveries. It leases nothing."""
    config = {**client_settings(bootstrap_servers, command_config), "isolation.level": "read_committed"}
    with admin_client(config) as admin:
        description = admin.describe_queue(name)
        held = read_ranges(admin, [partition_of(position) for position in description.partitions])
    ends = {partition: offsets.end for partition, offsets in held.items()}
    print_peeked(config, pieces(description, ends, state), count, as_json=as_json)


@app.command(
    epilog=examples(
        "minilog queue alter jobs -c group.share.record.lock.duration.ms=60000",
        "minilog queue alter jobs -d group.share.delivery.count.limit",
    )
)
def alter(
    name: Queue,
    settings: Settings = None,
    deleted: DeletedSettings = None,
    also_set: AlsoSet = None,
    also_unset: AlsoUnset = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a queue. The queue need not exist yet."""
    changed, dropped = changed_settings(settings, also_set, deleted, also_unset)
    if not changed and not dropped:
        raise typer.BadParameter("nothing to alter: give -c KEY=VALUE or -d KEY")
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.alter_queue(name, set=changed, unset=dropped)
    if as_json:
        print_json({"queue": name, "set": changed, "unset": dropped})
    else:
        say(f"queue {name} altered")


@app.command(
    epilog=examples("minilog queue delete jobs", "minilog queue delete jobs --command-config client.properties")
)
def delete(
    name: Queue,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete a queue, with its settings and its progress. Stop its workers first."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.delete_queue(name)
    if as_json:
        print_json({"queue": name, "deleted": True})
    else:
        say(f"queue {name} deleted")


@app.command(epilog=examples("minilog queue redrive jobs", "minilog queue redrive jobs --max-letters 10"))
def redrive(
    name: Queue,
    max_letters: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Redrive at most this many letters.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Make the records of a queue's dead letters ready again, each one once, for this queue alone. If the record of a
    letter is gone, the copy in the letter becomes a new record of its topic."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        redriven = admin.redrive_queue(name, max_letters=max_letters)
    if as_json:
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
        print_json(document)
        return
    for line in _redriven_lines(name, redriven):
        say(line)


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
