"""The committed metadata of a partition, and the configuration that its replicas need."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag
from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from minilog.record_batch.bounds import TimestampBounds

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schemas import TopicSchemas

NO_LEADER = -1
MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The committed state of one partition, as every broker's image has it (records.proto, PartitionRecord)."""

    key: PartitionKey
    topic_name: str
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    eligible_leaders: tuple[int, ...]
    damaged_replicas: tuple[int, ...]
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    leader_broker_epoch: int
    # If either is not empty, a reassignment is under way. controller/assignment.py has its rules.
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    throttle_bytes_per_second: int = 0  # of each added replica while it is not in the ISR. 0: no limit

    @property
    def preferred_leader(self) -> int:
        """The first replica. If it is able to lead, it should lead."""
        return self.replicas[0]

    @property
    def reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas when the reassignment, if any, is done."""
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """The replicas before the reassignment, if any, began."""
        return tuple(broker for broker in self.replicas if broker not in self.adding_replicas)

    @property
    def replication_factor(self) -> int:
        """The bound of min.insync.replicas: the number of replicas before the reassignment, until that is done."""
        return len(self.replicas) - len(self.adding_replicas)


class CleanupPolicy(Flag):
    """What removes the old records of a topic: one of the two, or both."""

    COMPACT = 1
    """The cleaner removes records whose key has a newer record."""
    DELETE = 2
    """Retention removes the oldest segments."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's settings. A value that an operator has set wins over the value of the topic's creation, which wins over
    the built-in one."""

    min_in_sync_replicas: int
    max_message_bytes: int
    segment_bytes: int
    segment_ms: int
    flush_on_append: bool  # flush.policy=fsync
    retention_ms: int
    retention_bytes: int
    unclean_leader_election: bool
    timestamp_before_max_ms: int = MAX_INT64  # the most before the leader's clock; by default no bound, as in Kafka
    timestamp_after_max_ms: int = 3_600_000
    cleanup_policy: CleanupPolicy = CleanupPolicy.DELETE
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64  # by default no bound, as in Kafka
    delete_retention_ms: int = 86_400_000
    schemas: TopicSchemas | None = None  # of a typed topic; they change together with the configuration

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner removes records whose key has a newer record. Then each new record needs a key."""
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @property
    def is_deleted_by_retention(self) -> bool:
        """Whether retention.ms and retention.bytes count."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    def timestamp_bounds(self, now_us: int | None) -> TimestampBounds | None:
        """The bounds for time stamps of records that are written now. None while the clock is not trusted: then the
        leader refuses no record for its time stamp."""
        if now_us is None:
            return None
        before_ms, after_ms = self.timestamp_before_max_ms, self.timestamp_after_max_ms
        oldest_us = None if before_ms == MAX_INT64 else now_us - before_ms * 1000
        return TimestampBounds(now_us, oldest_us, None if after_ms == MAX_INT64 else now_us + after_ms * 1000)


@dataclass(frozen=True, slots=True)
class BrokerIncarnation:
    """A broker of the image: its current life, and whether it may join an ISR."""

    broker_id: int
    broker_epoch: int
    host: str
    port: int
    fenced: bool
    stopping: bool
