"""The arguments and results of the clients. Timestamps are milliseconds since 1970 (UTC), as in Kafka. Offsets are
int64.

The two types that exist once per record are named tuples, since a program makes a hundred thousand of them in a second.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from minilog.errors import InvalidArgument, UnsupportedVersion

if TYPE_CHECKING:  # both need Arrow, and this module is light
    import pyarrow as pa

    from minilog.typed.schema.topic_schema import TopicSchema
    from minilog.typed.schema.topic_schemas import TopicSchemas

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
# The forms of headers that a program may pass.
GivenHeaders: TypeAlias = Headers | Mapping[str, bytes | None]
# "earliest", "latest", or milliseconds since 1970, for the first record at or after that time.
OffsetSpec: TypeAlias = str | int
# The new place of a group: an offset, "earliest", "latest", or "@" and milliseconds since 1970.
GroupPosition: TypeAlias = str | int


class RecordMetadata(NamedTuple):
    """The place of a written record. `offset` is -1 under acks=0, since the broker sends no answer."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Record(NamedTuple):
    """One record as it was read. `headers` is empty for a record without headers."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def is_deletion(self) -> bool:
        """Whether the record deletes its key: it has a key and no value. Of a typed topic it is a RowDeletion."""
        return self.value is None and self.key is not None


class RowDeletion(Record):
    """The deletion of a row of a topic with a schema, as `Consumer.poll` gives it. `value` is None. `key_columns` are
    the key columns of the row as JSON, as `value` has the columns of any other row."""

    key_columns: bytes

    @classmethod
    def of(cls, record: Record, key_columns: bytes) -> RowDeletion:
        """The record with the key columns."""
        deletion = cls(*record)
        deletion.key_columns = key_columns
        return deletion


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """The place of one written part of an Arrow batch. Both offsets are inclusive, and -1 under acks=0."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition. `Consumer.assign` also takes its first offset (inclusive), its end (exclusive), and its topic id.
    With `topic_id` (TopicDescription.id) the consumer does not read another topic that has the name by now.

    Two partitions are equal if topic and partition are equal. The other fields do not count.
    """

    topic: str
    partition: int
    offset: int | None = field(default=None, compare=False)
    end_offset: int | None = field(default=None, compare=False)
    topic_id: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Raises InvalidArgument for a topic id that is no UUID."""
        if self.topic_id is not None:
            try:
                uuid.UUID(self.topic_id)
            except ValueError:
                raise InvalidArgument(
                    f"{self.topic_id!r} is no topic id: give one as TopicDescription.id has it, or None"
                ) from None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. A number that is None comes from the brokers' num.partitions or default.replication.factor.

    With `schema` it is a typed topic, and its rows have these columns. schema_from_arrow converts an Arrow schema. The
    brokers give the fields their ids."""

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    schema: TopicSchema | pa.Schema | None = None


class SchemaStep(enum.Enum):
    """What becomes of the version of a schema that an alteration names: the latest one from now on, pending until a
    write is committed, or withdrawn with the write."""

    LATEST = 0
    PENDING = 1
    WITHDRAWN = 2


@dataclass(frozen=True, slots=True)
class TopicAlteration:
    """A change of a topic: more partitions (the new total), configs to set, configs to put back to their defaults, and
    the next version of its schema. minilog.typed.evolution makes the next version from the latest one.
    Admin.evolve_schema does all of it."""

    name: str
    num_partitions: int | None = None
    set_configs: Mapping[str, str] = field(default_factory=dict)
    unset_configs: Sequence[str] = ()
    schema: TopicSchema | None = None
    schema_step: SchemaStep = SchemaStep.LATEST


class OffsetAtSize(NamedTuple):
    """An offset, and about the number of bytes of batches before it, from the offset of the question on."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SizesFrom:
    """A question for the offsets that follow `offset` after about these numbers of bytes (at most 64 numbers)."""

    offset: int
    sizes_bytes: Sequence[int]


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition. The four offsets are one snapshot of its leader, or None without an answer of the leader.

    `sizes` has one answer for each size in the question. `replica_ends`, if the question has it, is the end of each
    replica's durable log as the leader knows it. It is None for a replica that has reported nothing in this leader
    epoch. Such a question for a compacted topic also gets `dirty_bytes`: the bytes that wait for a cleaning. Below
    `clean_to` older records of a key may be gone. `size_bytes` is the size of the leader's log. It is None without a
    question for replica ends. `why_no_offsets` is the reason for a missing answer, as far as it is
    known."""

    partition: int
    leader: int | None
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    isr: list[int]
    eligible_leaders: list[int]
    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    adding_replicas: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)
    throttle_bytes_per_second: int | None = None
    sizes: list[OffsetAtSize] = field(default_factory=list)
    replica_ends: dict[int, int | None] = field(default_factory=dict)
    clean_to: int | None = None
    dirty_bytes: int | None = None
    why_no_offsets: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment in progress: other replicas for a partition. `replicas` has all of them, and the replicas that
    stay come first (KIP-455)."""

    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    throttle_bytes_per_second: int | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic. `id` is a UUID as text.

    `configs` has the configs that were set, the ones from the topic's creation that differ from the built-in values,
    and min.insync.replicas. `schemas` has the schemas of a typed topic, or the error that `schema` and
    `schema_versions` raise, or None for a topic without a schema."""

    name: str
    id: str
    internal: bool
    configs: dict[str, str]
    partitions: list[PartitionDescription]
    schemas: TopicSchemas | UnsupportedVersion | None = field(default=None, repr=False)

    @property
    def schema(self) -> TopicSchema | None:
        """The latest version, or None for a topic without a schema. Raises UnsupportedVersion if this version of
        minilog cannot read it."""
        versions = self.schema_versions
        return versions[-1] if versions else None

    @property
    def schema_versions(self) -> list[TopicSchema]:
        """All versions up to the latest, the first one first. Raises UnsupportedVersion if this version of minilog
        cannot read them."""
        if isinstance(self.schemas, UnsupportedVersion):
            raise UnsupportedVersion(str(self.schemas))
        return [] if self.schemas is None else list(self.schemas.confirmed)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """One broker. `state` is starting, running, fenced or stopping. It supports the levels from `lowest_level` to
    `highest_level`. `host` is empty if the broker does not have the listener that the client uses. `host_label` is the
    configured name of its machine, which other brokers may share. A `cordoned` broker gets no new replica. The replicas
    of a `decommissioning` broker move away, too."""

    id: int
    host: str
    port: int
    rack: str | None
    state: str
    lowest_level: int = 1
    highest_level: int = 1
    version: str = ""
    host_label: str | None = None
    cordoned: bool = False
    decommissioning: bool = False


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A broker, its number of replicas, and the number of partitions that it leads. Only topics that the caller may see
    count."""

    broker: BrokerDescription
    replicas: int
    leaders: int


@dataclass(frozen=True, slots=True)
class VoterDescription:
    """A voter of the metadata quorum.

    If it is `lost`, its broker runs with another disk, and does not vote until a command replaces the voter. `host` and
    `port` are the recorded address, empty and 0 before the first change of the voters. If it is `moved`, its broker is
    registered at another address, where the other voters do not reach it until `move_voter`.
    """

    id: int
    directory_id: str
    lost: bool
    host: str = ""
    port: int = 0
    moved: bool = False


@dataclass(frozen=True, slots=True)
class VoterChange:
    """The outcome of a change of the voters. `changed`: False where it was so already. `voters`: their ids now."""

    changed: bool
    voters: list[int]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster. `controller` is None while no controller is active. `level` decides which forms of data brokers may
    write to the logs."""

    cluster_id: str
    controller: int | None
    controller_epoch: int
    brokers: list[BrokerDescription]
    voters: list[VoterDescription] = field(default_factory=list)
    level: int = 1


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group with committed offsets, and the number of their partitions, or a group with members."""

    group_id: str
    partition_count: int
    member_count: int = 0


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The progress of a group in one partition. `offset` is the next offset to read, and `committed_ms` the time of its
    commit.

    `end_offset` is the end of the records that the isolation level shows. `lag_records` counts the offsets from
    `offset` to `end_offset`, with markers and aborted records. `lag_seconds` is the age of the first record among them,
    or 0 without such a record. They are None if the leader did not answer in time.
    """

    topic: str
    partition: int
    offset: int
    metadata: str
    committed_ms: int
    end_offset: int | None
    lag_records: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class PendingOffsets:
    """Offsets of a transaction that has not ended. The group gets them at its commit. `transactional_id` is empty, and
    `producer_id` is -1, if this client may not describe the transaction."""

    transactional_id: str
    producer_id: int
    offsets: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member as it commits in a transaction: give it to `Transaction.commit_offsets` in the place of the group's id.
    Without a membership `member_id` is empty."""

    group_id: str
    member_id: str = ""
    member_epoch: int = 0


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. It reads `assigned`, is to give `revoking` back and has not yet, and is to read `target`.
    `is_away`: a static member that left for a while, for which its partitions are kept. `silent_seconds`: since its
    last heartbeat."""

    member_id: str
    instance_id: str
    rack: str
    client_id: str
    client_host: str
    member_epoch: int
    topics: list[str]
    assigned: list[TopicPartition]
    revoking: list[TopicPartition]
    target: list[TopicPartition]
    is_away: bool
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its committed offsets, sorted, the pending offsets of transactions, and its members by id. Partitions of
    deleted topics are left out. `epoch` is the number of the target assignment, and `assignor` the name of its maker;
    they are 0 and empty without members.
    """

    group_id: str
    offsets: list[GroupOffset]
    pending: list[PendingOffsets]
    members: list[GroupMember] = field(default_factory=list)
    epoch: int = 0
    assignor: str = ""

    @property
    def kind(self) -> str:
        """ "consumer": it has members; "offsets": it is a name with offsets."""
        return "consumer" if self.members else "offsets"


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a redrive has done with the dead letters of a queue.

    `made_ready_count`: their records are ready again in the queue, at their old offsets. Nobody else gets them.
    `written_to`: new records by topic, for letters whose record was gone. Every group, queue and query that reads the
    topic gets them. `gone_count`: letters without a copy of their record, which is gone. `unsettled_count`: letters
    whose record the queue delivers anyway. `passed_over_count`: records of the dead-letter topic that are no letters
    of this queue. `is_full`: letters are left, because a partition of the queue has as many unsettled records as
    group.share.partition.max.record.locks allows."""

    made_ready_count: int = 0
    written_to: Mapping[str, int] = field(default_factory=dict)
    gone_count: int = 0
    unsettled_count: int = 0
    passed_over_count: int = 0
    is_full: bool = False

    @property
    def written_count(self) -> int:
        """The new records, in all topics."""
        return sum(self.written_to.values())


@dataclass(frozen=True, slots=True)
class QueueListing:
    """A queue, the number of its partitions, and of the offsets that are leased or settled by an open transaction."""

    queue: str
    partition_count: int
    leased_count: int


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets of a queue that were leased and are not settled, both ends included.

    `state` is ready (to be delivered again, after `remaining_ms`), leased (to `worker_id`, until the lock ends in
    `remaining_ms`), settling (by a transaction that has not ended) or dead (on its way to the dead-letter topic).
    `worker_id` is empty if the coordinator does not know the worker: another broker gave the lease. `death_reason` is
    given for dead records, also while a worker carries them to the dead-letter topic."""

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    lease_id: int
    worker_id: str
    remaining_ms: int
    death_reason: str | None = None

    @property
    def count(self) -> int:
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The progress of a queue in one partition. All offsets below `settled_to` are settled. No offset from
    `next_offset` on was leased yet. `end_offset` is the last stable offset, or None if neither the leader of the
    partition nor the coordinator gives it now. `expired_count`: records that retention took before they were settled,
    since this coordinator leads. `dead_count`: records that no worker could process, of all time. `undecided_count`:
    offsets from `end_offset` on, in or behind an open transaction, which can be leased when it ends. None if the leader
    does not tell now."""

    topic: str
    partition: int
    settled_to: int
    next_offset: int
    end_offset: int | None
    ranges: list[QueueRange]
    expired_count: int
    dead_count: int
    undecided_count: int | None = None

    @property
    def backlog(self) -> int | None:
        """The number of offsets that were never leased. None without `end_offset`."""
        return None if self.end_offset is None else max(0, self.end_offset - self.next_offset)

    def count(self, state: str) -> int:
        """The number of offsets in this state."""
        return sum(part.count for part in self.ranges if part.state == state)


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue: the settings that were set, by their names, and its progress in each partition, sorted. Partitions of
    deleted topics are left out."""

    queue: str
    settings: dict[str, str]
    partitions: list[QueuePosition]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id. `state` is idle, open, or ending (decided, but some markers are not written yet).

    `generation` is the generation that enlisted last. `last_committed_generation` is None if none was ever
    committed."""

    transactional_id: str
    state: str
    generation: int
    last_committed_generation: int | None
    producer_count: int


@dataclass(frozen=True, slots=True)
class EnlistedProducer:
    """A writer that has not ended in all partitions. `fate` is open, committing or aborting. `task` is None for a
    writer without a task number.

    `partitions` has the partitions of the writer, without those of deleted topics."""

    producer_id: int
    generation: int
    task: int | None
    fate: str
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id. `silent_ms` is the time since the last sign of life of a writer, or None without
    an open transaction. At `timeout_ms` the coordinator aborts the open transaction. If the id `expires`, it is the id
    of a batch write, and the coordinator forgets it after seven days."""

    listing: TransactionListing
    attempt_id: str
    run_id: str
    timeout_ms: int
    expires: bool
    updated_ms: int
    silent_ms: int | None
    producers: list[EnlistedProducer]


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One setting, as typed. `broker_id`: None for all brokers without a setting of that name of their own."""

    broker_id: int | None
    name: str
    value: str
