"""`minilog cluster backup` and `restore`: the metadata of a cluster as a file. Data is none of it."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer
from google.protobuf import json_format

from minilog.admin.security import QuotaAlteration
from minilog.types import NewTopic, TopicAlteration, TopicPartition
from minilog_broker.cli.backup_file import KeptOffset, KeptTopic, Metadata, decode, encode
from minilog_broker.cli.backup_plan import Held, Plan, plan_of, settable_configs
from minilog_broker.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    read_ranges,
    say,
)
from minilog_broker.cli.examples import examples
from minilog_broker.failure import CommandFailed

if TYPE_CHECKING:
    from minilog import Admin

Target = Annotated[pathlib.Path, typer.Argument(metavar="FILE", help="The file.")]


def backup(
    file: Target,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Write the metadata of the cluster to a new file: topics, schemas, settings, rules, quotas, offsets of groups.

    Users are in it by name, without what they log in by. Data is not in it: see jobs/archive.py.
    """
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        metadata = collect(admin)
    _write(file, encode(metadata))
    counts = {name: len(getattr(metadata, name)) for name in _KINDS}
    if as_json:
        print_json({"file": str(file), "cluster_id": metadata.cluster_id, **counts})
    else:
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        say(f"{file}: {told}. It says who may do what: keep it as you keep a configuration")


_KINDS = ("topics", "broker_settings", "users", "access_rules", "quotas", "groups")


def restore(
    file: Target,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="What is there and different becomes as in the file.")
    ] = False,
    group_offsets: Annotated[
        bool, typer.Option("--group-offsets", help="Also where groups go on, as far as the logs here hold that.")
    ] = False,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Make what a file of `backup` has and this cluster lacks. What is there is left and named; nothing is deleted."""
    settings = client_settings(bootstrap_servers, command_config)
    wanted = decode(file.read_bytes(), str(file))
    with admin_client(settings) as admin:
        there = collect(admin)
        held = _held(admin, wanted, there) if group_offsets else None
        brokers = [each.id for each in admin.describe_cluster().brokers]
        plan = plan_of(wanted, there, brokers, overwrite=overwrite, held=held)
        if plan.conflicts:
            raise CommandFailed(f"nothing was done: {'; '.join(plan.conflicts)}. Delete those here, or edit the file")
        if not dry_run:
            carry_out(admin, plan)
    if as_json:
        print_json({"dry_run": dry_run, "done": plan.counts(), "left": plan.left})
        return
    verb = "would be restored" if dry_run else "restored"
    say(f"{verb}: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in plan.counts().items()))
    for each in plan.left:
        say(f"left: {each}")


def collect(admin: Admin) -> Metadata:
    """What the cluster has now. It is asked by several calls: what is changed meanwhile may be in it or not."""
    described = admin.describe_cluster()
    return Metadata(
        cluster_id=described.cluster_id,
        level=described.level,
        topics=[_topic(each) for each in admin.describe_topics() if not each.internal],
        broker_settings=admin.describe_broker_settings(),
        users={each.name: [str(name) for name in each.iterations] for each in admin.describe_users()},
        access_rules=admin.describe_access_rules(),
        quotas=admin.describe_quotas(),
        groups={each.group_id: _offsets(admin, each.group_id) for each in admin.list_groups()},
    )


def _topic(topic: Any) -> KeptTopic:
    from minilog.typed.wire import schema_to_wire  # it loads Arrow, which no help needs

    return KeptTopic(
        name=topic.name,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=topic.configs,
        schemas=[
            json_format.MessageToDict(schema_to_wire(each), preserving_proto_field_name=True)
            for each in topic.schema_versions
        ],
    )


def _offsets(admin: Admin, group_id: str) -> list[KeptOffset]:
    offsets = admin.describe_group(group_id).offsets
    return [KeptOffset(topic=each.topic, partition=each.partition, offset=each.offset) for each in offsets]


def _held(admin: Admin, wanted: Metadata, there: Metadata) -> Held:
    """Of the partitions that are there and that groups of the file name. One of a topic that this very command makes
    holds nothing."""
    counts = {each.name: each.partitions for each in there.topics}
    named = {(each.topic, each.partition) for offsets in wanted.groups.values() for each in offsets}
    known = [TopicPartition(*each) for each in sorted(named) if each[1] < counts.get(each[0], 0)]
    return {(at.topic, at.partition): found for at, found in read_ranges(admin, known).items()}


def carry_out(admin: Admin, plan: Plan) -> None:
    """Each step may be done again: what is there then is left. Rules come last but for groups: a rule that denies may
    concern who restores."""
    for topic in plan.topics:
        _create(admin, topic)
    for name, configs in plan.configs.items():
        admin.alter_topic(name, set_configs=configs)
    for whose in dict.fromkeys(each.broker_id for each in plan.broker_settings):
        values = {each.name: each.value for each in plan.broker_settings if each.broker_id == whose}
        admin.alter_broker_settings(whose, set_configs=values)
    if plan.quotas:
        admin.alter_quotas([QuotaAlteration(each.entity, each.key, each.value) for each in plan.quotas])
    for group, offsets in plan.groups.items():
        admin.seek_group(group, {TopicPartition(each.topic, each.partition): each.offset for each in offsets})
    if plan.access_rules:
        admin.create_access_rules(plan.access_rules)


def _create(admin: Admin, topic: KeptTopic) -> None:
    """A typed topic gets all versions of its schema, one after the other, and so the same ids of fields."""
    from minilog.typed.wire import schema_from_wire  # as above
    from minilog.v1 import typed_pb2

    schemas = [schema_from_wire(json_format.ParseDict(dict(each), typed_pb2.TopicSchema())) for each in topic.schemas]
    first = schemas[0] if schemas else None
    configs = settable_configs(topic)
    admin.create_topics([NewTopic(topic.name, topic.partitions, topic.replication_factor, configs, first)])
    for schema in schemas[1:]:
        admin.alter_topics([TopicAlteration(topic.name, schema=schema)])
    if schemas:
        (made,) = admin.describe_topics([topic.name])
        if made.schema_versions != schemas:
            raise CommandFailed(
                f"topic {topic.name} has got another schema than the file says: delete it, and give this file to the "
                "version of minilog that wrote it"
            )


def _write(file: pathlib.Path, content: bytes) -> None:
    """A new file for its owner alone, on disk when this returns; of one that fails nothing is left."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandFailed(f"{file} is there already: give the name of a new file") from None
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


def add_to(app: typer.Typer) -> None:
    """Make them verbs of `minilog cluster`."""
    app.command(epilog=examples("minilog cluster backup metadata.json", "minilog cluster backup metadata.json --json"))(
        backup
    )
    app.command(
        epilog=examples(
            "minilog cluster restore metadata.json --dry-run", "minilog cluster restore metadata.json --overwrite"
        )
    )(restore)
