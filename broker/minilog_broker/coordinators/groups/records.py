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

from google.protobuf.message import DecodeError

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog.versions import parse_known
from minilog_broker.coordinators.table import Change, LogRecord

_WHAT = "a record in the log of groups"


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


class GroupCodec:
    """Keys and values as records of `__groups`."""

    def encode(self, change: GroupChange) -> LogRecord:
        key = records_pb2.GroupLogKey(group_id=change.key.owner)
        if change.key.partition is not None:
            key.partition_id.CopyFrom(change.key.partition.to_wire())
        elif change.key.producer_id is not None:
            key.producer_id = change.key.producer_id
        return LogRecord(key.SerializeToString(deterministic=True), _encoded(change.value))

    def decode(self, record: LogRecord) -> GroupChange:
        try:
            key = parse_known(records_pb2.GroupLogKey, record.key, _WHAT)
            if key.HasField("partition_id"):
                where = GroupKey(key.group_id, partition=PartitionKey.of(key.partition_id))
                value = (
                    None
                    if record.value is None
                    else _offset(parse_known(records_pb2.OffsetRecord, record.value, _WHAT))
                )
                return Change(where, value)
            where = GroupKey(key.group_id, producer_id=key.producer_id if key.HasField("producer_id") else None)
            return Change(where, None if record.value is None else _pending(record.value))
        except DecodeError as error:
            raise CorruptMessage(f"the log of groups has a record that cannot be read: {error}") from error


def _encoded(value: GroupValue | None) -> bytes | None:
    match value:
        case None:
            return None
        case Offset():
            return _offset_record(value).SerializeToString()
        case Pending():
            return records_pb2.PendingOffsetsRecord(
                transactional_id=value.transactional_id,
                last_sequence=value.last_sequence,
                offsets=[
                    records_pb2.PendingOffset(partition_id=key.to_wire(), offset=_offset_record(offset))
                    for key, offset in value.offsets
                ],
            ).SerializeToString()


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


def _pending(value: bytes) -> Pending:
    record = parse_known(records_pb2.PendingOffsetsRecord, value, _WHAT)
    offsets = tuple((PartitionKey.of(each.partition_id), _offset(each.offset)) for each in record.offsets)
    return Pending(record.transactional_id, record.last_sequence, offsets)
