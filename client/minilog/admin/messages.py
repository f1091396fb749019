"""The messages of Admin's requests, and its results from the answers. Pure."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from minilog.errors import InvalidArgument, MinilogError, error_from_wire
from minilog.limits import MAX_ADMIN_TOPICS, MAX_NEW_FIELDS, MAX_NEW_PARTITIONS
from minilog.types import (
    BrokerDescription,
    BrokerLoad,
    ClusterDescription,
    NewTopic,
    OffsetAtSize,
    PartitionDescription,
    PartitionReassignment,
    TopicAlteration,
    TopicDescription,
    TopicPartition,
    VoterDescription,
)
from minilog.v1 import admin_pb2, metadata_pb2, typed_pb2
from minilog.versions import range_from_wire

if TYPE_CHECKING:
    import pyarrow as pa

    from minilog.errors import UnsupportedVersion
    from minilog.typed.schema.topic_schema import TopicSchema
    from minilog.typed.schema.topic_schemas import TopicSchemas

_Topic = TypeVar("_Topic", admin_pb2.NewTopic, admin_pb2.TopicAlteration)
CREATION_ID_BYTES = 16
_STATES = {
    metadata_pb2.BROKER_STATE_STARTING: "starting",
    metadata_pb2.BROKER_STATE_RUNNING: "running",
    metadata_pb2.BROKER_STATE_FENCED: "fenced",
    metadata_pb2.BROKER_STATE_STOPPING: "stopping",
}


def _texts(configs: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in configs.items()}


def new_topic(topic: NewTopic, creation_id: bytes = b"") -> admin_pb2.NewTopic:
    """The message, which is the same at each attempt. Raises InvalidSchema, and InvalidArgument for something else than
    a NewTopic."""
    if not isinstance(topic, NewTopic):
        raise InvalidArgument(f"create_topics was given {topic!r}: give NewTopic(name, ...)")
    return admin_pb2.NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=_texts(topic.configs),
        schema=None if topic.schema is None else _new_schema(topic.name, topic.schema),
        creation_id=creation_id,
    )


def topic_alteration(alteration: TopicAlteration) -> admin_pb2.TopicAlteration:
    """The message. Raises InvalidSchema for what can be no version of a schema."""
    return admin_pb2.TopicAlteration(
        name=alteration.name,
        num_partitions=alteration.num_partitions,
        set_configs=_texts(alteration.set_configs),
        unset_configs=list(alteration.unset_configs),
        schema=None if alteration.schema is None else _next_schema(alteration.schema),
        schema_step=alteration.schema_step.value,  # type: ignore[arg-type]
    )


def _new_schema(name: str, schema: TopicSchema | pa.Schema) -> typed_pb2.TopicSchema:
    from minilog.admin.schema_messages import new_schema  # It loads Arrow: where columns are given.

    return new_schema(name, schema)


def _next_schema(schema: TopicSchema) -> typed_pb2.TopicSchema:
    from minilog.admin.schema_messages import next_schema  # as in _new_schema

    return next_schema(schema)


def split_results(
    results: Iterable[admin_pb2.TopicResult],
) -> tuple[dict[str, bytes], dict[str, MinilogError]]:
    """(topic ids of what succeeded, errors of what did not), by name."""
    done: dict[str, bytes] = {}
    failed: dict[str, MinilogError] = {}
    for result in results:
        error = error_from_wire(result.error)
        if error is None:
            done[result.name] = result.topic_id
        else:
            failed[result.name] = error
    return done, failed


def parts_of_topics(topics: Sequence[_Topic]) -> Iterator[list[_Topic]]:
    """The topics in order, in parts that one request may create or alter. A topic above the limit is a part alone."""
    part: list[_Topic] = []
    partitions = fields = 0
    for topic in topics:
        more = topic.schema.last_field_id  # at least as many as it has fields
        full = partitions + topic.num_partitions > MAX_NEW_PARTITIONS or fields + more > MAX_NEW_FIELDS
        if part and (len(part) == MAX_ADMIN_TOPICS or full):
            yield part
            part, partitions, fields = [], 0, 0
        part.append(topic)
        partitions, fields = partitions + topic.num_partitions, fields + more
    if part:
        yield part


def topic_partitions(partitions: Iterable[TopicPartition]) -> list[admin_pb2.TopicPartitions]:
    """The message, one entry per topic."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return [admin_pb2.TopicPartitions(name=name, partitions=numbers) for name, numbers in by_topic.items()]


def partition_errors(results: Iterable[admin_pb2.PartitionResult]) -> dict[TopicPartition, MinilogError | None]:
    """The decision on each partition: None if it is done, or else the error."""
    return {TopicPartition(result.name, result.partition): error_from_wire(result.error) for result in results}


def directory_id_bytes(text: str | None) -> bytes:
    """The bytes of a directory id in the form of `minilog cluster describe`. Raises InvalidArgument for another
    form."""
    try:
        return bytes.fromhex(text or "")
    except ValueError:
        raise InvalidArgument(f"{text!r} is no directory id: give the 32 hexadecimal digits of one") from None


def describe_broker(broker: metadata_pb2.BrokerMetadata) -> BrokerDescription:
    rack = broker.rack if broker.HasField("rack") else None
    state, levels = _STATES.get(broker.state, "starting"), range_from_wire(broker.levels)
    host_label = broker.host_label if broker.HasField("host_label") else None
    values = broker.broker_id, broker.host, broker.port, rack, state, levels.lowest, levels.highest, broker.version
    return BrokerDescription(*values, host_label, broker.cordoned, broker.decommissioning)


def describe_cluster(answer: metadata_pb2.GetMetadataResponse) -> ClusterDescription:
    controller = answer.controller_id if answer.controller_id >= 0 else None
    every = [*answer.brokers, *answer.unreachable_brokers]
    brokers = sorted((describe_broker(broker) for broker in every), key=lambda broker: broker.id)
    voters = [
        VoterDescription(voter.broker_id, voter.directory_id.hex(), voter.lost, voter.host, voter.port, voter.moved)
        for voter in answer.voters
    ]
    return ClusterDescription(
        answer.cluster_id, controller, answer.controller_epoch, brokers, voters, answer.level or 1
    )


def broker_loads(answer: metadata_pb2.GetMetadataResponse) -> list[BrokerLoad]:
    """The brokers with their replicas and leaders, from an answer that has all topics."""
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    replicas = Counter(broker_id for partition in partitions for broker_id in partition.replicas)
    leaders = Counter(partition.leader_id for partition in partitions)
    brokers = describe_cluster(answer).brokers
    return [BrokerLoad(broker, replicas[broker.id], leaders[broker.id]) for broker in brokers]


def describe_topic(
    topic: metadata_pb2.TopicMetadata,
    ends: Mapping[TopicPartition, metadata_pb2.ListOffsetsResult],
    errors: Mapping[TopicPartition, MinilogError] = MappingProxyType({}),
) -> TopicDescription:
    """The description of a topic. `ends` has the leaders' answers, and `errors` the reasons for missing answers."""
    partitions = [
        _describe_partition(partition, ends.get(where), errors.get(where))
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition)
        for where in (TopicPartition(topic.name, partition.partition),)
    ]
    topic_id = str(uuid.UUID(bytes=topic.topic_id)) if len(topic.topic_id) == 16 else topic.topic_id.hex()
    schemas = _told_schemas(topic) if topic.schemas else None
    return TopicDescription(topic.name, topic_id, topic.internal, dict(topic.configs), partitions, schemas)


def _told_schemas(topic: metadata_pb2.TopicMetadata) -> TopicSchemas | UnsupportedVersion | None:
    from minilog.typed.schema.topic_schemas import told_schemas  # It loads Arrow: where a topic has columns.

    return told_schemas(topic)


def _describe_partition(
    partition: metadata_pb2.PartitionMetadata,
    ends: metadata_pb2.ListOffsetsResult | None,
    error: MinilogError | None,
) -> PartitionDescription:
    return PartitionDescription(
        partition=partition.partition,
        leader=partition.leader_id if partition.leader_id >= 0 else None,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=list(partition.replicas),
        isr=list(partition.in_sync_replicas),
        eligible_leaders=list(partition.eligible_leaders),
        log_start_offset=ends.log_start_offset if ends is not None else None,
        last_stable_offset=ends.last_stable_offset if ends is not None else None,
        high_watermark=ends.high_watermark if ends is not None else None,
        log_end_offset=ends.log_end_offset if ends is not None else None,
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
        throttle_bytes_per_second=partition.throttle_bytes_per_second or None,
        sizes=[] if ends is None else [OffsetAtSize(size.offset, size.size_bytes) for size in ends.sizes],
        replica_ends={} if ends is None else _replica_ends(partition, ends),
        clean_to=ends.clean_to if ends is not None else None,
        dirty_bytes=ends.dirty_bytes if ends is not None and ends.HasField("dirty_bytes") else None,
        why_no_offsets=str(error) if ends is None and error is not None else None,
        size_bytes=ends.size_bytes if ends is not None and ends.replicas else None,
    )


def _replica_ends(
    partition: metadata_pb2.PartitionMetadata, ends: metadata_pb2.ListOffsetsResult
) -> dict[int, int | None]:
    """The ends in the order of the replicas. Empty without such a question, or if an older leader does not answer
    it."""
    replica_ends = {
        replica.broker_id: replica.log_end_offset for replica in ends.replicas if replica.HasField("log_end_offset")
    }
    return {broker_id: replica_ends.get(broker_id) for broker_id in partition.replicas} if ends.replicas else {}


def reassignment_messages(
    wanted: Mapping[TopicPartition, Sequence[int] | None], throttle_bytes_per_second: int | None
) -> list[admin_pb2.PartitionReassignment]:
    """The message. Raises InvalidArgument for a target without replicas: None cancels."""
    for partition, replicas in wanted.items():
        if replicas is not None and not replicas:
            raise InvalidArgument(
                f"partition {partition.partition} of {partition.topic} cannot have no replicas: None cancels"
            )
    return [
        admin_pb2.PartitionReassignment(
            name=partition.topic,
            partition=partition.partition,
            replicas=replicas or (),
            throttle_bytes_per_second=throttle_bytes_per_second or 0,
        )
        for partition, replicas in wanted.items()
    ]


def describe_reassignments(
    answer: metadata_pb2.GetMetadataResponse,
) -> dict[TopicPartition, PartitionReassignment]:
    """The reassignments in progress in the topics of an answer."""
    return {
        TopicPartition(topic.name, partition.partition): PartitionReassignment(
            list(partition.replicas),
            list(partition.adding_replicas),
            list(partition.removing_replicas),
            partition.throttle_bytes_per_second or None,
        )
        for topic in answer.topics
        for partition in topic.partitions
        if partition.adding_replicas or partition.removing_replicas
    }
