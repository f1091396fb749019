"""`minilog group` lists, describes and deletes groups, moves their offsets, and removes members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from minilog import Admin, TopicPartition
from minilog.errors import GroupIdNotFound
from minilog.types import GroupDescription, GroupPosition
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import OFFSET_FORMS, attributes, read_offset, read_ranges
from minilog_tools.cli.held_offsets import begin_offsets
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

app = typer.Typer(no_args_is_help=True)
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]


@verb(app, "minilog group list", "minilog group list --json", name="list")
def list_(cluster: Cluster) -> Output:
    """List the groups that have committed anything, or that have members."""
    documents = [
        {"group_id": listing.group_id, "partitions": listing.partition_count, "members": listing.member_count}
        for listing in cluster.admin.list_groups()
    ]
    return Output(documents, TextTable(("group", "partitions", "members"), (found.values() for found in documents)))


@verb(app, "minilog group describe report", "minilog group describe report --json")
def describe(cluster: Cluster, name: Group) -> Output:
    """Show a group's offset in each partition and how far it is behind, its members, and the partitions of each."""
    description = cluster.admin.describe_group(name)
    tables = [TextTable(_OFFSET_COLUMNS, _offset_rows(description), title=name)]
    if description.members:
        tables.insert(0, members_table(description))
    if description.pending:
        rows = (
            (partition.topic, partition.partition, offset, transaction.transactional_id or "-")
            for transaction in description.pending
            for partition, offset in transaction.offsets.items()
        )
        columns = ("topic", "partition", "offset", "transaction")
        tables.append(TextTable(columns, rows, title="in transactions that have not ended"))
    return Output(group_document(description), *tables)


_OFFSET_COLUMNS = ("topic", "partition", "offset", "end", "records behind", "seconds behind")


def _offset_rows(description: GroupDescription) -> Iterator[tuple[object, ...]]:
    for position in description.offsets:
        behind_s = None if position.lag_seconds is None else f"{position.lag_seconds:.1f}"
        yield (
            position.topic,
            position.partition,
            position.offset,
            position.end_offset,
            position.lag_records,
            behind_s,
        )


@verb(app, "minilog group seek report -o @1714566600000", "minilog group seek report -t flights -o end")
def seek(
    cluster: Cluster,
    name: Group,
    offset: Annotated[str, typer.Option("-o", "--offset", metavar=OFFSET_FORMS, help="Where the group goes on.")],
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Default: all topics of the group.")] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="With -t. Default: all partitions.")
    ] = None,
) -> Output:
    """Move the offsets of a group. Stop its readers first, because they commit their own offsets. Then start them
    again."""
    offset = read_offset(offset)
    if partition is not None and topic is None:
        raise typer.BadParameter("-p needs -t TOPIC")
    chosen = _chosen(cluster.admin, name, topic, partition)
    offsets = cluster.admin.seek_group(name, _positions(cluster.admin, chosen, offset))
    return Output(
        [{**attributes(moved, "topic", "partition"), "offset": position} for moved, position in offsets.items()],
        *(
            f"partition {moved.partition} of {moved.topic}: group {name} goes on at {position}"
            for moved, position in offsets.items()
        ),
    )


@verb(
    app,
    "minilog group remove-member report 5f0c9a52-7f0e-4b34-a1f6-3f4d4f4e9a11",
    "minilog group remove-member report worker-3",
    name="remove-member",
)
def remove_member(
    cluster: Cluster,
    name: Group,
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="The member's id, or its instance id.")],
) -> Output:
    """Fence a member of a group. Its partitions go to the other members. If its process still runs, it joins again."""
    cluster.admin.remove_group_member(name, member)
    return Output({"group_id": name, "member": member, "removed": True}, f"member {member} removed from group {name}")


@verb(app, "minilog group delete report", "minilog group delete report --command-config client.properties")
def delete(cluster: Cluster, name: Group) -> Output:
    """Delete a group, with all offsets that it has committed."""
    cluster.admin.delete_group(name)
    return Output({"group_id": name, "deleted": True}, f"group {name} deleted")


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


def members_table(description: GroupDescription) -> TextTable:
    """The members of a group, and the partitions of each."""
    rows = (
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
    )
    columns = ("member", "instance", "client", "host", "epoch", "reads", "gives back", "silent s")
    title = (
        f"{description.group_id}: {len(description.members)} members, epoch {description.epoch}, "
        f"assignor {description.assignor}"
    )
    return TextTable(columns, rows, title=title)


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
        **attributes(description, "group_id", "kind", "epoch", "assignor"),
        "members": [
            {
                **attributes(member, "member_id", "instance_id", "rack", "client_id", "client_host", "member_epoch"),
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
                **attributes(position, "topic", "partition", "offset", "metadata"),
                "committed_at": position.committed_ms,
                **attributes(position, "end_offset", "lag_records"),
                "lag_seconds": None if position.lag_seconds is None else round(position.lag_seconds, 3),
            }
            for position in description.offsets
        ],
        "pending": [
            {
                **attributes(transaction, "transactional_id", "producer_id"),
                "offsets": [
                    {**attributes(partition, "topic", "partition"), "offset": offset}
                    for partition, offset in transaction.offsets.items()
                ],
            }
            for transaction in description.pending
        ],
    }


def _documents(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [attributes(partition, "topic", "partition") for partition in partitions]
