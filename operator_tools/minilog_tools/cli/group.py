"""`minilog group` lists, describes and deletes groups, moves their offsets, and removes members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from minilog import Admin, TopicPartition
from minilog.errors import GroupIdNotFound
from minilog.types import GroupDescription, GroupPosition
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import (
    OFFSET_FORMS,
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    print_table,
    read_offset,
    read_ranges,
    say,
)
from minilog_tools.cli.consume import begin_offsets
from minilog_tools.cli.examples import examples

app = typer.Typer(no_args_is_help=True)
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]


@app.callback()
def group() -> None:
    """List, describe, seek and delete groups, and remove a member from one."""


@app.command("list", epilog=examples("minilog group list", "minilog group list --json"))
def list_(
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the groups that have committed anything, or that have members."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        listings = admin.list_groups()
    if as_json:
        print_json(
            [
                {"group_id": listing.group_id, "partitions": listing.partition_count, "members": listing.member_count}
                for listing in listings
            ]
        )
    else:
        print_table(
            ("group", "partitions", "members"),
            ((listing.group_id, listing.partition_count, listing.member_count) for listing in listings),
        )


@app.command(epilog=examples("minilog group describe report", "minilog group describe report --json"))
def describe(
    name: Group,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show a group's offset in each partition and how far it is behind, its members, and the partitions of each."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        description = admin.describe_group(name)
    if as_json:
        print_json(group_document(description))
        return
    if description.members:
        print_members(description)
    print_table(
        ("topic", "partition", "offset", "end", "records behind", "seconds behind"),
        (
            (
                position.topic,
                position.partition,
                position.offset,
                _shown(position.end_offset),
                _shown(position.lag_records),
                "-" if position.lag_seconds is None else f"{position.lag_seconds:.1f}",
            )
            for position in description.offsets
        ),
        title=name,
    )
    if description.pending:
        print_table(
            ("topic", "partition", "offset", "transaction"),
            (
                (partition.topic, partition.partition, offset, transaction.transactional_id or "-")
                for transaction in description.pending
                for partition, offset in transaction.offsets.items()
            ),
            title="in transactions that have not ended",
        )


@app.command(
    epilog=examples("minilog group seek report -o @1714566600000", "minilog group seek report -t flights -o end")
)
def seek(
    name: Group,
    offset: Annotated[str, typer.Option("-o", "--offset", metavar=OFFSET_FORMS, help="Where the group goes on.")],
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Default: all topics of the group.")] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="With -t. Default: all partitions.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Move the offsets of a group. Stop its readers first, because they commit their own offsets. Then start them
    again."""
    offset = read_offset(offset)
    if partition is not None and topic is None:
        raise typer.BadParameter("-p needs -t TOPIC")
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        chosen = _chosen(admin, name, topic, partition)
        offsets = admin.seek_group(name, _positions(admin, chosen, offset))
    if as_json:
        print_json(
            [
                {"topic": moved.topic, "partition": moved.partition, "offset": position}
                for moved, position in offsets.items()
            ]
        )
    else:
        for moved, position in offsets.items():
            say(f"partition {moved.partition} of {moved.topic}: group {name} goes on at {position}")


@app.command(
    "remove-member",
    epilog=examples(
        "minilog group remove-member report 5f0c9a52-7f0e-4b34-a1f6-3f4d4f4e9a11",
        "minilog group remove-member report worker-3",
    ),
)
def remove_member(
    name: Group,
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="The member's id, or its instance id.")],
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Fence a member of a group. Its partitions go to the other members. If its process still runs, it joins again."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.remove_group_member(name, member)
    if as_json:
        print_json({"group_id": name, "member": member, "removed": True})
    else:
        say(f"member {member} removed from group {name}")


@app.command(
    epilog=examples("minilog group delete report", "minilog group delete report --command-config client.properties")
)
def delete(
    name: Group,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete a group, with all offsets that it has committed."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.delete_group(name)
    if as_json:
        print_json({"group_id": name, "deleted": True})
    else:
        say(f"group {name} deleted")


def _chosen(admin: Admin, name: str, topic: str | None, partition: int | None) -> list[TopicPartition]:
    if topic is None:
        try:
            offsets = admin.describe_group(name).offsets
        except GroupIdNotFound as error:
            raise CommandFailed(f"{error}. To begin one, name a topic with -t") from None
        return [TopicPartition(committed.topic, committed.partition) for committed in offsets]
    (described,) = admin.describe_topics([topic])
    numbers = [description.partition for description in described.partitions]
    if partition is not None and partition not in numbers:
        raise CommandFailed(f"{topic} has no partition {partition}: it has 0 to {max(numbers)}")
    return [TopicPartition(topic, number) for number in (numbers if partition is None else [partition])]


def _positions(admin: Admin, chosen: Iterable[TopicPartition], offset: str) -> dict[TopicPartition, GroupPosition]:
    if offset.startswith("@"):
        return dict.fromkeys(chosen, offset)
    positions: dict[TopicPartition, GroupPosition] = {}
    for partition, held in read_ranges(admin, chosen).items():
        number = partition.partition
        positions[partition] = begin_offsets(partition.topic, offset, {number: held})[number]
    return positions


def print_members(description: GroupDescription) -> None:
    """Print the members of a group, and the partitions of each."""
    print_table(
        ("member", "instance", "client", "host", "epoch", "reads", "gives back", "silent s"),
        (
            (
                member.member_id,
                member.instance_id or "-",
                member.client_id or "-",
                member.client_host,
                member.member_epoch,
                _ranges(member.assigned),
                _ranges(member.revoking),
                "away" if member.is_away else f"{member.silent_seconds:.1f}",
            )
            for member in description.members
        ),
        title=f"{description.group_id}: {len(description.members)} members, epoch {description.epoch}, "
        f"assignor {description.assignor}",
    )


def _ranges(partitions: Iterable[TopicPartition]) -> str:
    """The partitions of each topic, sorted, with neighbours as a range: `flights 0-3,7`."""
    runs_by_topic: dict[str, list[list[int]]] = {}
    for partition in sorted(partitions):
        runs = runs_by_topic.setdefault(partition.topic, [])
        if runs and runs[-1][1] == partition.partition - 1:
            runs[-1][1] = partition.partition
        else:
            runs.append([partition.partition, partition.partition])
    return (
        " ".join(
            f"{topic} {','.join(str(first) if first == last else f'{first}-{last}' for first, last in runs)}"
            for topic, runs in runs_by_topic.items()
        )
        or "-"
    )


def group_document(description: GroupDescription) -> dict[str, Any]:
    """A described group, for machines."""
    return {
        "group_id": description.group_id,
        "kind": description.kind,
        "epoch": description.epoch,
        "assignor": description.assignor,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "rack": member.rack,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_epoch": member.member_epoch,
                "topics": member.topics,
                "assigned": _documents(member.assigned),
                "revoking": _documents(member.revoking),
                "target": _documents(member.target),
                "away": member.is_away,
                "silent_seconds": round(member.silent_seconds, 3),
            }
            for member in description.members
        ],
        "offsets": [
            {
                "topic": position.topic,
                "partition": position.partition,
                "offset": position.offset,
                "metadata": position.metadata,
                "committed_at": position.committed_ms,
                "end_offset": position.end_offset,
                "lag_records": position.lag_records,
                "lag_seconds": None if position.lag_seconds is None else round(position.lag_seconds, 3),
            }
            for position in description.offsets
        ],
        "pending": [
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "offsets": [
                    {"topic": partition.topic, "partition": partition.partition, "offset": offset}
                    for partition, offset in transaction.offsets.items()
                ],
            }
            for transaction in description.pending
        ],
    }


def _documents(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": partition.topic, "partition": partition.partition} for partition in partitions]


def _shown(number: int | None) -> int | str:
    return "-" if number is None else number
