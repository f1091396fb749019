"""What is known of a group, and how it is written (coordinator_records.proto).

    key                         value      until
    (group, partition, -)       Offset     the group, or the topic, is deleted
    (group, -, producer id)     Pending    the producer's marker; then its offsets are the group's, or are gone

No control batches are needed in this log: what a marker does is itself a change of values, one batch; the log is kept
short as that of transactions is (places.py). (Kafka keeps markers in it, and did not wait for what they did:
KAFKA-17507.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog_broker.coordinators.record_kinds import RecordCodec, ValueKind
from minilog_broker.coordinators.table import Change


class GroupKey(NamedTuple):
    """`owner` is the group; either the partition or the producer id is given."""

    owner: str
    partition: PartitionKey | None = None
    producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class Offset:
    """The next offset to read. `position`: where in this log it was first written; the later one of two holds."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_us: int
    position: int


@dataclass(frozen=True, slots=True)
class Pending:
    """Offsets of a transaction that has not ended. `last_sequence`: of the producer's commits with this coordinator."""

    transactional_id: str
    last_sequence: int
    offsets: tuple[tuple[PartitionKey, Offset], ...]


GroupValue: TypeAlias = Offset | Pending
GroupChange: TypeAlias = Change[GroupKey, GroupValue]


def _key_message(key: GroupKey) -> records_pb2.GroupLogKey:
    record = records_pb2.GroupLogKey(group_id=key.owner)
    if key.partition is not None:
        record.partition_id.CopyFrom(key.partition.to_wire())
    elif key.producer_id is not None:
        record.producer_id = key.producer_id
    return record


def _key(record: records_pb2.GroupLogKey) -> GroupKey:
    if record.HasField("partition_id"):
        return GroupKey(record.group_id, partition=PartitionKey.of(record.partition_id))
    return GroupKey(record.group_id, producer_id=record.producer_id if record.HasField("producer_id") else None)


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


def _pending_record(value: Pending) -> records_pb2.PendingOffsetsRecord:
    return records_pb2.PendingOffsetsRecord(
        transactional_id=value.transactional_id,
        last_sequence=value.last_sequence,
        offsets=[
            records_pb2.PendingOffset(partition_id=key.to_wire(), offset=_offset_record(offset))
            for key, offset in value.offsets
        ],
    )


def _pending(record: records_pb2.PendingOffsetsRecord) -> Pending:
    offsets = tuple((PartitionKey.of(each.partition_id), _offset(each.offset)) for each in record.offsets)
    return Pending(record.transactional_id, record.last_sequence, offsets)


def group_codec() -> RecordCodec[GroupKey, GroupValue]:
    """Keys and values as records of `__groups`."""
    kinds: tuple[ValueKind[GroupKey], ...] = (
        ValueKind(Offset, lambda key: key.partition is not None, records_pb2.OffsetRecord, _offset_record, _offset),
        ValueKind(
            Pending,
            lambda key: key.partition is None,
            records_pb2.PendingOffsetsRecord,
            _pending_record,
            _pending,
        ),
    )
    return RecordCodec("groups", records_pb2.GroupLogKey, _key_message, _key, kinds)
