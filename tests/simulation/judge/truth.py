"""All that is known of the cluster from outside: the truth about its metadata and each partition, and the disks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from minilog.net.coordinators_of import INTERNAL_TOPIC_NAMES
from minilog.partition_key import PartitionKey
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.v1.records_pb2 import BrokerStateRecord
from minilog_broker.controller.topic_config import BUILT_IN
from minilog_broker.quorum.records import METADATA_KEY, CommittedBatch
from tests.judges.compaction import CompactedPartition
from tests.simulation.judge.bounds import Calm, Changes, Joins
from tests.simulation.judge.copies import Copies, Copy
from tests.simulation.judge.damage import KnownDamage
from tests.simulation.judge.metadata import LOG_NAME, JudgedChange, Metadata
from tests.simulation.judge.partition import JudgedPartition
from tests.simulation.judge.registrations import HEARD_S, Decision, Registrations

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.wire import Said

STRANGER = (-1, -1)


class Truth:
    """The truth about one cluster, as it becomes known."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        fenced: Callable[[BrokerStateRecord, Decision], None],
        replayed: Callable[[CommittedBatch], None],
        schema: Callable[[bytes, int], TopicSchema],
    ) -> None:
        self._schema = schema
        self._cluster = cluster
        self._hosts = {host.name: host for host in cluster.hosts.values()}
        self.copies = Copies(list(cluster.hosts.values()))
        self.metadata = Metadata(
            self.copies, list(cluster.plan.voter_ids), self._changed, Registrations(fenced), replayed
        )
        cluster.voter_sets = self.metadata.voter_sets
        self.damage = KnownDamage(list(cluster.hosts.values()), self.metadata)
        self.partitions: dict[PartitionKey, JudgedPartition] = {}
        self.fates: dict[int, bool] = {}  # of each producer that has a marker anywhere: whether it is committed
        self._joins, self.calm = Joins(cluster), Calm(cluster)
        self._changes = Changes(cluster, self.calm)

    def speaker(self, name: str) -> tuple[int, int]:
        """The number and the life of a broker, by the name of its host; of whoever else speaks, STRANGER."""
        host = self._hosts.get(name)
        return STRANGER if host is None else (host.number, host.lives)

    def log_name(self, key: PartitionKey) -> str | None:
        return LOG_NAME if key == METADATA_KEY else self.metadata.log_name(key)

    def partition(self, key: PartitionKey) -> JudgedPartition | None:
        """None where its topic is not known to be committed, or is gone."""
        if key not in self.metadata.states:
            return None
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = JudgedPartition(key, self.copies, self.metadata, self.damage)
            if (
                self.metadata.topics[key.topic_id].name in INTERNAL_TOPIC_NAMES
            ):  # brokers delete of them what they do not need
                found.deletable = math.inf
            if self.metadata.topics[key.topic_id].config.is_compacted:
                found.compaction = CompactedPartition(key, self.fates, partial(self._schema, key.topic_id))
        self._look_at_policy(found)
        return found

    def _look_at_policy(self, partition: JudgedPartition) -> None:
        """Under flush.policy=os a loss of power may take what was acknowledged: that is exempt. What retention deletes
        is judged by what readers miss (retention.py), not here."""
        config = self.metadata.topics[partition.key.topic_id].config
        if partition.unsynced_since_s is None and not config.flush_on_append:
            partition.unsynced_since_s = self._cluster.now_s - HEARD_S  # brokers have heard of it before
        if config.retention_bytes >= 0 or 0 <= config.retention_ms < BUILT_IN.retention_ms:
            partition.deletable = math.inf
        since_s = partition.unsynced_since_s
        if since_s is not None and not partition.exempt:
            times_s = (lost_s for host in self._cluster.hosts.values() for lost_s in host.lost_power_s)
            partition.exempt = any(lost_s >= since_s for lost_s in times_s)

    def _changed(self, change: JudgedChange) -> None:
        self._joins.changed(change, self.metadata.registrations)
        self._changes.changed(change)
        partition = self.partition(change.key)
        if partition is not None:
            partition.changed(change)
            partition.check_deleted()

    def all_copies(self) -> Iterator[tuple[Copy, PartitionKey, JudgedPartition | None]]:
        """Of the metadata log, which is no partition here, and of each partition that has records."""
        for copy in self.copies.all_of(LOG_NAME):
            yield copy, METADATA_KEY, None
        for key, partition in list(self.partitions.items()):
            if partition.batches and key in self.metadata.states:
                for copy in self.copies.all_of(partition.name):
                    yield copy, key, partition

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A heartbeat says how much of the metadata its broker knows: what it counts from now on it counts by that."""
        if answers or call.method != "/minilog.v1.PeerService/Heartbeat":
            return
        number, _ = self.speaker(call.client)
        for topic_id, topic in self.metadata.topics.items():
            for each in topic.raises:
                if message.metadata_offset > each.offset and number not in each.heard_by:
                    each.heard_by.add(number)
                    self._counted_before(topic_id, number)

    def _counted_before(self, topic_id: bytes, number: int) -> None:
        for key, partition in self.partitions.items():
            if key.topic_id == topic_id:
                end = self.copies.of(number, partition.name).live.end
                partition.min_floor = max(partition.min_floor, end)

    def look(self) -> None:
        """At all of it, whoever said something or not."""
        self.calm.look()
        for partition in list(self.partitions.values()):
            if partition.batches and partition.key in self.metadata.states:
                self._look_at_policy(partition)
                partition.check_members()
        self.metadata.check_kept()
