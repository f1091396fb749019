"""What is known of a group, and how it is written (coordinator_records.proto).

    key                         value         until
    (group, partition)          Offset        the group, or the topic, is deleted
    (group, producer id)        Pending       the producer's marker; then its offsets are the group's, or are gone
    (group)                     GroupEpoch    the last member is gone
    (group, member id, part)    Member, Target, Held: what the member said of itself, what it is to have, what it may
                                hold; until the member leaves, or is fenced

No control batches are needed in this log: what a marker does is itself a change of values, one batch; the log is kept
short as that of transactions is (places.py). (Kafka keeps markers in it, and did not wait for what they did:
KAFKA-17507.)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog_broker.coordinators.record_kinds import RecordCodec, ValueKind
from minilog_broker.coordinators.table import Change


class GroupPart(enum.Enum):
    """What of a group with members a key is of."""

    GROUP = "group"
    MEMBER = "member"
    TARGET = "target"
    HELD = "held"


class GroupKey(NamedTuple):
    """`owner` is the group; the partition, the producer id, or the part is given."""

    owner: str
    partition: PartitionKey | None = None
    producer_id: int | None = None
    part: GroupPart | None = None
    member_id: str = ""
    """Of each part but GROUP."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The next offset to read. `position`: where in this log it was first written; the later one of two holds."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_us: int
    position: int


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """Offsets of a transaction that has not ended. `last_sequence`: of the producer's commits with this coordinator."""

    transactional_id: str
    last_sequence: int
    offsets: tuple[tuple[PartitionKey, Offset], ...]


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The number of the target assignment, and who made it."""

    epoch: int
    assignor: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member's own description. `is_away`: a static member that left for a while, and holds nothing. `principal`:
    whose member it is, empty where nobody knows."""

    topics: tuple[str, ...]
    instance_id: str = ""
    rack: str = ""
    assignor: str = ""
    rebalance_timeout_ms: int = 0
    client_id: str = ""
    client_host: str = ""
    is_away: bool = False
    principal: str = ""

    def is_of(self, principal: str) -> bool:
        """Whether the principal may speak for it."""
        return self.principal in ("", principal)


@dataclass(frozen=True, slots=True)
class Target:
    """What a member is to have."""

    partitions: frozenset[PartitionKey] = frozenset()


class Given(NamedTuple):
    """The member epochs in which a partition was given to a member, and asked back (0: it was not)."""

    given_epoch: int
    revoked_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What a member may hold: `assigned`, and `revoking`, until the member says that it has given that back."""

    member_epoch: int = 0
    assigned: Mapping[PartitionKey, Given] = field(default_factory=dict)
    revoking: Mapping[PartitionKey, Given] = field(default_factory=dict)

    def given(self, key: PartitionKey) -> Given | None:
        """None where it does not hold the partition."""
        return self.assigned.get(key) or self.revoking.get(key)


GroupValue: TypeAlias = Offset | PendingCommit | GroupEpoch | Member | Target | Held
GroupChange: TypeAlias = Change[GroupKey, GroupValue]


def _key_message(key: GroupKey) -> records_pb2.GroupLogKey:
    record = records_pb2.GroupLogKey(group_id=key.owner)
    if key.partition is not None:
        record.partition_id.CopyFrom(key.partition.to_wire())
    elif key.producer_id is not None:
        record.producer_id = key.producer_id
    elif key.part is GroupPart.GROUP:
        record.group = True
    elif key.part is not None:
        setattr(record, _FIELDS[key.part], key.member_id)
    return record


_FIELDS = {GroupPart.MEMBER: "member_id", GroupPart.TARGET: "target_of", GroupPart.HELD: "assignment_of"}
_PARTS = {name: part for part, name in _FIELDS.items()}


def _key(record: records_pb2.GroupLogKey) -> GroupKey:
    match record.WhichOneof("of"):
        case "partition_id":
            return GroupKey(record.group_id, partition=PartitionKey.of(record.partition_id))
        case "producer_id":
            return GroupKey(record.group_id, producer_id=record.producer_id)
        case "group":
            return GroupKey(record.group_id, part=GroupPart.GROUP)
        case "member_id" | "target_of" | "assignment_of" as name:
            return GroupKey(record.group_id, part=_PARTS[name], member_id=getattr(record, name))
        case _:
            return GroupKey(record.group_id)


def _offset_record(value: Offset) -> records_pb2.OffsetRecord:
    return records_pb2.OffsetRecord(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        committed_us=value.committed_us,
        position=value.position,
    )


def _offset(record: records_pb2.OffsetRecord) -> Offset:
    return Offset(record.offset, record.leader_epoch, record.metadata, record.committed_us, record.position)


def _pending_record(value: PendingCommit) -> records_pb2.PendingOffsetsRecord:
    return records_pb2.PendingOffsetsRecord(
        transactional_id=value.transactional_id,
        last_sequence=value.last_sequence,
        offsets=[
            records_pb2.PendingOffset(partition_id=key.to_wire(), offset=_offset_record(offset))
            for key, offset in value.offsets
        ],
    )


def _pending(record: records_pb2.PendingOffsetsRecord) -> PendingCommit:
    offsets = tuple((PartitionKey.of(pending.partition_id), _offset(pending.offset)) for pending in record.offsets)
    return PendingCommit(record.transactional_id, record.last_sequence, offsets)


def _group_record(value: GroupEpoch) -> records_pb2.GroupRecord:
    return records_pb2.GroupRecord(epoch=value.epoch, assignor=value.assignor)


def _group(record: records_pb2.GroupRecord) -> GroupEpoch:
    return GroupEpoch(record.epoch, record.assignor)


def _member_record(value: Member) -> records_pb2.MemberRecord:
    return records_pb2.MemberRecord(
        instance_id=value.instance_id,
        rack_id=value.rack,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topics=value.topics,
        assignor=value.assignor,
        away=value.is_away,
        principal=value.principal,
    )


def _member(record: records_pb2.MemberRecord) -> Member:
    return Member(
        tuple(record.topics),
        record.instance_id,
        record.rack_id,
        record.assignor,
        record.rebalance_timeout_ms,
        record.client_id,
        record.client_host,
        record.away,
        record.principal,
    )


def _target_record(value: Target) -> records_pb2.TargetRecord:
    return records_pb2.TargetRecord(partitions=[key.to_wire() for key in sorted(value.partitions)])


def _target(record: records_pb2.TargetRecord) -> Target:
    return Target(frozenset(map(PartitionKey.of, record.partitions)))


def _given_records(given: Mapping[PartitionKey, Given]) -> list[records_pb2.AssignedPartition]:
    return [
        records_pb2.AssignedPartition(
            partition_id=key.to_wire(), given_epoch=epochs.given_epoch, revoked_epoch=epochs.revoked_epoch
        )
        for key, epochs in sorted(given.items())
    ]


def _given(records: Iterable[records_pb2.AssignedPartition]) -> dict[PartitionKey, Given]:
    return {PartitionKey.of(record.partition_id): Given(record.given_epoch, record.revoked_epoch) for record in records}


def _held_record(value: Held) -> records_pb2.AssignmentRecord:
    return records_pb2.AssignmentRecord(
        member_epoch=value.member_epoch,
        assigned=_given_records(value.assigned),
        revoking=_given_records(value.revoking),
    )


def _held(record: records_pb2.AssignmentRecord) -> Held:
    return Held(record.member_epoch, _given(record.assigned), _given(record.revoking))


def _of_part(part: GroupPart) -> Callable[[GroupKey], bool]:
    return lambda key: key.part is part


def group_codec() -> RecordCodec[GroupKey, GroupValue]:
    """Keys and values as records of `__groups`."""
    kinds: tuple[ValueKind[GroupKey], ...] = (
        ValueKind(Offset, lambda key: key.partition is not None, records_pb2.OffsetRecord, _offset_record, _offset),
        ValueKind(
            PendingCommit,
            lambda key: key.producer_id is not None,
            records_pb2.PendingOffsetsRecord,
            _pending_record,
            _pending,
        ),
        ValueKind(GroupEpoch, _of_part(GroupPart.GROUP), records_pb2.GroupRecord, _group_record, _group),
        ValueKind(Member, _of_part(GroupPart.MEMBER), records_pb2.MemberRecord, _member_record, _member),
        ValueKind(Target, _of_part(GroupPart.TARGET), records_pb2.TargetRecord, _target_record, _target),
        ValueKind(Held, _of_part(GroupPart.HELD), records_pb2.AssignmentRecord, _held_record, _held),
    )
    return RecordCodec("groups", records_pb2.GroupLogKey, _key_message, _key, kinds)
