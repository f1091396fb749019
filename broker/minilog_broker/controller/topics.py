"""Topics: the controller creates, alters and deletes them. Each topic of a request is one decision, checked as a whole
before the controller writes any of it.

The records of a new topic are: topic, topic_schema where it has one, topic_config, partition.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass

from minilog.admin.messages import CREATION_ID_BYTES
from minilog.errors import (
    CoordinatorLoadInProgress,
    InvalidArgument,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from minilog.net.coordinators_of import INTERNAL_PARTITIONS, INTERNAL_TOPIC_NAMES
from minilog.partition_key import PartitionKey
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.v1 import admin_pb2, records_pb2
from minilog_broker.controller.compaction_settings import check_compaction, defaults_of_level
from minilog_broker.controller.election import reconsider
from minilog_broker.controller.image import TopicImage
from minilog_broker.controller.internal_topics import (
    internal_replication_factor,
    internal_topic_config,
)
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.placement import Site, place_replicas
from minilog_broker.controller.topic_config import check_config_name, check_topic_config
from minilog_broker.controller.topic_records import record_of
from minilog_broker.controller.topic_schemas import evolved_schemas, schema_of_new, schema_record, schema_records
from minilog_broker.levels import check_internal_topic
from minilog_broker.printable import shortened
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.topic_names import check_topic_name

MAX_PARTITIONS = 10_000  # of one topic: its records are one batch, well below the limit of a batch
TOPIC_ID_BYTES = 16
_RANDOM_BYTES = 8  # of a topic id; where the call has a creation id, the other bytes come from it
_AUTO_REPLICATION_FACTOR = 3


def _mark(random_part: bytes, request: admin_pb2.NewTopic) -> bytes:
    whole = hashlib.sha256(b"minilog topic" + random_part + request.creation_id + request.name.encode()).digest()
    return whole[: TOPIC_ID_BYTES - _RANDOM_BYTES]


def is_made_by(topic_id: bytes, request: admin_pb2.NewTopic) -> bool:
    """Whether an earlier attempt of this call has made the topic. Its id shows that, after any failover.

    No id is made twice, whatever the call has. So a topic that was deleted meanwhile never counts as the new one.
    """
    random_part, mark = topic_id[:_RANDOM_BYTES], topic_id[_RANDOM_BYTES:]
    return len(request.creation_id) == CREATION_ID_BYTES and mark == _mark(random_part, request)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A topic that may be created."""

    topic_id: bytes
    placed: list[tuple[int, ...]]
    configs: dict[str, str]
    schema: TopicSchema | None


@dataclass(frozen=True, slots=True)
class NewTopics:
    """The values for new topics. `num_partitions`, `replication_factor` (None: min(3, brokers)): of requests without.

    `defaults`: settings that the topic keeps for good, since another controller may have other ones."""

    num_partitions: int
    replication_factor: int | None
    defaults: Mapping[str, str]


class Topics:
    """The controller's part that creates, alters and deletes topics. `new_topics` may be replaced."""

    def __init__(self, ledger: Ledger, rng: random.Random, new_topics: NewTopics) -> None:
        self._ledger = ledger
        self._random = rng
        self.new_topics = new_topics

    # -- create

    def create(self, request: admin_pb2.NewTopic, *, validate_only: bool) -> bytes:
        """The new topic's id, also where an earlier attempt of this call has made it. Raises before any write."""
        made = self._ledger.image.topic_ids.get(request.name)
        if made is not None and not validate_only and is_made_by(made, request):
            return made
        plan = self._plan(request)
        if validate_only:
            return b""
        record = records_pb2.TopicRecord(name=request.name, topic_id=plan.topic_id, defaults=self._defaults())
        self._ledger.write(records_pb2.MetadataRecord(topic=record))
        self._write_schema(plan.topic_id, plan.schema)
        self._write_configs(plan.topic_id, plan.configs)
        self._write_partitions(plan.topic_id, request.name, 0, plan.placed)
        return plan.topic_id

    def create_internal(self, name: str) -> bytes:
        """The id of an internal topic, which is created where there is none.

        Raises InvalidTopic for another name, LevelNotReached for a topic of a later level than the cluster's,
        CoordinatorLoadInProgress while too few brokers can take replicas."""
        if name not in INTERNAL_TOPIC_NAMES:
            raise InvalidTopic(f"{name} is not an internal topic: those are {', '.join(INTERNAL_TOPIC_NAMES)}")
        image = self._ledger.image
        if name in image.topic_ids:
            return image.topic_ids[name]
        check_internal_topic(image.level, name)
        factor = internal_replication_factor(len(image.voters))
        try:
            placed = self._place(name, INTERNAL_PARTITIONS, factor)
        except InvalidReplicationFactor as error:
            raise CoordinatorLoadInProgress(f"{name} cannot be created before {factor} brokers run: {error}") from None
        topic_id = self._new_topic_id()
        record = records_pb2.TopicRecord(name=name, topic_id=topic_id, internal=True)
        self._ledger.write(records_pb2.MetadataRecord(topic=record))
        self._write_configs(topic_id, internal_topic_config(factor))
        self._write_partitions(topic_id, name, 0, placed)
        return topic_id

    def _defaults(self) -> list[records_pb2.TopicDefault]:
        named = defaults_of_level(self.new_topics.defaults, self._ledger.image.level)
        return [records_pb2.TopicDefault(name=name, value=value) for name, value in sorted(named.items())]

    def _plan(self, request: admin_pb2.NewTopic) -> _Plan:
        check_topic_name(request.name)
        if len(request.creation_id) not in (0, CREATION_ID_BYTES):
            raise InvalidArgument(
                f"the creation_id of topic {request.name} has {len(request.creation_id)} bytes: give "
                f"{CREATION_ID_BYTES}, or none"
            )
        if request.name in self._ledger.image.topic_ids:
            raise TopicAlreadyExists(f"topic {request.name} exists: choose another name, or delete it first")
        partitions = request.num_partitions if request.HasField("num_partitions") else self.new_topics.num_partitions
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidPartitions(
                f"topic {request.name} cannot have {partitions} partitions: give 1 to {MAX_PARTITIONS}"
            )
        wanted = request.replication_factor if request.HasField("replication_factor") else None
        factor = self._default_factor() if wanted is None else wanted
        configs = dict(request.configs)
        if factor >= 1:  # else the error is about the factor itself
            check_topic_config(configs, factor)
        schema = schema_of_new(request, self._ledger.image)
        made_with = {**self.new_topics.defaults, **configs}
        check_compaction(request.name, configs, made_with, schema, self._ledger.image.level)
        placed = self._place(request.name, partitions, factor)
        return _Plan(self._new_topic_id(request), placed, configs, schema)

    def _default_factor(self) -> int:
        if self.new_topics.replication_factor is not None:
            return self.new_topics.replication_factor
        return max(
            1, min(_AUTO_REPLICATION_FACTOR, len(self._ledger.image.brokers.keys() - self._ledger.image.cordons.keys()))
        )

    def _place(self, name: str, partitions: int, factor: int) -> list[tuple[int, ...]]:
        image = self._ledger.image
        running = [broker for broker in image.brokers.values() if not broker.fenced and not broker.stopping]
        usable = [broker for broker in running if broker.broker_id not in image.cordons]
        sites = {broker.broker_id: Site(broker.failure_domain, broker.host_label) for broker in usable}
        if not 1 <= factor <= len(sites):
            available = ", ".join(str(broker_id) for broker_id in sorted(sites)) or "none"
            kept_out = sorted({broker.broker_id for broker in running} - sites.keys())
            cordoned = f". The cordoned brokers are {kept_out}" if kept_out else ""
            raise InvalidReplicationFactor(
                f"topic {name} cannot have replication factor {factor}: it is at least 1 and at most the number of "
                f"brokers available, which are: {available}{cordoned}"
            )
        return place_replicas(sites, partitions, factor, self._random)

    def _new_topic_id(self, request: admin_pb2.NewTopic | None = None) -> bytes:
        """A random id. The top byte is never 0, which keeps it apart from reserved ids."""
        while True:
            topic_id = self._random.randbytes(TOPIC_ID_BYTES)
            if request is not None and request.creation_id:
                topic_id = topic_id[:_RANDOM_BYTES] + _mark(topic_id[:_RANDOM_BYTES], request)
            if topic_id[0] and topic_id not in self._ledger.image.topics:
                return topic_id

    # -- alter

    def alter(self, request: admin_pb2.TopicAlteration) -> bytes:
        """Change a topic, and give its id. Partitions are only added. Settings are set or unset. A schema gets its next
        version."""
        topic = self._writable_topic(request.name)
        factor = len(self._ledger.image.partitions[PartitionKey(topic.topic_id, 0)].target_replicas)
        configs = self._altered_configs(topic, request, factor)
        former_schemas = self._ledger.image.schemas.get(topic.topic_id)
        schemas = evolved_schemas(request, topic, self._ledger.image)
        placed: list[tuple[int, ...]] = []
        if request.HasField("num_partitions"):
            placed = self._grown(topic, request.num_partitions, factor)
        former = self._ledger.image.topic_config(topic.topic_id)
        changed = {name: value for name, value in configs.items() if former.get(name) != value}
        for record in () if schemas is None else schema_records(topic.topic_id, former_schemas, schemas):
            self._ledger.write(record)
        self._write_configs(topic.topic_id, changed)
        if changed:
            self._ledger.write_outcomes(self._ledger.image.partitions_of(topic.topic_id), reconsider)
        self._write_partitions(topic.topic_id, topic.name, topic.partition_count, placed)
        return topic.topic_id

    def _altered_configs(
        self, topic: TopicImage, request: admin_pb2.TopicAlteration, factor: int
    ) -> dict[str, str | None]:
        set_configs, unset = dict(request.set_configs), list(request.unset_configs)
        for name in unset:
            check_config_name(name)
            if name in set_configs:
                raise InvalidArgument(
                    f"the request sets and unsets {name} of topic {topic.name}: choose one of the two"
                )
        check_topic_config(set_configs, factor)
        self._check_altered_compaction(topic, set_configs, unset)
        return {**set_configs, **dict.fromkeys(unset)}

    def _check_altered_compaction(self, topic: TopicImage, set_configs: dict[str, str], unset: list[str]) -> None:
        image = self._ledger.image
        kept = {name: value for name, value in image.topic_config(topic.topic_id).items() if name not in unset}
        schemas = image.schemas.get(topic.topic_id)
        resulting = {**dict(topic.defaults), **kept, **set_configs}
        check_compaction(topic.name, set_configs, resulting, schemas.latest if schemas else None, image.level)

    def _grown(self, topic: TopicImage, partitions: int, factor: int) -> list[tuple[int, ...]]:
        if not topic.partition_count <= partitions <= MAX_PARTITIONS:
            raise InvalidPartitions(
                f"topic {topic.name} has {topic.partition_count} partitions and cannot have {partitions}: "
                f"the number only grows, up to {MAX_PARTITIONS}"
            )
        added = partitions - topic.partition_count
        return self._place(topic.name, added, factor) if added else []

    # -- delete

    def delete(self, request: admin_pb2.TopicDeletion) -> bytes:
        """Delete a topic, and give its id."""
        name = request.name
        if not name and request.topic_id:
            topic_of_id = self._ledger.image.topics.get(request.topic_id)
            name = topic_of_id.name if topic_of_id is not None else ""
        if not name:
            raise UnknownTopicId(f"no topic has the id {shortened(request.topic_id.hex())}: it may be deleted already")
        topic = self._writable_topic(name)
        if request.topic_id and request.topic_id != topic.topic_id:
            raise UnknownTopicId(
                f"topic {name} has the id {topic.topic_id.hex()}, not {request.topic_id.hex()}: it was created again"
            )
        deletion = records_pb2.TopicDeletionRecord(topic_id=topic.topic_id)
        self._ledger.write(records_pb2.MetadataRecord(topic_deletion=deletion))
        return topic.topic_id

    # -- records

    def _writable_topic(self, name: str) -> TopicImage:
        topic = self._ledger.image.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {shortened(name)} does not exist: see `minilog topic list`")
        if topic.internal:
            raise InvalidTopic(f"topic {name} belongs to the brokers, and users cannot change it")
        return topic

    def _write_schema(self, topic_id: bytes, schema: TopicSchema | None) -> None:
        if schema is not None:
            self._ledger.write(schema_record(topic_id, schema))

    def _write_configs(self, topic_id: bytes, configs: Mapping[str, str | None]) -> None:
        for name, value in sorted(configs.items()):
            record = records_pb2.TopicConfigRecord(topic_id=topic_id, name=name, value=value)
            self._ledger.write(records_pb2.MetadataRecord(topic_config=record))

    def _write_partitions(self, topic_id: bytes, name: str, first: int, placed: list[tuple[int, ...]]) -> None:
        for partition, replicas in enumerate(placed, first):
            state = PartitionState(
                key=PartitionKey(topic_id, partition),
                topic_name=name,
                replicas=replicas,
                in_sync_replicas=replicas,
                eligible_leaders=(),
                damaged_replicas=(),
                leader_id=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                leader_broker_epoch=self._ledger.image.brokers[replicas[0]].broker_epoch,
            )
            self._ledger.write(record_of(state))
