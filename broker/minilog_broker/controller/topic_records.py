"""The records of topics: their names, partitions, configurations and schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minilog.errors import CorruptMessage, InvalidSchema
from minilog.partition_key import PartitionKey
from minilog.typed.schema.topic_schemas import TopicSchemas, schemas_to_wire
from minilog.typed.schema.wire import schema_from_wire
from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage, TopicImage
from minilog_broker.replication.partition_state import PartitionState

Records = Iterator[records_pb2.MetadataRecord]


def apply_topic(image: MetadataImage, offset: int, record: records_pb2.TopicRecord) -> None:
    defaults = tuple((default.name, default.value) for default in record.defaults)
    image.topics[record.topic_id] = TopicImage(record.name, record.topic_id, record.internal, 0, defaults)
    image.topic_ids[record.name] = record.topic_id
    image.forget_effective(record.topic_id)
    image.changes.topics.add(record.topic_id)


def topics_of(image: MetadataImage) -> Records:
    for topic_id, topic in sorted(image.topics.items()):
        defaults = [records_pb2.TopicDefault(name=name, value=value) for name, value in topic.defaults]
        yield records_pb2.MetadataRecord(
            topic=records_pb2.TopicRecord(
                name=topic.name, topic_id=topic_id, internal=topic.internal, defaults=defaults
            )
        )


def apply_partition(image: MetadataImage, offset: int, record: records_pb2.PartitionRecord) -> None:
    key = PartitionKey(record.topic_id, record.partition)
    topic = image.topics[key.topic_id]
    if record.partition >= topic.partition_count:
        image.topics[key.topic_id] = replace(topic, partition_count=record.partition + 1)
        image.changes.topics.add(key.topic_id)
    if (former := image.partitions.get(key)) is not None:
        for broker_id in set(former.replicas).difference(record.replicas):
            image.partitions_of_broker[broker_id].discard(key)
    image.partitions[key] = state_of(record, topic.name)
    for broker_id in record.replicas:
        image.partitions_of_broker.setdefault(broker_id, set()).add(key)
    image.changes.partitions.add(key)


def partitions_of(image: MetadataImage) -> Records:
    for _, topic in sorted(image.topics.items()):
        for key in topic.partition_keys():
            yield record_of(image.partitions[key])


def apply_config(image: MetadataImage, offset: int, record: records_pb2.TopicConfigRecord) -> None:
    """Apply one setting. A record without a value unsets it."""
    values = dict(image.configs.get(record.topic_id, {}))
    if record.HasField("value"):
        values[record.name] = record.value
    else:
        values.pop(record.name, None)
    if values:
        image.configs[record.topic_id] = values
    else:
        image.configs.pop(record.topic_id, None)
    image.configured(record.topic_id)


def configs_of(image: MetadataImage) -> Records:
    for topic_id, values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            record = records_pb2.TopicConfigRecord(topic_id=topic_id, name=name, value=value)
            yield records_pb2.MetadataRecord(topic_config=record)


def apply_schema(image: MetadataImage, offset: int, record: records_pb2.TopicSchemaRecord) -> None:
    """Add a version of a schema. Raises CorruptMessage where it cannot follow the former one."""
    topic = image.topics[record.topic_id]
    former = image.schemas.get(record.topic_id, TopicSchemas(()))
    try:
        image.schemas[record.topic_id] = former.followed_by(schema_from_wire(record.schema))
    except InvalidSchema as error:
        raise CorruptMessage(f"the metadata log has an invalid schema of topic {topic.name}: {error}") from error
    image.configured(record.topic_id)


def schemas_of(image: MetadataImage) -> Records:
    for topic_id, schemas in sorted(image.schemas.items()):
        for schema in schemas_to_wire(schemas):
            record = records_pb2.TopicSchemaRecord(topic_id=topic_id, schema=schema)
            yield records_pb2.MetadataRecord(topic_schema=record)


def apply_schema_state(image: MetadataImage, offset: int, record: records_pb2.TopicSchemaStateRecord) -> None:
    """Say which version is the latest. Raises CorruptMessage where there is none of that number."""
    schemas = image.schemas[record.topic_id]
    try:
        image.schemas[record.topic_id] = schemas.in_state(record.latest_version, record.withdrawn)
    except InvalidSchema as error:
        raise CorruptMessage(f"the metadata log has an invalid state of a schema: {error}") from error
    image.configured(record.topic_id)


def schema_state_record(topic_id: bytes, schemas: TopicSchemas) -> records_pb2.MetadataRecord:
    """The record that follows those of the versions."""
    return records_pb2.MetadataRecord(
        topic_schema_state=records_pb2.TopicSchemaStateRecord(
            topic_id=topic_id, latest_version=schemas.latest.version, withdrawn=sorted(schemas.withdrawn)
        )
    )


def schema_states_of(image: MetadataImage) -> Records:
    for topic_id, schemas in sorted(image.schemas.items()):
        if schemas.latest_version or schemas.withdrawn:
            yield schema_state_record(topic_id, schemas)


def apply_deletion(image: MetadataImage, offset: int, record: records_pb2.TopicDeletionRecord) -> None:
    """Remove a topic with its partitions, its configuration and its schemas."""
    topic_id = record.topic_id
    topic = image.topics.pop(topic_id)
    image.topic_ids.pop(topic.name, None)
    image.configs.pop(topic_id, None)
    image.schemas.pop(topic_id, None)
    image.forget_effective(topic_id)
    for key in topic.partition_keys():
        for broker_id in image.partitions.pop(key).replicas:
            image.partitions_of_broker[broker_id].discard(key)
        image.changes.partitions.discard(key)
        image.changes.removed.add(key)
    image.changes.topics.add(topic_id)


def state_of(record: records_pb2.PartitionRecord, topic_name: str) -> PartitionState:
    return PartitionState(
        key=PartitionKey(record.topic_id, record.partition),
        topic_name=topic_name,
        replicas=tuple(record.replicas),
        in_sync_replicas=tuple(record.in_sync_replicas),
        eligible_leaders=tuple(record.eligible_leaders),
        damaged_replicas=tuple(record.damaged_replicas),
        leader_id=record.leader_id,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        leader_broker_epoch=record.leader_broker_epoch,
        adding_replicas=tuple(record.adding_replicas),
        removing_replicas=tuple(record.removing_replicas),
        throttle_bytes_per_second=record.throttle_bytes_per_second,
    )


def record_of(state: PartitionState) -> records_pb2.MetadataRecord:
    return records_pb2.MetadataRecord(
        partition=records_pb2.PartitionRecord(
            topic_id=state.key.topic_id,
            partition=state.key.partition,
            replicas=state.replicas,
            in_sync_replicas=state.in_sync_replicas,
            eligible_leaders=state.eligible_leaders,
            damaged_replicas=state.damaged_replicas,
            leader_id=state.leader_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            leader_broker_epoch=state.leader_broker_epoch,
            adding_replicas=state.adding_replicas,
            removing_replicas=state.removing_replicas,
            throttle_bytes_per_second=state.throttle_bytes_per_second,
        )
    )
