"""What users hand in and get back. Timestamps are milliseconds since 1970 (UTC), as in Kafka; offsets are int64.

The two that exist once per record are named tuples: they are made a hundred thousand times a second.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from minilog.errors import InvalidArgument, UnsupportedVersion

if TYPE_CHECKING:  # both need Arrow, and this module is light
    import pyarrow as pa

    from minilog.typed.topic_schema import TopicSchema
    from minilog.typed.topic_schemas import TopicSchemas

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
# What users may give as such.
GivenHeaders: TypeAlias = Headers | Mapping[str, bytes | None]
# "earliest", "latest", or milliseconds since 1970: the first record that is at least this young.
OffsetSpec: TypeAlias = str | int
# Where a group is to go on: an offset, "earliest", "latest", or "@" and milliseconds since 1970.
GroupPosition: TypeAlias = str | int


class RecordMetadata(NamedTuple):
    """Where a record was written. `offset` is -1 under acks=0: nobody told."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Record(NamedTuple):
    """One record as read. `headers` is empty where it has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Where one part of a sent Arrow batch was written: both offsets inclusive, -1 under acks=0."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition. For `Consumer.assign` also where to begin (inclusive), where to end (exclusive), and of which topic:
    with `topic_id` (TopicDescription.id) another topic that has the name by now is not read.

    Two are equal when topic and partition are; the others are only carried.
    """

    topic: str
    partition: int
    offset: int | None = field(default=None, compare=False)
    end_offset: int | None = field(default=None, compare=False)
    topic_id: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Raises InvalidArgument for a topic id that can be none."""
        if self.topic_id is not None:
            try:
                uuid.UUID(self.topic_id)
            except ValueError:
                raise InvalidArgument(
                    f"{self.topic_id!r} is no topic id: give one as TopicDescription.id has it, or None"
                ) from None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; None leaves the number to the brokers' num.partitions and default.replication.factor.

    With `schema` it is a typed topic: its rows have these columns. An Arrow schema is taken as schema_from_arrow does;
    the brokers give the fields their ids."""

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    schema: TopicSchema | pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class TopicAlteration:
    """A change of a topic: more partitions (the new total), configs to set, configs to put back to their defaults, the
    next version of its schema (minilog.typed.evolution makes one of the latest; Admin.evolve_schema does all of it)."""

    name: str
    num_partitions: int | None = None
    set_configs: Mapping[str, str] = field(default_factory=dict)
    unset_configs: Sequence[str] = ()
    schema: TopicSchema | None = None


class OffsetAtSize(NamedTuple):
    """An offset, and about how many bytes of batches there are between where was asked from and it."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SizesFrom:
    """A question: at which offsets are there about `sizes_bytes` (at most 64) of batches behind `offset`?"""

    offset: int
    sizes_bytes: Sequence[int]


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; the four offsets are one snapshot of its leader, None where it could not be asked.

    `sizes` has one answer for each of the sizes that were asked for; `replica_ends`, where it was asked for, the end of
    each replica's durable log as the leader knows it: None of one that has told nothing in this leader epoch.
    `why_no_offsets`: why the leader could not be asked, as far as is known."""

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
    why_no_offsets: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """Other replicas for a partition, under way: `replicas` has all, those that are to stay first (KIP-455)."""

    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    throttle_bytes_per_second: int | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic; `id` is a UUID as text.

    `configs`: what was set, what the topic was made with where that is not built in, and min.insync.replicas.
    `schemas`: of a typed topic, or the error for who asks `schema` or `schema_versions`; None: it has none."""

    name: str
    id: str
    internal: bool
    configs: dict[str, str]
    partitions: list[PartitionDescription]
    schemas: TopicSchemas | UnsupportedVersion | None = field(default=None, repr=False)

    @property
    def schema(self) -> TopicSchema | None:
        """The latest version; None where the topic has no schema. Raises UnsupportedVersion where it cannot be read."""
        versions = self.schema_versions
        return versions[-1] if versions else None

    @property
    def schema_versions(self) -> list[TopicSchema]:
        """All versions, the first one first. Raises UnsupportedVersion where they cannot be read."""
        if isinstance(self.schemas, UnsupportedVersion):
            raise UnsupportedVersion(str(self.schemas))
        return [] if self.schemas is None else list(self.schemas.versions)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """One broker; `state` is starting, running, fenced or stopping. It supports the levels from `lowest_level` on.
    `host` is empty where it has no listener of the name that was asked by. `host_label`: the host that it runs on,
    which others may share, where it is configured. `cordoned`: it gets no new replica. `decommissioning`: its replicas
    move away, too."""

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
    """A broker, with the numbers of its replicas and of the partitions that it leads, of topics that the caller may
    see."""

    broker: BrokerDescription
    replicas: int
    leaders: int


@dataclass(frozen=True, slots=True)
class VoterDescription:
    """A voter of the metadata quorum.

    `lost`: its broker runs with another disk, and does not vote until it is replaced. `host` and `port`: the recorded
    address, empty and 0 before the first change of the voters. `moved`: its broker is registered at another address,
    where the other voters do not reach it until `move_voter`.
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
    """The cluster; `controller` is None while there is none. `level`: what may be written to its logs."""

    cluster_id: str
    controller: int | None
    controller_epoch: int
    brokers: list[BrokerDescription]
    voters: list[VoterDescription] = field(default_factory=list)
    level: int = 1


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group that has committed anything, and of how many partitions."""

    group_id: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group has got in one partition. `offset` is the next to read, `committed_ms` when that was committed.

    `lag_records` are the offsets from it to `end_offset`, the end of what the isolation level shows; markers and what
    was aborted count. `lag_seconds` is the age of the first record among them, 0 where there is none. None: the leader
    did not answer in time.
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
    """Offsets of a transaction that has not ended: they are the group's when it commits. `transactional_id` is empty,
    and `producer_id` -1, where this client may not describe the transaction."""

    transactional_id: str
    producer_id: int
    offsets: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: what is committed, sorted, and what transactions hold. Partitions of deleted topics are left out."""

    group_id: str
    offsets: list[GroupOffset]
    pending: list[PendingOffsets]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id. `state` is idle, open, or ending (decided, and not all markers written yet).

    `generation` is the one that enlisted last, `last_committed_generation` None where none ever was."""

    transactional_id: str
    state: str
    generation: int
    last_committed_generation: int | None
    producer_count: int


@dataclass(frozen=True, slots=True)
class EnlistedProducer:
    """A writer that has not ended everywhere. `fate` is open, committing or aborting; `task` None where it has none.

    `partitions`: where it is registered, but for those of deleted topics."""

    producer_id: int
    generation: int
    task: int | None
    fate: str
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """All that is known of a transactional id. `silent_ms`: since the last sign of life of a writer, None where nothing
    is open; at `timeout_ms` what is open is aborted. `expires`: the id of a batch write, forgotten after seven days."""

    listing: TransactionListing
    attempt_id: str
    run_id: str
    timeout_ms: int
    expires: bool
    updated_ms: int
    silent_ms: int | None
    producers: list[EnlistedProducer]
