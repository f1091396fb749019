"""The metadata image: what a prefix of the metadata log says of the cluster (V13). Every broker has one.

    record                    what it changes
    ClusterRecord             cluster_id, voters
    BrokerRegistrationRecord  a new life of a broker, fenced; its broker epoch is the record's offset
    BrokerStateRecord         fenced, stopping; of the current life only
    TopicRecord               a topic, by id and by name
    PartitionRecord           the whole state of one partition
    TopicConfigRecord         one key of a topic, set or unset
    TopicSchemaRecord         one more version of a topic's schema
    TopicDeletionRecord       a topic, its partitions, its configuration and its schemas are gone
    ProducerIdBlockRecord     the first producer id that nobody was given
    VoterReplacedRecord       a voter goes on with another directory
    ClusterLevelRecord        what may be written to the logs from here on
    UserScramCredentialRecord what a user proves himself by, under one mechanism; set or removed
    AccessRuleRecord          a rule is there, or is gone
    QuotaRecord               one quota of a user or of all others, set or removed
    DelegationTokenRecord     a delegation token as it is from here on, or is gone

A record of any other kind is of a later version: it never comes so far (quorum/records.py).

`apply` notes what changed; `take_changes` hands that over, so that nobody walks the whole image for one record.
`become` takes over the content of a snapshot (controller.snapshot), and notes whatever may be another than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from minilog.config import Address
from minilog.errors import CorruptMessage, InvalidSchema
from minilog.partition_key import PartitionKey
from minilog.security.access_rules import AccessRule
from minilog.security.scram import ScramCredential, ScramMechanism
from minilog.typed.topic_schemas import TopicSchemas
from minilog.typed.wire import schema_from_wire
from minilog.v1 import records_pb2
from minilog.versions import FIRST, VersionRange, range_from_wire
from minilog_broker.controller.security_records import apply_credential, apply_quota, apply_rule, apply_token
from minilog_broker.controller.topic_config import effective_topic_config, shown_topic_config
from minilog_broker.levels import FIRST_LEVEL
from minilog_broker.quorum.voters import Voter, replaced, voters_of
from minilog_broker.replication.partition_state import BrokerIncarnation, PartitionState, TopicConfig
from minilog_broker.security.delegation_token import DelegationToken
from minilog_broker.security.producer_proof import ProducerKey


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The current life of one broker. `clean_stop_broker_epoch`: the mark that it came with, until it is unfenced."""

    broker_id: int
    broker_epoch: int
    directory_id: bytes
    host: str
    port: int
    rack: str | None
    failure_domain: str
    """What replicas are spread over first: the rack, else the host label, else the host of the address."""
    kernel_boot_id: str
    levels: VersionRange = FIRST
    version: str = ""
    fenced: bool = True
    stopping: bool = False
    clean_stop_broker_epoch: int | None = None
    own_peer_address: Address | None = None
    """Where other brokers reach it, if they have a listener of their own."""
    host_label: str | None = None
    """The host that it runs on, which others may share; None: nothing is said of it."""
    listeners: tuple[tuple[str, Address], ...] = ()
    """Where clients reach it that come by a listener with a name; `host` is empty where all have one."""

    def address_on(self, listener: str) -> Address | None:
        """Where clients reach it that come by this listener, the empty one has no name; None: they cannot."""
        if not listener:
            return (self.host, self.port) if self.host else None
        return dict(self.listeners).get(listener)

    @property
    def peer_address(self) -> Address:
        """Where other brokers reach it."""
        return self.own_peer_address or (self.host, self.port)

    @property
    def incarnation(self) -> BrokerIncarnation:
        return BrokerIncarnation(self.broker_id, self.broker_epoch, self.host, self.port, self.fenced, self.stopping)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic; `partition_count` partitions are numbered from 0. `defaults`: (name, value) of what it was made with."""

    name: str
    topic_id: bytes
    internal: bool
    partition_count: int = 0
    defaults: tuple[tuple[str, str], ...] = ()

    def partition_keys(self) -> list[PartitionKey]:
        return [PartitionKey(self.topic_id, partition) for partition in range(self.partition_count)]


@dataclass(slots=True)
class ImageChanges:
    """What changed since the last time it was asked. A deleted topic's partitions are in `removed` only; `configs` has
    the topics whose effective configuration may be another, which the schemas are part of. `security`: users, access
    rules, quotas or delegation tokens may be others."""

    brokers: set[int] = field(default_factory=set)
    partitions: set[PartitionKey] = field(default_factory=set)
    removed: set[PartitionKey] = field(default_factory=set)
    topics: set[bytes] = field(default_factory=set)
    configs: set[bytes] = field(default_factory=set)
    security: bool = False


class MetadataImage:
    """See the module's text. Change it by `apply` only; `end_offset` is the end of what was applied."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.level = FIRST_LEVEL
        self.voters: tuple[Voter, ...] = ()
        self.brokers: dict[int, BrokerRegistration] = {}
        self.topics: dict[bytes, TopicImage] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.partitions: dict[PartitionKey, PartitionState] = {}
        self.configs: dict[bytes, dict[str, str]] = {}
        self.schemas: dict[bytes, TopicSchemas] = {}
        self.partitions_of_broker: dict[int, set[PartitionKey]] = {}
        self.next_producer_id = 0
        self.producer_key: ProducerKey | None = None  # from level 4 on, with the first block of ids
        # A user has a credential, an entity a quota; these inner mappings are replaced, never changed.
        self.users: dict[str, Mapping[ScramMechanism, ScramCredential]] = {}
        self.access_rules: set[AccessRule] = set()
        self.quotas: dict[str, Mapping[str, int]] = {}
        self.tokens: dict[str, DelegationToken] = {}
        self.end_offset = 0
        self._changes = ImageChanges()
        self._effective: dict[bytes, TopicConfig] = {}  # what was asked for, until it changes

    def __eq__(self, other: object) -> bool:
        """Equal content: what changed lately and how far it was read are not part of it."""
        return isinstance(other, MetadataImage) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def _content(self) -> tuple[object, ...]:
        configs = {topic_id: values for topic_id, values in self.configs.items() if values}
        index = {broker_id: keys for broker_id, keys in self.partitions_of_broker.items() if keys}
        names = (self.cluster_id, self.level, self.voters, self.next_producer_id, self.producer_key)
        return (
            *names,
            *self._security(),
            self.brokers,
            self.topics,
            self.topic_ids,
            self.partitions,
            configs,
            self.schemas,
            index,
        )

    def _security(self) -> tuple[object, ...]:
        return self.users, self.access_rules, self.quotas, self.tokens

    def copy(self) -> MetadataImage:
        """An independent image of the same content, without changes to hand over."""
        twin = MetadataImage()
        twin.cluster_id, twin.level, twin.voters = self.cluster_id, self.level, self.voters
        twin.brokers, twin.topics = dict(self.brokers), dict(self.topics)
        twin.topic_ids, twin.partitions = dict(self.topic_ids), dict(self.partitions)
        twin.configs = {topic_id: dict(values) for topic_id, values in self.configs.items()}
        twin.schemas = dict(self.schemas)
        twin.partitions_of_broker = {broker_id: set(keys) for broker_id, keys in self.partitions_of_broker.items()}
        twin.users, twin.access_rules, twin.quotas = dict(self.users), set(self.access_rules), dict(self.quotas)
        twin.tokens = dict(self.tokens)
        twin.producer_key = self.producer_key
        twin.next_producer_id, twin.end_offset = self.next_producer_id, self.end_offset
        return twin

    def become(self, other: MetadataImage) -> None:
        """Take over the content of `other`, which nobody uses any more; all that either has counts as changed."""
        changes = self._changes
        changes.brokers |= self.brokers.keys() | other.brokers.keys()
        changes.topics |= self.topics.keys() | other.topics.keys()
        configured = self.configs.keys() | self.schemas.keys() | other.configs.keys() | other.schemas.keys()
        changes.configs |= configured & other.topics.keys()
        changes.removed |= self.partitions.keys() - other.partitions.keys()
        changes.partitions = set(other.partitions)
        changes.security |= self._security() != other._security()
        self.cluster_id, self.level, self.voters = other.cluster_id, other.level, other.voters
        self.brokers, self.topics, self.topic_ids = other.brokers, other.topics, other.topic_ids
        self.partitions, self.configs, self.schemas = other.partitions, other.configs, other.schemas
        self.partitions_of_broker = other.partitions_of_broker
        self.users, self.access_rules, self.quotas = other.users, other.access_rules, other.quotas
        self.tokens = other.tokens
        self.producer_key = other.producer_key
        self.next_producer_id, self.end_offset = other.next_producer_id, other.end_offset
        self._effective.clear()

    # -- questions

    def topic(self, name: str) -> TopicImage | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partitions_of(self, topic_id: bytes) -> list[PartitionState]:
        return [self.partitions[key] for key in self.topics[topic_id].partition_keys()]

    def topic_config(self, topic_id: bytes) -> dict[str, str]:
        """What was set explicitly."""
        return dict(self.configs.get(topic_id, {}))

    def effective_config(self, topic_id: bytes) -> TopicConfig:
        """What the topic has, on every broker that has replayed so much: topic_config.py; its schemas beside it."""
        config = self._effective.get(topic_id)
        if config is None:
            values = {**dict(self.topics[topic_id].defaults), **self.configs.get(topic_id, {})}
            config = replace(effective_topic_config(values), schemas=self.schemas.get(topic_id))
            self._effective[topic_id] = config
        return config

    def shown_config(self, topic_id: bytes) -> dict[str, str]:
        """What of that is told to people and programs."""
        return shown_topic_config(dict(self.topics[topic_id].defaults), self.topic_config(topic_id))

    def replicas_on(self, broker_id: int) -> list[PartitionState]:
        """The partitions that have a replica on this broker, in a fixed order."""
        return [self.partitions[key] for key in sorted(self.partitions_of_broker.get(broker_id, ()))]

    def incarnations(self) -> dict[int, BrokerIncarnation]:
        return {broker.broker_id: broker.incarnation for broker in self.brokers.values()}

    def take_changes(self) -> ImageChanges:
        changes, self._changes = self._changes, ImageChanges()
        return changes

    # -- replay

    def apply_batch(self, base_offset: int, end_offset: int, records: Iterable[records_pb2.MetadataRecord]) -> None:
        """Apply one decision; a control batch has no records and moves `end_offset` only."""
        for index, record in enumerate(records):
            self.apply(base_offset + index, record)
        self.end_offset = end_offset

    def apply(self, offset: int, record: records_pb2.MetadataRecord) -> None:
        """Raises KeyError and CorruptMessage for what no controller wrote."""
        match record.WhichOneof("record"):
            case "cluster":
                self._apply_cluster(record.cluster)
            case "broker_registration":
                self._apply_registration(offset, record.broker_registration)
            case "broker_state":
                self._apply_broker_state(record.broker_state)
            case "topic":
                self._apply_topic(record.topic)
            case "partition":
                self._apply_partition(record.partition)
            case "topic_config":
                self._apply_config(record.topic_config)
            case "topic_schema":
                self._apply_schema(record.topic_schema)
            case "topic_deletion":
                self._apply_deletion(record.topic_deletion.topic_id)
            case "producer_id_block":
                self._apply_block(record.producer_id_block)
            case "voter_replaced":
                self.voters = replaced(self.voters, record.voter_replaced)
            case "cluster_level":
                self.level = record.cluster_level.level
            case "user_scram_credential" | "access_rule" | "quota" | "delegation_token":
                self._apply_security(record)
            case other:
                raise AssertionError(f"the image does not know the record {other}")
        self.end_offset = offset + 1

    def _apply_block(self, record: records_pb2.ProducerIdBlockRecord) -> None:
        self.next_producer_id = record.next_producer_id
        if record.proof_key:
            self.producer_key = ProducerKey(record.proof_key, record.first_proven_id)

    def _apply_cluster(self, record: records_pb2.ClusterRecord) -> None:
        self.cluster_id = record.cluster_id
        self.voters = voters_of(record)

    def _apply_registration(self, offset: int, record: records_pb2.BrokerRegistrationRecord) -> None:
        self.brokers[record.broker_id] = BrokerRegistration(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch if record.HasField("broker_epoch") else offset,
            directory_id=record.directory_id,
            host=record.host,
            port=record.port,
            rack=record.rack if record.HasField("rack") else None,
            failure_domain=record.failure_domain,
            kernel_boot_id=record.kernel_boot_id,
            levels=range_from_wire(record.levels),
            version=record.version,
            clean_stop_broker_epoch=(
                record.clean_stop_broker_epoch if record.HasField("clean_stop_broker_epoch") else None
            ),
            own_peer_address=(record.peer_host, record.peer_port) if record.HasField("peer_host") else None,
            host_label=record.host_label if record.HasField("host_label") else None,
            listeners=tuple((each.name, (each.host, each.port)) for each in record.listeners),
        )
        self._changes.brokers.add(record.broker_id)

    def _apply_broker_state(self, record: records_pb2.BrokerStateRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is not None and broker.broker_epoch == record.broker_epoch:
            mark = broker.clean_stop_broker_epoch if record.fenced else None
            self.brokers[record.broker_id] = replace(
                broker, fenced=record.fenced, stopping=record.stopping, clean_stop_broker_epoch=mark
            )
            self._changes.brokers.add(record.broker_id)

    def _apply_topic(self, record: records_pb2.TopicRecord) -> None:
        defaults = tuple((each.name, each.value) for each in record.defaults)
        self.topics[record.topic_id] = TopicImage(record.name, record.topic_id, record.internal, 0, defaults)
        self.topic_ids[record.name] = record.topic_id
        self._effective.pop(record.topic_id, None)
        self._changes.topics.add(record.topic_id)

    def _apply_partition(self, record: records_pb2.PartitionRecord) -> None:
        key = PartitionKey(record.topic_id, record.partition)
        topic = self.topics[key.topic_id]
        if record.partition >= topic.partition_count:
            self.topics[key.topic_id] = TopicImage(
                topic.name, topic.topic_id, topic.internal, record.partition + 1, topic.defaults
            )
            self._changes.topics.add(key.topic_id)
        if (former := self.partitions.get(key)) is not None:
            for broker_id in set(former.replicas).difference(record.replicas):
                self.partitions_of_broker[broker_id].discard(key)
        self.partitions[key] = state_of(record, topic.name)
        for broker_id in record.replicas:
            self.partitions_of_broker.setdefault(broker_id, set()).add(key)
        self._changes.partitions.add(key)

    def _apply_config(self, record: records_pb2.TopicConfigRecord) -> None:
        values = self.configs.setdefault(record.topic_id, {})
        if record.HasField("value"):
            values[record.name] = record.value
        else:
            values.pop(record.name, None)
        self._effective.pop(record.topic_id, None)
        self._changes.configs.add(record.topic_id)

    def _apply_schema(self, record: records_pb2.TopicSchemaRecord) -> None:
        topic = self.topics[record.topic_id]
        former = self.schemas.get(record.topic_id, TopicSchemas(()))
        try:
            self.schemas[record.topic_id] = former.followed_by(schema_from_wire(record.schema))
        except InvalidSchema as error:
            raise CorruptMessage(
                f"the metadata log has a schema of topic {topic.name} that cannot be: {error}"
            ) from error
        self._effective.pop(record.topic_id, None)
        self._changes.configs.add(record.topic_id)

    def _apply_deletion(self, topic_id: bytes) -> None:
        topic = self.topics.pop(topic_id)
        self.topic_ids.pop(topic.name, None)
        self.configs.pop(topic_id, None)
        self.schemas.pop(topic_id, None)
        self._effective.pop(topic_id, None)
        for key in topic.partition_keys():
            for broker_id in self.partitions.pop(key).replicas:
                self.partitions_of_broker[broker_id].discard(key)
            self._changes.partitions.discard(key)
            self._changes.removed.add(key)
        self._changes.topics.add(topic_id)

    def _apply_security(self, record: records_pb2.MetadataRecord) -> None:
        match record.WhichOneof("record"):
            case "user_scram_credential":
                apply_credential(self.users, record.user_scram_credential)
            case "access_rule":
                apply_rule(self.access_rules, record.access_rule)
            case "delegation_token":
                apply_token(self.tokens, record.delegation_token)
            case _:
                apply_quota(self.quotas, record.quota)
        self._changes.security = True


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
