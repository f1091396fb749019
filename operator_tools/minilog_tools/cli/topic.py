"""`minilog topic` creates, lists, describes, deletes, alters and trims topics. It moves their replicas and leaders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minilog import NewTopic, TopicAlteration, TopicPartition
from minilog.errors import MinilogError
from minilog.place_words import named_place
from minilog.types import PartitionDescription, TopicDescription
from minilog_tools.cli import schema_verbs
from minilog_tools.cli.common import (
    DeletedSettings,
    Settings,
    Throttle,
    attributes,
    changed_settings,
    join,
    parse_assignments,
)
from minilog_tools.cli.schema_options import ColumnOptions
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

if TYPE_CHECKING:
    from minilog import TopicSchema

app = typer.Typer(no_args_is_help=True)
app.add_typer(schema_verbs.app, name="schema", help="Show and evolve the schema of a typed topic.")
END = -1  # of delete_records
_PLACE = re.compile(r"(\d{1,9}):(\d{1,18}|end|latest)", re.ASCII | re.IGNORECASE)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


@verb(
    app,
    "minilog topic create flights -p 3 -r 3 -c min.insync.replicas=2",
    "minilog topic create flights --ddl 'carrier string NOT NULL, delay int' --key-columns carrier",
)
def create(
    cluster: Cluster,
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("-p", "--partitions", min=1, help="Default: num.partitions of the brokers.")
    ] = None,
    replication: Annotated[
        int | None, typer.Option("-r", "--replication", min=1, help="Default: default.replication.factor.")
    ] = None,
    settings: Settings = None,
    *,
    columns: ColumnOptions,
) -> Output:
    """Create a topic. With columns it is a typed topic."""
    new = NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=parse_assignments(settings),
        schema=schema_verbs.schema_of(columns),
    )
    cluster.admin.create_topics([new])
    return Output({"name": name, "created": True}, f"topic {name} created")


@verb(app, "minilog topic list", "minilog topic list --internal --json", name="list")
def list_(
    cluster: Cluster,
    internal: Annotated[bool, typer.Option("--internal", help="The brokers' own topics too.")] = False,
) -> Output:
    """List the topics by name."""
    names = sorted(cluster.admin.list_topics(internal=internal))
    return Output(names, *names)


@verb(app, "minilog topic describe flights", "minilog topic describe flights --replicas --json")
def describe(
    cluster: Cluster,
    name: Name,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Also where each replica's log ends, as far as the leader knows.")
    ] = False,
) -> Output:
    """Show a topic's settings, its schema, and its partitions: leaders, replicas, offsets."""
    (description,) = cluster.admin.describe_topics([name], replica_ends=True)
    document = topic_document(description, replicas=replicas)
    settings = ", ".join(f"{key}={value}" for key, value in sorted(document["configs"].items())) or "all defaults"
    columns, rows = _partition_columns(document["partitions"], replicas=replicas)
    tables = [TextTable(columns, rows, title=f"{name} (id {document['id']}; {settings})")]
    if (schema := description.schema) is not None:
        from minilog_tools.cli.topic_schema import schema_table  # it loads Arrow

        tables.append(schema_table(schema, f"version {schema.version} of the schema"))
    return Output(document, *tables)


def _partition_columns(documents: list[dict[str, Any]], *, replicas: bool) -> tuple[list[str], list[list[object]]]:
    """The names of the columns for people, and the rows. A column that no partition needs is left out."""
    shown: dict[str, Callable[[dict[str, Any]], object]] = {
        "partition": itemgetter("partition"),
        "leader": itemgetter("leader"),
        "leader epoch": itemgetter("leader_epoch"),
        "replicas": lambda document: join(document["replicas"]),
        "in sync": lambda document: join(document["isr"]),
        "start": itemgetter("log_start_offset"),
        "high watermark": itemgetter("high_watermark"),
        "end": itemgetter("log_end_offset"),
    }
    if any("adding_replicas" in document for document in documents):
        shown["adding"] = lambda document: join(document.get("adding_replicas", ()))
        shown["removing"] = lambda document: join(document.get("removing_replicas", ()))
    if any("dirty_bytes" in document for document in documents):
        shown["clean to"] = lambda document: document.get("clean_to")
        shown["dirty bytes"] = lambda document: document.get("dirty_bytes")
    if replicas:
        shown["ends of replicas"] = _shown_ends
    return list(shown), [[cell(document) for cell in shown.values()] for document in documents]


@verb(app, "minilog topic delete flights", "minilog topic delete flights --command-config client.properties")
def delete(cluster: Cluster, name: Name) -> Output:
    """Delete a topic and all its records."""
    cluster.admin.delete_topics([name])
    return Output({"name": name, "deleted": True}, f"topic {name} deleted")


@verb(app, "minilog topic alter flights -p 6 -c flush.policy=os", "minilog topic alter flights -d flush.policy")
def alter(
    cluster: Cluster,
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("-p", "--partitions", min=1, help="The new number, which only grows.")
    ] = None,
    settings: Settings = None,
    deleted: DeletedSettings = None,
) -> Output:
    """Give a topic more partitions, or other settings."""
    configs, unset = changed_settings(settings, None, deleted)
    if partitions is None and not configs and not unset:
        raise typer.BadParameter("nothing to alter: give -p PARTITIONS, -c KEY=VALUE or -d KEY")
    cluster.admin.alter_topics([TopicAlteration(name, partitions, configs, unset)])
    return Output({"name": name, "altered": True}, f"topic {name} altered")


@verb(app, "minilog topic elect flights", "minilog topic elect flights -p 0")
def elect(
    cluster: Cluster,
    name: Name,
    partitions: Annotated[
        list[int] | None, typer.Option("-p", "--partition", min=0, help="Repeatable. All by default.")
    ] = None,
) -> Iterator[Output]:
    """Let the preferred leader, the first replica, lead again."""
    if not partitions:
        (description,) = cluster.admin.describe_topics([name])
        partitions = [partition.partition for partition in description.partitions]
    results = cluster.admin.elect_leaders([TopicPartition(name, number) for number in partitions])
    yield from _results(results, "led by its preferred leader")


@verb(
    app,
    "minilog topic reassign flights --to 0:1,2,3 --to 1:2,3,1 --throttle 10000000",
    "minilog topic reassign flights --cancel",
)
def reassign(
    cluster: Cluster,
    name: Name,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="PARTITION:BROKER,...",
            help="The brokers of a partition, the preferred leader first. Repeatable.",
        ),
    ] = None,
    throttle: Throttle = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Go back to the former replicas, for all partitions that move.")
    ] = False,
) -> Iterator[Output]:
    """Give partitions other replicas. The command ends at once, and `minilog topic describe` shows the progress."""
    if cancel == bool(to) or (cancel and throttle):
        raise typer.BadParameter("give the new replicas (--to PARTITION:BROKER,...), or --cancel alone")
    wanted: dict[TopicPartition, list[int] | None] = dict(_target(name, text) for text in to or ())
    if cancel:
        (description,) = cluster.admin.describe_topics([name])
        wanted = {
            TopicPartition(name, partition.partition): None
            for partition in description.partitions
            if partition.adding_replicas or partition.removing_replicas
        }
    results = cluster.admin.alter_partition_reassignments(wanted, throttle_bytes_per_second=throttle) if wanted else {}
    yield from _results(results, "cancelled" if cancel else "has begun to move")


def _target(name: str, text: str) -> tuple[TopicPartition, list[int]]:
    partition, _, brokers = text.partition(":")
    try:
        return TopicPartition(name, int(partition)), [int(broker) for broker in brokers.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--to {text}: expected PARTITION:BROKER,..., such as 0:1,2,3") from None


@verb(app, "minilog topic trim flights --to 0:1000 --to 1:end", "minilog topic trim flights --to 0:end --json")
def trim(
    cluster: Cluster,
    name: Name,
    to: Annotated[
        list[str],
        typer.Option(
            "--to",
            metavar="PARTITION:OFFSET",
            help="The new start of a partition, or `end` for its end. Repeatable.",
        ),
    ],
) -> Output:
    """Delete the records of partitions below an offset, for good. The command ends when no replica has them."""
    starts = cluster.admin.delete_records(dict(_place(name, text) for text in to))
    return Output(
        [{**attributes(partition, "topic", "partition"), "low_watermark": at} for partition, at in starts.items()],
        *(f"partition {partition.partition} of {partition.topic}: starts at {at}" for partition, at in starts.items()),
    )


def _place(name: str, text: str) -> tuple[TopicPartition, int]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"--to {text}: expected PARTITION:OFFSET, such as 0:1000, or 0:end")
    return TopicPartition(name, int(match[1])), END if named_place(match[2]) == "latest" else int(match[2])


def _results(results: Mapping[TopicPartition, MinilogError | None], done: str) -> Iterator[Output]:
    """A line and an object for each partition. Raises the first error of them."""
    documents = [
        {
            **attributes(partition, "topic", "partition"),
            "error": error.code if error else None,
            "message": str(error) if error else None,
        }
        for partition, error in results.items()
    ]
    at = [partition for partition, error in results.items() if error is None]
    yield Output(documents, *(f"partition {partition.partition} of {partition.topic}: {done}" for partition in at))
    failures = [error for error in results.values() if error is not None]
    if failures:
        first, others = failures[0], len(failures) - 1
        raise type(first)(f"{first}{f' ({others} more partitions failed)' if others else ''}")


def topic_document(description: TopicDescription, *, replicas: bool = True) -> dict[str, Any]:
    """A described topic in the form of docs/reference/commands.md § JSON. `replicas`: with the ends of replicas, if the
    description has them."""
    partitions = [
        {
            **attributes(partition, "partition", "leader", "leader_epoch", "partition_epoch"),
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            **attributes(partition, "log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset"),
            **_compaction_document(partition),
            **(_replica_ends_document(partition) if replicas else {}),
            **_reassignment_document(partition),
        }
        for partition in description.partitions
    ]
    return {
        **attributes(description, "name", "id", "internal"),
        "configs": dict(description.configs),
        **({} if description.schema is None else {"schema": _schema_document(description.schema)}),
        "partitions": partitions,
    }


def _schema_document(schema: TopicSchema) -> dict[str, Any]:
    from minilog_tools.cli.topic_schema import schema_document  # it loads Arrow

    return schema_document(schema)


def _compaction_document(partition: PartitionDescription) -> dict[str, Any]:
    """Extra keys of a partition of a compacted topic."""
    if partition.dirty_bytes is None:
        return {}
    return attributes(partition, "clean_to", "dirty_bytes")


def _replica_ends_document(partition: PartitionDescription) -> dict[str, Any]:
    """Extra keys, if the command wanted the ends and the leader answered. The end of a replica that has not reported
    to the leader is null."""
    ends = [{"broker": broker_id, "log_end_offset": end} for broker_id, end in partition.replica_ends.items()]
    return {"replica_ends": ends, "size_bytes": partition.size_bytes} if ends else {}


def _shown_ends(document: dict[str, Any]) -> str:
    ends = document.get("replica_ends", ())
    known = (f"{end['broker']}: {'-' if end['log_end_offset'] is None else end['log_end_offset']}" for end in ends)
    return ", ".join(known) or "-"


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
