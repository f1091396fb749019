"""A client's knowledge of the cluster: topics, leaders, brokers. No I/O.

Knowledge never goes back. The cache refuses an answer with a lower metadata offset than an earlier answer of the same
cluster, or than a change of this client: it comes from a broker behind the others. The cache keeps the highest leader
epoch of each partition from any answer, to distinguish the "latest" of a deposed leader from the real one (rule V8).
Snapshots are immutable and replaced as a whole, so other threads may read while the event loop updates.
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
from minilog.typed.column_names import parse_names
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, metadata_pb2

if TYPE_CHECKING:  # it needs Arrow, which an Admin may do without
    from minilog.typed.topic_schemas import TopicSchemas

STATISTICS_COLUMNS = "statistics.columns"


class LeaderAndEpoch(NamedTuple):
    """The leader, and its epoch. `broker_id` is -1 if no broker leads."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CachedTopic:
    """One topic by the last answer. `told_schemas` may be the error that `schemas` raises."""

    name: str
    topic_id: bytes
    partition_count: int
    max_message_bytes: int | None
    described: metadata_pb2.TopicMetadata = field(repr=False)
    told_schemas: TopicSchemas | UnsupportedVersion | None = field(default=None, repr=False)

    @property
    def schemas(self) -> TopicSchemas | None:
        """All versions of a typed topic's schema; None where it has none. Raises UnsupportedVersion where a later
        version made them."""
        if isinstance(self.told_schemas, UnsupportedVersion):
            raise UnsupportedVersion(str(self.told_schemas))
        return self.told_schemas

    @property
    def statistics_columns(self) -> tuple[str, ...] | None:
        """Those that batches of rows tell of; None: the default ones, also where the setting cannot be read, which no
        broker looks at."""
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
    level: int = 1  # of the cluster: whoever writes something new asks it first
    controller_id: int = -1
    controller_epoch: int = -1
    brokers: dict[int, metadata_pb2.BrokerMetadata] = field(default_factory=dict)
    listener: str = ""
    """By which listener the brokers are asked, empty: that without a name."""
    unreachable: frozenset[int] = frozenset()
    """Brokers that have no such listener: there, and without an address."""
    topics: dict[str, CachedTopic] = field(default_factory=dict)
    reachability: Reachability = field(default_factory=Reachability)
    _leaders: dict[PartitionKey, LeaderAndEpoch] = field(default_factory=dict)
    _in_sync: dict[PartitionKey, tuple[int, ...]] = field(default_factory=dict)
    _names: dict[bytes, str] = field(default_factory=dict)

    def apply(self, answer: metadata_pb2.GetMetadataResponse) -> bool:
        """Take an answer in; False where it is older than what is known and was refused. Raises InconsistentClusterId
        where another cluster answers than the one that is known: nothing of it is taken in."""
        if not answer.cluster_id:
            return False  # a broker that has just started and knows nothing yet
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
        """A change was answered that is committed below this end of the metadata log: no older answer is taken."""
        self.metadata_offset = max(self.metadata_offset, metadata_offset)

    def _take_topic(self, message: metadata_pb2.TopicMetadata) -> None:
        name = message.name or self._names.get(message.topic_id, "")
        if message.error.code != common_pb2.ERROR_CODE_NONE:
            self.topics = {other_name: topic for other_name, topic in self.topics.items() if other_name != name}
            return
        limit = message.configs.get("max.message.bytes", "")
        max_bytes = int(limit) if limit.isdigit() else None
        topic = CachedTopic(
            name, message.topic_id, len(message.partitions), max_bytes, message, self._schemas(name, message)
        )
        self._names[message.topic_id] = name
        for partition in message.partitions:
            key = PartitionKey(message.topic_id, partition.partition)
            self.learn_leader(key, LeaderAndEpoch(partition.leader_id, partition.leader_epoch))
            self._in_sync[key] = tuple(partition.in_sync_replicas)
        self.topics = self.topics | {name: topic}

    def _schemas(self, name: str, message: metadata_pb2.TopicMetadata) -> TopicSchemas | UnsupportedVersion | None:
        """Read once: each refresh tells all versions again."""
        cached = self.topics.get(name)
        if cached is not None and cached.topic_id == message.topic_id and cached.described.schemas == message.schemas:
            return cached.told_schemas
        if not message.schemas:
            return None
        from minilog.typed.topic_schemas import told_schemas  # It loads Arrow: where a topic has columns.

        return told_schemas(message)

    def topic_of(self, key: PartitionKey) -> CachedTopic:
        """The topic of a partition. Raises UnknownTopicId."""
        cached = self.topics.get(self._names.get(key.topic_id, ""))
        if cached is None or cached.topic_id != key.topic_id:
            raise UnknownTopicId(f"no topic has the id {key.topic_id.hex()}: it may be deleted")
        return cached

    def learn_leader(self, key: PartitionKey, leader: LeaderAndEpoch) -> bool:
        """Take in a leader. True if it is news. An older leader than the known one is ignored."""
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
        """Where a broker listens for streams, None where it is not known."""
        broker = self.brokers.get(broker_id)
        return (broker.host, broker.stream_port) if broker is not None else None

    def why_unreachable(self, broker_id: int) -> BrokerNotAvailable | None:
        """Why a broker cannot be asked: it has no listener of the name that this client came by, or its address cannot
        be connected to. None for any other."""
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
        """The sentence about an address that cannot be connected to, and the broker that advertises it; None for any
        other."""
        owners = (broker_id for broker_id, broker in self.brokers.items() if (broker.host, broker.port) == address)
        owner = next(owners, None)
        who = "the broker" if owner is None else f"broker {owner}"
        return self.reachability.why(address, who=who, listener=self.listener)

    def why_some_not_connected(self) -> str | None:
        """The sentence about the first broker whose address cannot be connected to; None where each was reached."""
        whys = (self.why_not_connected((broker.host, broker.port)) for broker in self.brokers.values())
        return next((why for why in whys if why is not None), None)

    def unreachable_addresses(self) -> dict[int, str]:
        """Running brokers whose advertised address cannot be connected to from here: the address, and the reason."""
        running = metadata_pb2.BROKER_STATE_RUNNING
        addresses: dict[int, str] = {}
        for broker_id, broker in self.brokers.items():
            address = broker.host, broker.port
            reason = self.reachability.reason(address)
            if reason is not None and broker.state == running and address not in self.reachability.given:
                addresses[broker_id] = f"{address_text(address)} ({reason})"
        return addresses

    def why_no_leader(self, key: PartitionKey) -> BrokerNotAvailable | None:
        """Why the leader of a partition cannot be asked, as `why_unreachable`; None for any other reason."""
        leader = self._leaders.get(key)
        return None if leader is None else self.why_unreachable(leader.broker_id)

    def in_sync_in_rack(self, key: PartitionKey, rack: str) -> list[int]:
        """The members of the ISR, as last told, that run in this rack: what may be read instead of the leader."""
        running = metadata_pb2.BROKER_STATE_RUNNING
        replicas = [(broker_id, self.brokers.get(broker_id)) for broker_id in self._in_sync.get(key, ())]
        return [
            broker_id
            for broker_id, broker in replicas
            if broker is not None and (broker.rack, broker.state) == (rack, running)
        ]

    def seen_epoch(self, key: PartitionKey) -> int:
        """The highest leader epoch ever seen, -1 for none."""
        leader = self._leaders.get(key)
        return leader.epoch if leader is not None else -1

    def see_epoch(self, key: PartitionKey, epoch: int) -> None:
        """A leader answered under `epoch`: nothing below it is believed from now on."""
        leader = self._leaders.get(key)
        if leader is None:
            self._leaders[key] = LeaderAndEpoch(-1, epoch)
        elif epoch > leader.epoch:
            self._leaders[key] = leader._replace(epoch=epoch)  # who really leads, metadata will tell

    def has(self, partition: TopicPartition) -> bool:
        """Is there such a partition, as far as is known?"""
        topic = self.topics.get(partition.topic)
        return topic is not None and 0 <= partition.partition < topic.partition_count

    def key(self, partition: TopicPartition) -> PartitionKey:
        """The key of a partition by name. Raises UnknownTopicOrPartition, and UnknownTopicId where the topic of this
        name is not the one that the partition names."""
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
        """Those with a leader; all of them where none has one."""
        every = range(topic.partition_count)
        return [p for p in every if self.leader(PartitionKey(topic.topic_id, p)) is not None] or list(every)

    def is_gone(self, key: PartitionKey) -> bool:
        """Is the topic that this was a partition of known to be deleted, or another one by now?"""
        name = self._names.get(key.topic_id)
        topic = None if name is None else self.topics.get(name)
        return name is not None and (topic is None or topic.topic_id != key.topic_id)

    def check_same_topic(self, name: str, topic_id: bytes) -> None:
        """Raises UnknownTopicId where `name` is known to be gone, or not to be seen, or another topic by now."""
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
    """The request for some topics by name; None asks for all topics."""
    if names is None:
        return metadata_pb2.GetMetadataRequest(client=identity, all_topics=True)
    return metadata_pb2.GetMetadataRequest(client=identity, topic_names=sorted(set(names)))
