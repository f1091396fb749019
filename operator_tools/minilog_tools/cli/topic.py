"""`minilog topic` creates, lists, describes, deletes, alters and trims topics. It moves their replicas and leaders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minilog import NewTopic, TopicAlteration, TopicPartition
from minilog.errors import MinilogError
from minilog.place_words import named_place
from minilog.types import PartitionDescription, TopicDescription
from minilog_tools.cli import schema_verbs
from minilog_tools.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    DeletedSettings,
    Settings,
    admin_client,
    changed_settings,
    client_settings,
    join,
    parse_assignments,
    print_json,
    print_table,
    say,
)
from minilog_tools.cli.examples import examples
from minilog_tools.cli.schema_verbs import Ddl, KeyColumns, LikeFile, SchemaFile, TimestampColumn

if TYPE_CHECKING:
    from minilog import TopicSchema

app = typer.Typer(no_args_is_help=True)
app.add_typer(schema_verbs.app, name="schema", help="Show and evolve the schema of a typed topic.")
END = -1  # of delete_records
_PLACE = re.compile(r"(\d{1,9}):(\d{1,18}|end|latest)", re.ASCII | re.IGNORECASE)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


@app.callback()
def topic() -> None:
    """Create, list, describe, delete, alter and trim topics. Choose the leaders of their partitions."""


@app.command(
    epilog=examples(
        "minilog topic create flights -p 3 -r 3 -c min.insync.replicas=2",
        "minilog topic create flights --ddl 'carrier string NOT NULL, delay int' --key-columns carrier",
    )
)
def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("-p", "--partitions", min=1, help="Default: num.partitions of the brokers.")
    ] = None,
    replication: Annotated[
        int | None, typer.Option("-r", "--replication", min=1, help="Default: default.replication.factor.")
    ] = None,
    settings: Settings = None,
    ddl: Ddl = None,
    schema: SchemaFile = None,
    like: LikeFile = None,
    key_columns: KeyColumns = None,
    timestamp_column: TimestampColumn = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic. With columns it is a typed topic."""
    given = ddl, schema, like, key_columns, timestamp_column
    new = NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=parse_assignments(settings),
        schema=None if all(option is None for option in given) else _given_schema(*given),
    )
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.create_topics([new])
    _done(as_json, name, "created")


def _given_schema(*given: Any) -> TopicSchema | None:
    from minilog_tools.cli.topic_schema import given_schema  # it loads Arrow, which only columns need

    return given_schema(*given)


@app.command("list", epilog=examples("minilog topic list", "minilog topic list --internal --json"))
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="The brokers' own topics too.")] = False,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the topics by name."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        names = sorted(admin.list_topics(internal=internal))
    if as_json:
        print_json(names)
        return
    for name in names:
        say(name)


@app.command(epilog=examples("minilog topic describe flights", "minilog topic describe flights --replicas --json"))
def describe(
    name: Name,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Also where each replica's log ends, as far as the leader knows.")
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show a topic's settings, its schema, and its partitions: leaders, replicas, offsets."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        (description,) = admin.describe_topics([name], replica_ends=True)
    document = topic_document(description, replicas=replicas)
    if as_json:
        print_json(document)
        return
    settings = ", ".join(f"{key}={value}" for key, value in sorted(document["configs"].items())) or "all defaults"
    moving = any("adding_replicas" in partition for partition in document["partitions"])
    compacted = any("dirty_bytes" in partition for partition in document["partitions"])
    rows = (
        (
            partition["partition"],
            _shown(partition["leader"]),
            partition["leader_epoch"],
            join(partition["replicas"]),
            join(partition["isr"]),
            _shown(partition["log_start_offset"]),
            _shown(partition["high_watermark"]),
            _shown(partition["log_end_offset"]),
            *(
                [join(partition.get("adding_replicas", ())), join(partition.get("removing_replicas", ()))]
                if moving
                else ()
            ),
            *([_shown(partition.get("clean_to")), _shown(partition.get("dirty_bytes"))] if compacted else ()),
            *([_shown_ends(partition)] if replicas else ()),
        )
        for partition in document["partitions"]
    )
    columns: tuple[str, ...] = (
        "partition",
        "leader",
        "leader epoch",
        "replicas",
        "in sync",
        "start",
        "high watermark",
        "end",
    )
    columns += (("adding", "removing") if moving else ()) + (("clean to", "dirty bytes") if compacted else ())
    columns += ("ends of replicas",) if replicas else ()
    print_table(columns, rows, title=f"{name} (id {document['id']}; {settings})")
    if (schema := description.schema) is not None:
        from minilog_tools.cli.topic_schema import print_schema  # as in _given_schema

        print_schema(schema, f"version {schema.version} of the schema")


@app.command(
    epilog=examples("minilog topic delete flights", "minilog topic delete flights --command-config client.properties")
)
def delete(
    name: Name,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete a topic and all its records."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.delete_topics([name])
    _done(as_json, name, "deleted")


@app.command(
    epilog=examples(
        "minilog topic alter flights -p 6 -c flush.policy=os",
        "minilog topic alter flights -d flush.policy",
    )
)
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("-p", "--partitions", min=1, help="The new number, which only grows.")
    ] = None,
    settings: Settings = None,
    deleted: DeletedSettings = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Give a topic more partitions, or other settings."""
    configs, unset = changed_settings(settings, None, deleted)
    if partitions is None and not configs and not unset:
        raise typer.BadParameter("nothing to alter: give -p PARTITIONS, -c KEY=VALUE or -d KEY")
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        admin.alter_topics([TopicAlteration(name, partitions, configs, unset)])
    _done(as_json, name, "altered")


@app.command(epilog=examples("minilog topic elect flights", "minilog topic elect flights -p 0"))
def elect(
    name: Name,
    partitions: Annotated[
        list[int] | None, typer.Option("-p", "--partition", min=0, help="Repeatable. All by default.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Let the preferred leader, the first replica, lead again."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        if not partitions:
            (description,) = admin.describe_topics([name])
            partitions = [partition.partition for partition in description.partitions]
        results = admin.elect_leaders([TopicPartition(name, number) for number in partitions])
    _print_results(results, as_json, "led by its preferred leader")


@app.command(
    epilog=examples(
        "minilog topic reassign flights --to 0:1,2,3 --to 1:2,3,1 --throttle 10000000",
        "minilog topic reassign flights --cancel",
    )
)
def reassign(
    name: Name,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="PARTITION:BROKER,...",
            help="The brokers of a partition, the preferred leader first. Repeatable.",
        ),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            min=1,
            metavar="BYTES_PER_SECOND",
            help="The rate at which each broker may copy its new replicas.",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Go back to the former replicas, for all partitions that move.")
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Give partitions other replicas. The command ends at once, and `minilog topic describe` shows the progress."""
    if cancel == bool(to) or (cancel and throttle):
        raise typer.BadParameter("give the new replicas (--to PARTITION:BROKER,...), or --cancel alone")
    targets = dict(_target(name, text) for text in to or ())
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        wanted: dict[TopicPartition, list[int] | None] = dict(targets)
        if cancel:
            (description,) = admin.describe_topics([name])
            moving = [
                partition
                for partition in description.partitions
                if partition.adding_replicas or partition.removing_replicas
            ]
            wanted = {TopicPartition(name, partition.partition): None for partition in moving}
        results = admin.alter_partition_reassignments(wanted, throttle_bytes_per_second=throttle) if wanted else {}
    _print_results(results, as_json, "cancelled" if cancel else "has begun to move")


def _target(name: str, text: str) -> tuple[TopicPartition, list[int]]:
    partition, separator, brokers = text.partition(":")
    try:
        if not separator:
            raise ValueError(text)
        return TopicPartition(name, int(partition)), [int(broker) for broker in brokers.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--to {text}: expected PARTITION:BROKER,..., such as 0:1,2,3") from None


@app.command(
    epilog=examples("minilog topic trim flights --to 0:1000 --to 1:end", "minilog topic trim flights --to 0:end --json")
)
def trim(
    name: Name,
    to: Annotated[
        list[str],
        typer.Option(
            "--to",
            metavar="PARTITION:OFFSET",
            help="The new start of a partition, or `end` for its end. Repeatable.",
        ),
    ],
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete the records of partitions below an offset, for good. The command ends when no replica has them."""
    before = dict(_place(name, text) for text in to)
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        starts = admin.delete_records(before)
    if as_json:
        print_json(
            [
                {"topic": partition.topic, "partition": partition.partition, "low_watermark": at}
                for partition, at in starts.items()
            ]
        )
        return
    for partition, at in starts.items():
        say(f"partition {partition.partition} of {partition.topic}: starts at {at}")


def _place(name: str, text: str) -> tuple[TopicPartition, int]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"--to {text}: expected PARTITION:OFFSET, such as 0:1000, or 0:end")
    return TopicPartition(name, int(match[1])), END if named_place(match[2]) == "latest" else int(match[2])


def _print_results(results: Mapping[TopicPartition, MinilogError | None], as_json: bool, done: str) -> None:
    """Print a line or a JSON object for each partition. Raises the first error of them."""
    failed = {partition: error for partition, error in results.items() if error is not None}
    if as_json:
        print_json(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "error": error.code if error else None,
                    "message": str(error) if error else None,
                }
                for partition, error in results.items()
            ]
        )
    else:
        for partition in results:
            if partition not in failed:
                say(f"partition {partition.partition} of {partition.topic}: {done}")
    if failed:
        first = next(iter(failed.values()))
        assert first is not None
        others = f" ({len(failed) - 1} more partitions failed)" if len(failed) > 1 else ""
        raise type(first)(f"{first}{others}")


def topic_document(description: TopicDescription, *, replicas: bool = True) -> dict[str, Any]:
    """A described topic in the form of docs/reference/commands.md § JSON. `replicas`: with the ends of replicas, if the
    description has them."""
    partitions = [
        {
            "partition": partition.partition,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "log_start_offset": partition.log_start_offset,
            "last_stable_offset": partition.last_stable_offset,
            "high_watermark": partition.high_watermark,
            "log_end_offset": partition.log_end_offset,
            **_compaction_document(partition),
            **(_replica_ends_document(partition) if replicas else {}),
            **_reassignment_document(partition),
        }
        for partition in description.partitions
    ]
    return {
        "name": description.name,
        "id": description.id,
        "internal": description.internal,
        "configs": dict(description.configs),
        **({} if description.schema is None else {"schema": _schema_document(description.schema)}),
        "partitions": partitions,
    }


def _schema_document(schema: TopicSchema) -> dict[str, Any]:
    from minilog_tools.cli.topic_schema import schema_document  # as in _given_schema

    return schema_document(schema)


def _compaction_document(partition: PartitionDescription) -> dict[str, Any]:
    """Extra keys of a partition of a compacted topic."""
    if partition.dirty_bytes is None:
        return {}
    return {"clean_to": partition.clean_to, "dirty_bytes": partition.dirty_bytes}


def _replica_ends_document(partition: PartitionDescription) -> dict[str, Any]:
    """Extra keys, if the command wanted the ends and the leader answered. The end of a replica that has not reported
    to the leader is null."""
    ends = [{"broker": broker_id, "log_end_offset": end} for broker_id, end in partition.replica_ends.items()]
    return {"replica_ends": ends, "size_bytes": partition.size_bytes} if ends else {}


def _shown_ends(document: dict[str, Any]) -> str:
    ends = document.get("replica_ends", ())
    return ", ".join(f"{end['broker']}: {_shown(end['log_end_offset'])}" for end in ends) or "-"


def _reassignment_document(partition: PartitionDescription) -> dict[str, Any]:
    """Extra keys, which exist only while the partition gets other replicas."""
    if not (partition.adding_replicas or partition.removing_replicas):
        return {}
    document: dict[str, Any] = {
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
    }
    if partition.throttle_bytes_per_second is not None:
        document["throttle_bytes_per_second"] = partition.throttle_bytes_per_second
    return document


def _shown(number: int | None) -> int | str:
    return "-" if number is None else number


def _done(as_json: bool, name: str, what: str) -> None:
    if as_json:
        print_json({"name": name, what: True})
    else:
        say(f"topic {name} {what}")
