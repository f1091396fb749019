"""A client's knowledge of the cluster: topics, leaders, brokers. No I/O.

Knowledge never goes back. A broker behind the others may send an old answer. So the cache refuses an answer if its
metadata offset is lower than that of an earlier answer of the same cluster, or than that of a change by this client.
The cache keeps the highest leader epoch of each partition from any answer. By this epoch it distinguishes the "latest"
of a deposed leader from the real one (rule V8). Snapshots are immutable, and the event loop replaces them as a whole.
So other threads may read meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from minilog.addresses import Address, address_text
from minilog.errors import (
    LOST_RIGHT,
    BrokerNotAvailable,
    InconsistentClusterId,
    InvalidArgument,
    ListenerNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from minilog.net.reachability import Reachability
from minilog.partition_key import PartitionKey
from minilog.typed.schema.column_names import parse_names
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, metadata_pb2

if TYPE_CHECKING:  # it loads Arrow, which an Admin may not need
    from minilog.typed.schema.topic_schemas import TopicSchemas

STATISTICS_COLUMNS = "statistics.columns"


class LeaderAndEpoch(NamedTuple):
    """The leader, and its epoch. `broker_id` is -1 if no broker leads."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CachedTopic:
    """One topic according to the last answer. `told_schemas` may be the error that `schemas` raises. `level` is that of
    the cluster in this answer."""

    name: str
    topic_id: bytes
    partition_count: int
    max_message_bytes: int | None
    described: metadata_pb2.TopicMetadata = field(repr=False)
    told_schemas: TopicSchemas | UnsupportedVersion | None = field(default=None, repr=False)
    level: int = 1

    @property
    def schemas(self) -> TopicSchemas | None:
        """All versions of a typed topic's schema. None if the topic has no schema.

        Raises UnsupportedVersion if a later version of minilog made them."""
        if isinstance(self.told_schemas, UnsupportedVersion):
            raise UnsupportedVersion(str(self.told_schemas))
        return self.told_schemas

    @property
    def statistics_columns(self) -> tuple[str, ...] | None:
        """The columns whose statistics batches of rows carry. None means the default columns.

        Also None if the setting cannot be parsed, because brokers do not check it."""
        listed = self.described.configs.get(STATISTICS_COLUMNS)
        if listed is None or not listed.strip():
            return None if listed is None else ()
        try:
            return parse_names(listed)
        except InvalidArgument:
            return None


@dataclass(slots=True)
class MetadataCache:
    """The cache. Its input is the answers of GetMetadata, and the leaders in other answers."""

    cluster_id: str = ""
    metadata_offset: int = -1
    level: int = 1  # of the cluster; code that writes a new form checks it first
    controller_id: int = -1
    controller_epoch: int = -1
    brokers: dict[int, metadata_pb2.BrokerMetadata] = field(default_factory=dict)
    listener: str = ""
    """The name of the listener by which the client asks the brokers. Empty: the listener without a name."""
    unreachable: frozenset[int] = frozenset()
    """The running brokers that have no such listener, so that the client has no address of them."""
    topics: dict[str, CachedTopic] = field(default_factory=dict)
    reachability: Reachability = field(default_factory=Reachability)
    _leaders: dict[PartitionKey, LeaderAndEpoch] = field(default_factory=dict)
    _in_sync: dict[PartitionKey, tuple[int, ...]] = field(default_factory=dict)
    _names: dict[bytes, str] = field(default_factory=dict)

    def apply(self, answer: metadata_pb2.GetMetadataResponse) -> bool:
        """Take in an answer. False if it was refused, because it is older than the known metadata.

        Raises InconsistentClusterId if it comes from another cluster than the known one. Then the cache takes in
        nothing of it."""
        if not answer.cluster_id:
            return False  # the broker has just started, and has no metadata yet
        if self.cluster_id and answer.cluster_id != self.cluster_id:
            raise InconsistentClusterId(
                f"a broker of cluster {answer.cluster_id} answered, but this client belongs to cluster "
                f"{self.cluster_id}: name brokers of one cluster in bootstrap.servers, or make a new client if the "
                "cluster was founded again"
            )
        if answer.metadata_offset < self.metadata_offset:
            return False
        self.cluster_id, self.metadata_offset = answer.cluster_id, answer.metadata_offset
        self.level = answer.level or 1
        if answer.controller_epoch >= self.controller_epoch:
            self.controller_id, self.controller_epoch = answer.controller_id, answer.controller_epoch
        self.brokers = {broker.broker_id: broker for broker in answer.brokers}
        self.listener = answer.listener
        self.unreachable = frozenset(broker.broker_id for broker in answer.unreachable_brokers)
        self.reachability.keep((broker.host, broker.port) for broker in answer.brokers)
        for topic in answer.topics:
            self._take_topic(topic)
        return True

    def must_show(self, metadata_offset: int) -> None:
        """Refuse answers that are older than `metadata_offset` from now on.

        This client got the answer to a change. The change is committed below that end of the metadata log."""
        self.metadata_offset = max(self.metadata_offset, metadata_offset)

    def _take_topic(self, message: metadata_pb2.TopicMetadata) -> None:
        name = message.name or self._names.get(message.topic_id, "")
        if message.error.code != common_pb2.ERROR_CODE_NONE:
            self.topics = {other_name: topic for other_name, topic in self.topics.items() if other_name != name}
            return
        limit = message.configs.get("max.message.bytes", "")
        max_bytes = int(limit) if limit.isdigit() else None
        topic = CachedTopic(
            name,
            message.topic_id,
            len(message.partitions),
            max_bytes,
            message,
            self._schemas(name, message),
            self.level,
        )
        self._names[message.topic_id] = name
        for partition in message.partitions:
            key = PartitionKey(message.topic_id, partition.partition)
            self.learn_leader(key, LeaderAndEpoch(partition.leader_id, partition.leader_epoch))
            self._in_sync[key] = tuple(partition.in_sync_replicas)
        self.topics = self.topics | {name: topic}

    def _schemas(self, name: str, message: metadata_pb2.TopicMetadata) -> TopicSchemas | UnsupportedVersion | None:
        """The schemas in an answer. Each refresh has all versions again, so known ones are not read a second time."""
        cached = self.topics.get(name)
        if cached is not None and cached.topic_id == message.topic_id and _same_schemas(cached.described, message):
            return cached.told_schemas
        if not message.schemas:
            return None
        from minilog.typed.schema.topic_schemas import told_schemas  # it loads Arrow, so only typed topics import it

        return told_schemas(message)

    def topic_of(self, key: PartitionKey) -> CachedTopic:
        """The topic of a partition. Raises UnknownTopicId."""
        cached = self.topics.get(self._names.get(key.topic_id, ""))
        if cached is None or cached.topic_id != key.topic_id:
            raise UnknownTopicId(f"no topic has the id {key.topic_id.hex()}: it may be deleted")
        return cached

    def learn_leader(self, key: PartitionKey, leader: LeaderAndEpoch) -> bool:
        """Take in a leader. True if it is new here. A leader with a lower epoch than the known one is ignored."""
        former = self._leaders.get(key)
        if former is not None and (leader.epoch < former.epoch or leader == former):
            return False
        if former is not None and leader.epoch == former.epoch and leader.broker_id < 0:
            return False
        self._leaders[key] = leader
        return True

    def leader(self, key: PartitionKey) -> LeaderAndEpoch | None:
        """The leader, if there is one and its address is known."""
        leader = self._leaders.get(key)
        return leader if leader is not None and leader.broker_id in self.brokers else None

    def address(self, broker_id: int) -> Address | None:
        """The address of a broker, or None if it is not known."""
        broker = self.brokers.get(broker_id)
        return (broker.host, broker.port) if broker is not None else None

    def stream_address(self, broker_id: int) -> Address | None:
        """The address of a broker's port of streams. None if it is not known."""
        broker = self.brokers.get(broker_id)
        return (broker.host, broker.stream_port) if broker is not None else None

    def why_unreachable(self, broker_id: int) -> BrokerNotAvailable | None:
        """The error for a broker that this client cannot ask: it has no listener of this client's name, or the client
        cannot connect to its address. None for any other broker."""
        if broker_id not in self.unreachable:
            address = self.address(broker_id)
            why = None if address is None else self.why_not_connected(address)
            return None if why is None else BrokerNotAvailable(why)
        what = f"no listener {self.listener!r}" if self.listener else "no listener without a name (--listen)"
        return ListenerNotFound(
            f"broker {broker_id} has {what}, by which this client came: give it one (listeners), or bootstrap by a "
            "listener that all brokers have"
        )

    def why_not_connected(self, address: Address) -> str | None:
        """The sentence about an address to which this client cannot connect, with the broker that advertises it. None
        for any other address."""
        owners = (broker_id for broker_id, broker in self.brokers.items() if (broker.host, broker.port) == address)
        owner = next(owners, None)
        who = "the broker" if owner is None else f"broker {owner}"
        return self.reachability.why(address, who=who, listener=self.listener)

    def why_some_not_connected(self) -> str | None:
        """The sentence about the first broker to which this client cannot connect. None if there is no such broker."""
        whys = (self.why_not_connected((broker.host, broker.port)) for broker in self.brokers.values())
        return next((why for why in whys if why is not None), None)

    def unreachable_addresses(self) -> dict[int, str]:
        """The running brokers to which this client cannot connect. For each the advertised address, and the reason."""
        running = metadata_pb2.BROKER_STATE_RUNNING
        addresses: dict[int, str] = {}
        for broker_id, broker in self.brokers.items():
            address = broker.host, broker.port
            if broker.state != running:
                continue
            reason, no_stream = self.reachability.reason(address), self.reachability.stream_reason(address)
            if reason is not None and address not in self.reachability.given:
                addresses[broker_id] = f"{address_text(address)} ({reason})"
            elif reason is None and no_stream is not None:
                addresses[broker_id] = f"{address_text(no_stream[0])}, its port of streams ({no_stream[1]})"
        return addresses

    def why_no_leader(self, key: PartitionKey) -> BrokerNotAvailable | None:
        """The error of `why_unreachable` for the leader of a partition. None if there is no such error."""
        leader = self._leaders.get(key)
        return None if leader is None else self.why_unreachable(leader.broker_id)

    def in_sync_in_rack(self, key: PartitionKey, rack: str) -> list[int]:
        """The members of the ISR in this rack, by the last answer. A consumer may read them instead of the leader."""
        running = metadata_pb2.BROKER_STATE_RUNNING
        replicas = [(broker_id, self.brokers.get(broker_id)) for broker_id in self._in_sync.get(key, ())]
        return [
            broker_id
            for broker_id, broker in replicas
            if broker is not None and (broker.rack, broker.state) == (rack, running)
        ]

    def seen_epoch(self, key: PartitionKey) -> int:
        """The highest leader epoch that was ever seen. -1 if there is none."""
        leader = self._leaders.get(key)
        return leader.epoch if leader is not None else -1

    def see_epoch(self, key: PartitionKey, epoch: int) -> None:
        """Note that a leader answered under `epoch`. From now on lower epochs are outdated."""
        leader = self._leaders.get(key)
        if leader is None:
            self._leaders[key] = LeaderAndEpoch(-1, epoch)
        elif epoch > leader.epoch:
            self._leaders[key] = leader._replace(epoch=epoch)  # the next metadata has the real leader

    def has(self, partition: TopicPartition) -> bool:
        """Whether the known metadata has this partition."""
        topic = self.topics.get(partition.topic)
        return topic is not None and 0 <= partition.partition < topic.partition_count

    def key(self, partition: TopicPartition) -> PartitionKey:
        """The key of a partition by name. Raises UnknownTopicOrPartition.

        Raises UnknownTopicId if the partition gives another topic id than the topic of this name has."""
        topic = self.topics.get(partition.topic)
        if topic is None:
            raise no_topic(partition.topic)
        if partition.topic_id is not None:
            self.check_same_topic(partition.topic, uuid.UUID(partition.topic_id).bytes)
        if not 0 <= partition.partition < topic.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {partition.topic!r} has partitions 0 to {topic.partition_count - 1}, not {partition.partition}"
            )
        return PartitionKey(topic.topic_id, partition.partition)

    def available_partitions(self, topic: CachedTopic) -> list[int]:
        """The partitions with a leader. All partitions if none has a leader."""
        every = range(topic.partition_count)
        return [p for p in every if self.leader(PartitionKey(topic.topic_id, p)) is not None] or list(every)

    def is_gone(self, key: PartitionKey) -> bool:
        """Whether the topic of this partition is deleted, or was made anew, by the known metadata."""
        name = self._names.get(key.topic_id)
        topic = None if name is None else self.topics.get(name)
        return name is not None and (topic is None or topic.topic_id != key.topic_id)

    def check_same_topic(self, name: str, topic_id: bytes) -> None:
        """Raises UnknownTopicId if, by the known metadata, the topic is gone, hidden from this client, or made anew."""
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            state = f"was deleted, or {LOST_RIGHT}" if topic is None else "was deleted and created again"
            raise UnknownTopicId(f"topic {name!r} (id {topic_id.hex()}) {state}")


def no_topic(name: str) -> UnknownTopicOrPartition:
    """The error for a topic that the brokers do not know."""
    return UnknownTopicOrPartition(
        f"there is no topic {name!r}: create it (minilog topic create {name}), or see minilog topic list"
    )


def metadata_request(
    identity: common_pb2.ClientIdentity, names: Iterable[str] | None
) -> metadata_pb2.GetMetadataRequest:
    """The request for the metadata of some topics by name. With None it asks for all topics."""
    if names is None:
        return metadata_pb2.GetMetadataRequest(client=identity, all_topics=True)
    return metadata_pb2.GetMetadataRequest(client=identity, topic_names=sorted(set(names)))


def _same_schemas(one: metadata_pb2.TopicMetadata, other: metadata_pb2.TopicMetadata) -> bool:
    return (
        one.schemas == other.schemas
        and one.pending_schemas == other.pending_schemas
        and one.withdrawn_schemas == other.withdrawn_schemas
    )
