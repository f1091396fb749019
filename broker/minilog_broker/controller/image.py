"""The metadata image: the state of the cluster after a prefix of the metadata log (V13). Every broker has one.

Only records make and change it (record_kinds.py). `changes` notes their changes, and `take_changes` hands the notes
over. So no part of the broker walks the whole image for one record. `become` takes over the content of a snapshot
(controller.snapshot), and notes everything that may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from minilog.addresses import Address
from minilog.partition_key import PartitionKey
from minilog.security.access_rules import AccessRule
from minilog.security.scram import ScramCredential, ScramMechanism
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.versions import FIRST, VersionRange
from minilog_broker.controller.topic_config import effective_topic_config, shown_topic_config
from minilog_broker.levels import FIRST_LEVEL
from minilog_broker.quorum.voters import Voter
from minilog_broker.replication.partition_state import BrokerIncarnation, PartitionState, TopicConfig
from minilog_broker.security.delegation_token import IssuedToken
from minilog_broker.security.producer_proof import ProducerKey


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The current life of one broker. `clean_stop_broker_epoch`: the mark of its registration, until it is unfenced."""

    broker_id: int
    broker_epoch: int
    directory_id: bytes
    host: str
    port: int
    rack: str | None
    failure_domain: str
    """Replicas are spread over failure domains first: the rack, else the host label, else the host of the address."""
    kernel_boot_id: str
    levels: VersionRange = FIRST
    version: str = ""
    fenced: bool = True
    stopping: bool = False
    clean_stop_broker_epoch: int | None = None
    own_peer_address: Address | None = None
    """The address for other brokers, if they have a listener of their own."""
    host_label: str | None = None
    """The host of the broker, which others may share; None where it is not given."""
    listeners: tuple[tuple[str, Address], ...] = ()
    """The addresses of named listeners for clients. `host` is empty where each listener has a name."""

    def address_on(self, listener: str) -> Address | None:
        """The address for clients of this listener, where the empty text is the one without a name; None where there is
        none."""
        if not listener:
            return (self.host, self.port) if self.host else None
        return dict(self.listeners).get(listener)

    @property
    def peer_address(self) -> Address:
        """The address for other brokers."""
        return self.own_peer_address or (self.host, self.port)

    @property
    def incarnation(self) -> BrokerIncarnation:
        return BrokerIncarnation(self.broker_id, self.broker_epoch, self.host, self.port, self.fenced, self.stopping)


@dataclass(frozen=True, slots=True)
class Cordon:
    """A broker that gets no new replica. `decommissioning`: its replicas move away, each at most at the throttle's rate
    (0: without limit)."""

    decommissioning: bool = False
    throttle_bytes_per_second: int = 0


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. Its `partition_count` partitions are numbered from 0. `defaults`: its settings of (name, value) at
    creation."""

    name: str
    topic_id: bytes
    internal: bool
    partition_count: int = 0
    defaults: tuple[tuple[str, str], ...] = ()

    def partition_keys(self) -> list[PartitionKey]:
        return [PartitionKey(self.topic_id, partition) for partition in range(self.partition_count)]


@dataclass(slots=True)
class ImageChanges:
    """The changes since the last `take_changes`.

    A deleted topic's partitions are in `removed` only. `configs` has the topics whose effective configuration, with the
    schemas, may be another. `security`: users, access rules, quotas or delegation tokens may be others.
    `broker_settings`: settings of running brokers may be others.
    """

    brokers: set[int] = field(default_factory=set)
    partitions: set[PartitionKey] = field(default_factory=set)
    removed: set[PartitionKey] = field(default_factory=set)
    topics: set[bytes] = field(default_factory=set)
    configs: set[bytes] = field(default_factory=set)
    security: bool = False
    broker_settings: bool = False


ALL_BROKERS = -1
"""In the place of a broker's number: the setting counts for each broker without one of that name of its own."""

_CONTENT = (
    "cluster_id",
    "level",
    "voters",
    "has_voter_addresses",
    "brokers",
    "cordons",
    "topics",
    "topic_ids",
    "partitions",
    "configs",
    "schemas",
    "partitions_of_broker",
    "next_producer_id",
    "producer_key",
    "users",
    "access_rules",
    "quotas",
    "tokens",
    "broker_settings",
)
"""The attributes with the content of an image. Equality, copies and `become` use them."""


class MetadataImage:
    """The state of the cluster after a prefix of the metadata log. Only records change it (record_kinds.py).
    `end_offset`: the offset behind the last record in it."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.level = FIRST_LEVEL
        self.voters: tuple[Voter, ...] = ()
        self.has_voter_addresses = False  # whether their addresses count: from the first change of the voters on
        self.brokers: dict[int, BrokerRegistration] = {}
        self.cordons: dict[int, Cordon] = {}  # by broker id, for all of its lives
        self.topics: dict[bytes, TopicImage] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.partitions: dict[PartitionKey, PartitionState] = {}
        self.configs: dict[bytes, Mapping[str, str]] = {}
        self.schemas: dict[bytes, TopicSchemas] = {}
        self.partitions_of_broker: dict[int, set[PartitionKey]] = {}
        self.next_producer_id = 0
        self.producer_key: ProducerKey | None = None  # from level 4 on, with the first block of ids
        # A mapping inside a mapping is replaced, never changed.
        self.users: dict[str, Mapping[ScramMechanism, ScramCredential]] = {}
        self.access_rules: set[AccessRule] = set()
        self.quotas: dict[str, Mapping[str, int]] = {}
        self.tokens: dict[str, IssuedToken] = {}
        self.broker_settings: dict[int, Mapping[str, str]] = {}  # by broker, or ALL_BROKERS, as typed
        self.end_offset = 0
        self.changes = ImageChanges()
        self._effective: dict[bytes, TopicConfig] = {}  # a cache, by topic id

    def __eq__(self, other: object) -> bool:
        """Whether the content is equal. Recent changes and the end offset are not part of it."""
        return isinstance(other, MetadataImage) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def _content(self) -> tuple[object, ...]:
        return tuple(_without_nothing(getattr(self, name)) for name in _CONTENT)

    def _security(self) -> tuple[object, ...]:
        return self.users, self.access_rules, self.quotas, self.tokens

    def copy(self) -> MetadataImage:
        """An independent image of the same content, without changes to hand over."""
        twin = MetadataImage()
        for name in _CONTENT:
            setattr(twin, name, _independent(getattr(self, name)))
        twin.end_offset = self.end_offset
        return twin

    def become(self, other: MetadataImage) -> None:
        """Take over the content of `other`, which has no other user any more. All content of either counts as
        changed."""
        changes = self.changes
        changes.brokers |= self.brokers.keys() | other.brokers.keys()
        changes.topics |= self.topics.keys() | other.topics.keys()
        configured = self.configs.keys() | self.schemas.keys() | other.configs.keys() | other.schemas.keys()
        changes.configs |= configured & other.topics.keys()
        changes.removed |= self.partitions.keys() - other.partitions.keys()
        changes.partitions = set(other.partitions)
        changes.security |= self._security() != other._security()
        changes.broker_settings |= self.broker_settings != other.broker_settings
        for name in _CONTENT:
            setattr(self, name, getattr(other, name))
        self.end_offset = other.end_offset
        self._effective.clear()

    # -- questions

    def address_of_voter(self, voter: Voter) -> Address | None:
        """The address for other brokers of the voter's broker, if it is registered with the voter's data directory."""
        broker = self.brokers.get(voter.broker_id)
        return broker.peer_address if broker is not None and broker.directory_id == voter.directory_id else None

    def topic(self, name: str) -> TopicImage | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def topic_name(self, topic_id: bytes) -> str:
        """For people: the name of a topic, its id where it is gone."""
        return self.topics[topic_id].name if topic_id in self.topics else topic_id.hex()

    def partitions_of(self, topic_id: bytes) -> list[PartitionState]:
        return [self.partitions[key] for key in self.topics[topic_id].partition_keys()]

    def topic_config(self, topic_id: bytes) -> dict[str, str]:
        """The settings that users have set."""
        return dict(self.configs.get(topic_id, {}))

    def effective_config(self, topic_id: bytes) -> TopicConfig:
        """The effective settings of the topic with its schemas: the same on every broker at this end offset
        (topic_config.py)."""
        config = self._effective.get(topic_id)
        if config is None:
            values = {**dict(self.topics[topic_id].defaults), **self.configs.get(topic_id, {})}
            config = replace(effective_topic_config(values), schemas=self.schemas.get(topic_id))
            self._effective[topic_id] = config
        return config

    def configured(self, topic_id: bytes) -> None:
        """Note a change of this topic's configuration."""
        self.forget_effective(topic_id)
        self.changes.configs.add(topic_id)

    def forget_effective(self, topic_id: bytes) -> None:
        """Drop the cached configuration of this topic."""
        self._effective.pop(topic_id, None)

    def shown_config(self, topic_id: bytes) -> dict[str, str]:
        """The settings of a topic that people and programs see."""
        return shown_topic_config(dict(self.topics[topic_id].defaults), self.topic_config(topic_id))

    def replicas_on(self, broker_id: int) -> list[PartitionState]:
        """The partitions that have a replica on this broker, in a fixed order."""
        return [self.partitions[key] for key in sorted(self.partitions_of_broker.get(broker_id, ()))]

    def incarnations(self) -> dict[int, BrokerIncarnation]:
        return {broker.broker_id: broker.incarnation for broker in self.brokers.values()}

    def take_changes(self) -> ImageChanges:
        changes, self.changes = self.changes, ImageChanges()
        return changes


def _independent(value: Any) -> Any:
    """A copy of a mapping, with copies of the sets inside it, or of a set. A change of one does not reach the other."""
    if isinstance(value, dict):
        return {key: set(content) if isinstance(content, set) else content for key, content in value.items()}
    return set(value) if isinstance(value, set) else value


def _without_nothing(value: Any) -> Any:
    """A mapping without keys that have an empty set: such a key means the same as none."""
    return {key: content for key, content in value.items() if content != set()} if isinstance(value, dict) else value
