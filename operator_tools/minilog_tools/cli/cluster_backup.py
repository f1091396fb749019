"""`minilog cluster backup` writes the metadata of a cluster to a file, without data. `restore` reads it back."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from google.protobuf import json_format

from minilog.admin.security import QuotaAlteration
from minilog.types import NewTopic, SchemaStep, TopicAlteration, TopicPartition
from minilog_broker.failure import CommandFailed
from minilog_broker.levels import QUEUES_LEVEL
from minilog_tools.cli.backup_file import KeptOffset, KeptTopic, Metadata, decode, encode
from minilog_tools.cli.backup_plan import Held, Plan, plan_of, settable_configs
from minilog_tools.cli.common import read_ranges
from minilog_tools.cli.verb import Cluster, Output, verb

if TYPE_CHECKING:
    from minilog import Admin

app = typer.Typer()
Target = Annotated[pathlib.Path, typer.Argument(metavar="FILE", help="The file.")]
_KINDS = ("topics", "broker_settings", "users", "access_rules", "quotas", "groups", "queues")


@verb(app, "minilog cluster backup metadata.json", "minilog cluster backup metadata.json --json")
def backup(cluster: Cluster, file: Target) -> Output:
    """Write the metadata of the cluster to a new file: topics, schemas, settings, rules, quotas, offsets of groups.

    It also has the settings of queues, and the names of users without their secrets. It has no data (see
    jobs/archive.py), and no progress of queues.
    """
    metadata = collect(cluster.admin)
    _write(file, encode(metadata))
    counts = {name: len(getattr(metadata, name)) for name in _KINDS}
    return Output(
        {"file": str(file), "cluster_id": metadata.cluster_id, **counts},
        f"{file}: {_counted(counts)}. It has the access rules: keep it as you keep a configuration",
    )


@verb(app, "minilog cluster restore metadata.json --dry-run", "minilog cluster restore metadata.json --overwrite")
def restore(
    cluster: Cluster,
    file: Target,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what a restore would do.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also change settings and quotas that differ from the file.")
    ] = False,
    group_offsets: Annotated[
        bool, typer.Option("--group-offsets", help="Also restore the offsets of groups, where the logs here hold them.")
    ] = False,
) -> Output:
    """Create what a file of `backup` has and this cluster lacks.

    The command leaves what exists, names the differences, and deletes nothing.
    """
    cluster.check_settings()
    wanted = decode(file.read_bytes(), str(file))
    admin = cluster.admin
    there = collect(admin)
    held = _held(admin, wanted, there) if group_offsets else None
    brokers = [broker.id for broker in admin.describe_cluster().brokers]
    plan = plan_of(wanted, there, brokers, overwrite=overwrite, held=held)
    if plan.conflicts:
        raise CommandFailed(f"nothing was done: {'; '.join(plan.conflicts)}. Delete the topics here, or edit the file")
    if not dry_run:
        carry_out(admin, plan)
    return Output(
        {"dry_run": dry_run, "done": plan.counts(), "left": plan.left},
        f"{'would be restored' if dry_run else 'restored'}: {_counted(plan.counts())}",
        *(f"left: {sentence}" for sentence in plan.left),
    )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())


def collect(admin: Admin) -> Metadata:
    """The metadata of the cluster now. Several calls read it, so it may lack a change that happens in between."""
    described = admin.describe_cluster()
    return Metadata(
        cluster_id=described.cluster_id,
        level=described.level,
        topics=[_topic(topic) for topic in admin.describe_topics() if not topic.internal],
        broker_settings=admin.describe_broker_settings(),
        users={user.name: [str(name) for name in user.iterations] for user in admin.describe_users()},
        access_rules=admin.describe_access_rules(),
        quotas=admin.describe_quotas(),
        groups={group.group_id: _offsets(admin, group.group_id) for group in admin.list_groups()},
        queues=_queues(admin, described.level),
    )


def _topic(topic: Any) -> KeptTopic:
    from minilog.typed.schema.wire import schema_to_wire  # it loads Arrow, which no help needs

    return KeptTopic(
        name=topic.name,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=topic.configs,
        schemas=[
            json_format.MessageToDict(schema_to_wire(version), preserving_proto_field_name=True)
            for version in topic.schema_versions
        ],
        withdrawn_schemas=[
            version.version for version in topic.schema_versions if version.version in topic.schemas.withdrawn
        ],
    )


def _offsets(admin: Admin, group_id: str) -> list[KeptOffset]:
    offsets = admin.describe_group(group_id).offsets
    return [KeptOffset(topic=offset.topic, partition=offset.partition, offset=offset.offset) for offset in offsets]


def _queues(admin: Admin, level: int) -> dict[str, dict[str, str]]:
    """The settings of each queue that has any. No progress: an offset belongs to data."""
    if level < QUEUES_LEVEL:
        return {}
    settings = {listing.queue: admin.describe_queue(listing.queue).settings for listing in admin.list_queues()}
    return {queue: values for queue, values in settings.items() if values}


def _held(admin: Admin, wanted: Metadata, there: Metadata) -> Held:
    """The offsets that the logs here hold, for each partition with offsets of groups in the file. A partition that does
    not exist yet is left out."""
    counts = {topic.name: topic.partitions for topic in there.topics}
    named = {(offset.topic, offset.partition) for offsets in wanted.groups.values() for offset in offsets}
    existing = [TopicPartition(name, number) for name, number in sorted(named) if number < counts.get(name, 0)]
    ranges = read_ranges(admin, existing)
    return {(partition.topic, partition.partition): offsets for partition, offsets in ranges.items()}


def carry_out(admin: Admin, plan: Plan) -> None:
    """Carry out a plan. After a failure the command may run again, because it leaves what exists by then. Access rules
    come last, because a rule may deny something to the user that restores."""
    for topic in plan.topics:
        _create(admin, topic)
    for name, configs in plan.configs.items():
        admin.alter_topic(name, set_configs=configs)
    for broker_id in dict.fromkeys(setting.broker_id for setting in plan.broker_settings):
        values = {setting.name: setting.value for setting in plan.broker_settings if setting.broker_id == broker_id}
        admin.alter_broker_settings(broker_id, set_configs=values)
    if plan.quotas:
        admin.alter_quotas([QuotaAlteration(quota.entity, quota.key, quota.value) for quota in plan.quotas])
    for group, offsets in plan.groups.items():
        admin.seek_group(group, {TopicPartition(offset.topic, offset.partition): offset.offset for offset in offsets})
    for queue, settings in plan.queues.items():
        admin.alter_queue(queue, set=settings)
    if plan.access_rules:
        admin.create_access_rules(plan.access_rules)


def _create(admin: Admin, topic: KeptTopic) -> None:
    """Create a topic. A typed topic gets all versions of its schema, one after the other. So its fields keep their
    ids."""
    from minilog.typed.schema.wire import schema_from_wire  # as above
    from minilog.v1 import typed_pb2

    schemas = [
        schema_from_wire(json_format.ParseDict(dict(schema), typed_pb2.TopicSchema())) for schema in topic.schemas
    ]
    first = schemas[0] if schemas else None
    configs = settable_configs(topic)
    admin.create_topics([NewTopic(topic.name, topic.partitions, topic.replication_factor, configs, first)])
    for schema in schemas[1:]:
        is_withdrawn = schema.version in topic.withdrawn_schemas
        for step in (SchemaStep.PENDING, SchemaStep.WITHDRAWN) if is_withdrawn else (SchemaStep.LATEST,):
            admin.alter_topics([TopicAlteration(topic.name, schema=schema, schema_step=step)])
    if schemas:
        (made,) = admin.describe_topics([topic.name])
        if made.schema_versions != schemas:
            raise CommandFailed(
                f"topic {topic.name} has got another schema than the one in the file: delete the topic, and restore "
                "the file with the version of minilog that wrote it"
            )


def _write(file: pathlib.Path, content: bytes) -> None:
    """Write a new file for its owner alone, and sync it. Where a write fails, no file is left."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandFailed(f"{file} exists: give the name of a new file") from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        directory = os.open(file.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError:
        with contextlib.suppress(OSError):
            file.unlink()
        raise
