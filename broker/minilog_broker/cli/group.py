"""`minilog group`: the groups, their members, how far each has got, where it is to go on, and forgetting one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from minilog import Admin, TopicPartition
from minilog.errors import GroupIdNotFound
from minilog.types import GroupDescription, GroupPosition
from minilog_broker.cli.common import (
    OFFSET_FORMS,
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    check_offset,
    client_settings,
    print_json,
    print_table,
    read_ranges,
    say,
)
from minilog_broker.cli.consume import begin_offsets
from minilog_broker.cli.examples import examples
from minilog_broker.failure import CommandFailed

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
        found = admin.list_groups()
    if as_json:
        print_json(
            [
                {"group_id": each.group_id, "partitions": each.partition_count, "members": each.member_count}
                for each in found
            ]
        )
    else:
        print_table(
            ("group", "partitions", "members"),
            ((each.group_id, each.partition_count, each.member_count) for each in found),
        )


@app.command(epilog=examples("minilog group describe report", "minilog group describe report --json"))
def describe(
    name: Group,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a group has got in each partition and how far it is behind, its members, and what each reads."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        found = admin.describe_group(name)
    if as_json:
        print_json(group_document(found))
        return
    if found.members:
        print_members(found)
    print_table(
        ("topic", "partition", "offset", "end", "records behind", "seconds behind"),
        (
            (
                each.topic,
                each.partition,
                each.offset,
                _shown(each.end_offset),
                _shown(each.lag_records),
                "-" if each.lag_seconds is None else f"{each.lag_seconds:.1f}",
            )
            for each in found.offsets
        ),
        title=name,
    )
    if found.pending:
        print_table(
            ("topic", "partition", "offset", "transaction"),
            (
                (partition.topic, partition.partition, offset, each.transactional_id or "-")
                for each in found.pending
                for partition, offset in each.offsets.items()
            ),
            title="in transactions that have not ended",
        )


@app.command(
    epilog=examples("minilog group seek report -o @1714566600000", "minilog group seek report -t flights -o end")
)
def seek(
    name: Group,
    offset: Annotated[str, typer.Option("-o", "--offset", metavar=OFFSET_FORMS, help="Where to go on.")],
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="Default: all that the group has committed.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="With -t. Default: all partitions.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Make a group go on elsewhere, from when its readers begin anew: stop them first, they commit where they are."""
    check_offset(offset)
    if partition is not None and topic is None:
        raise typer.BadParameter("-p needs -t TOPIC")
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        chosen = _chosen(admin, name, topic, partition)
        offsets = admin.seek_group(name, _positions(admin, chosen, offset))
    if as_json:
        print_json([{"topic": p.topic, "partition": p.partition, "offset": at} for p, at in offsets.items()])
    else:
        for each, at in offsets.items():
            say(f"partition {each.partition} of {each.topic}: group {name} goes on at {at}")


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
    """Fence a member of a group: its partitions go to the others. A process that still runs joins anew."""
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
    """Forget all that a group has committed."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.delete_group(name)
    if as_json:
        print_json({"group_id": name, "deleted": True})
    else:
        say(f"group {name} deleted")


def _chosen(admin: Admin, name: str, topic: str | None, partition: int | None) -> list[TopicPartition]:
    if topic is None:
        try:
            found = admin.describe_group(name).offsets
        except GroupIdNotFound as error:
            raise CommandFailed(f"{error}; to begin one, name a topic with -t") from None
        return [TopicPartition(each.topic, each.partition) for each in found]
    (described,) = admin.describe_topics([topic])
    numbers = [each.partition for each in described.partitions]
    if partition is not None and partition not in numbers:
        raise CommandFailed(f"{topic} has no partition {partition}: it has 0 to {max(numbers)}")
    return [TopicPartition(topic, each) for each in (numbers if partition is None else [partition])]


def _positions(admin: Admin, chosen: Iterable[TopicPartition], offset: str) -> dict[TopicPartition, GroupPosition]:
    if offset.startswith("@"):
        return dict.fromkeys(chosen, offset)
    ranges = read_ranges(admin, chosen)
    return {
        each: begin_offsets(each.topic, offset, {each.partition: held})[each.partition] for each, held in ranges.items()
    }


def print_members(found: GroupDescription) -> None:
    """Who reads what."""
    print_table(
        ("member", "instance", "client", "host", "epoch", "reads", "gives back", "silent s"),
        (
            (
                each.member_id,
                each.instance_id or "-",
                each.client_id or "-",
                each.client_host,
                each.member_epoch,
                _ranges(each.assigned),
                _ranges(each.revoking),
                "away" if each.is_away else f"{each.silent_seconds:.1f}",
            )
            for each in found.members
        ),
        title=f"{found.group_id}: {len(found.members)} members, epoch {found.epoch}, assignor {found.assignor}",
    )


def _ranges(partitions: Iterable[TopicPartition]) -> str:
    """Such as `flights 0-3,7`, sorted."""
    numbers: dict[str, list[list[int]]] = {}
    for each in sorted(partitions):
        found = numbers.setdefault(each.topic, [])
        if found and found[-1][1] == each.partition - 1:
            found[-1][1] = each.partition
        else:
            found.append([each.partition, each.partition])
    return (
        " ".join(
            f"{topic} {','.join(str(first) if first == last else f'{first}-{last}' for first, last in found)}"
            for topic, found in numbers.items()
        )
        or "-"
    )


def group_document(found: GroupDescription) -> dict[str, Any]:
    """A described group, for machines."""
    return {
        "group_id": found.group_id,
        "kind": found.kind,
        "epoch": found.epoch,
        "assignor": found.assignor,
        "members": [
            {
                "member_id": each.member_id,
                "instance_id": each.instance_id,
                "rack": each.rack,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_epoch": each.member_epoch,
                "topics": each.topics,
                "assigned": _documents(each.assigned),
                "revoking": _documents(each.revoking),
                "target": _documents(each.target),
                "away": each.is_away,
                "silent_seconds": round(each.silent_seconds, 3),
            }
            for each in found.members
        ],
        "offsets": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "metadata": each.metadata,
                "committed_at": each.committed_ms,
                "end_offset": each.end_offset,
                "lag_records": each.lag_records,
                "lag_seconds": None if each.lag_seconds is None else round(each.lag_seconds, 3),
            }
            for each in found.offsets
        ],
        "pending": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "offsets": [
                    {"topic": partition.topic, "partition": partition.partition, "offset": offset}
                    for partition, offset in each.offsets.items()
                ],
            }
            for each in found.pending
        ],
    }


def _documents(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": each.topic, "partition": each.partition} for each in partitions]


def _shown(number: int | None) -> int | str:
    return "-" if number is None else number
