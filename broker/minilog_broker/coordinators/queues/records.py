"""What is known of a queue, and how it is written (coordinator_records.proto).

    key                          value              until
    (queue)                      Queue              the queue is deleted
    (queue, partition)           PartitionHead      the queue, or the topic, is deleted
    (queue, partition, number)   Block              none of its ranges is left (pieces.py)
    (queue, partition, digest)   DeathReason        no range has died for it
    (queue, producer id)         SettlingProducer   the producer's marker
    (queue, letters)             RedrivenTo         the queue, or the dead-letter topic, is deleted

The pieces of a partition are the checkpoint of its state. A coordinator that takes over loads them, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog.v1 import queue_pb2
from minilog.versions import written_later
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue
from minilog_broker.coordinators.queues.pieces import Block, DeathReason, PartitionHead, QueueKey
from minilog_broker.coordinators.queues.ranges import Kind, Range, RangeState
from minilog_broker.coordinators.record_kinds import RecordCodec, ValueKind
from minilog_broker.coordinators.table import Change, CommittedTable


@dataclass(frozen=True, slots=True)
class Queue:
    """`settings`: those that were set. `topics`: the topics of the queue, each with the number of its partitions at the
    first lease on it."""

    settings: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettlingProducer:
    """A producer with settling records. `last_sequence`: of its settlements with this coordinator."""

    transactional_id: str
    last_sequence: int


@dataclass(frozen=True, slots=True)
class RedrivenTo:
    """How far the letters of a partition are redriven (redriving.py). `settling_to`: where a transaction of this
    producer moves the place."""

    next_offset: int = 0
    settling_to: int | None = None
    producer_id: int = 0

    @property
    def is_settling(self) -> bool:
        return self.settling_to is not None


QueueValue: TypeAlias = Queue | PartitionQueue | PartitionHead | Block | DeathReason | SettlingProducer | RedrivenTo
"""A PartitionQueue is of a decision alone: the table has its pieces."""
QueueChange: TypeAlias = Change[QueueKey, QueueValue]
QueueTable: TypeAlias = CommittedTable[QueueKey, QueueValue]


def _key_message(key: QueueKey) -> records_pb2.QueueLogKey:
    record = records_pb2.QueueLogKey(queue=key.owner)
    if key.partition is not None:
        partition_id = key.partition.to_wire()
        if key.block is not None:
            record.block.CopyFrom(records_pb2.QueueBlockKey(partition_id=partition_id, number=key.block))
        elif key.reason is not None:
            name = bytes.fromhex(key.reason)
            record.reason.CopyFrom(records_pb2.DeathReasonKey(partition_id=partition_id, digest=name))
        else:
            record.partition_id.CopyFrom(partition_id)
    elif key.producer_id is not None:
        record.producer_id = key.producer_id
    elif key.letters is not None:
        record.letters_partition_id.CopyFrom(key.letters.to_wire())
    return record


def _key(record: records_pb2.QueueLogKey) -> QueueKey:
    match record.WhichOneof("of"):
        case "partition_id":
            return QueueKey(record.queue, partition=PartitionKey.of(record.partition_id))
        case "producer_id":
            return QueueKey(record.queue, producer_id=record.producer_id)
        case "letters_partition_id":
            return QueueKey(record.queue, letters=PartitionKey.of(record.letters_partition_id))
        case "block":
            return QueueKey(record.queue, PartitionKey.of(record.block.partition_id), block=record.block.number)
        case "reason":
            named = record.reason
            return QueueKey(record.queue, PartitionKey.of(named.partition_id), reason=named.digest.hex())
        case _:
            return QueueKey(record.queue)


def _queue_record(value: Queue) -> records_pb2.QueueRecord:
    topics = [
        records_pb2.QueueTopic(topic_id=topic_id, partition_count=count) for topic_id, count in value.topics.items()
    ]
    return records_pb2.QueueRecord(settings=dict(value.settings), topics=topics)


def _queue(record: records_pb2.QueueRecord) -> Queue:
    return Queue(dict(record.settings), {topic.topic_id: topic.partition_count for topic in record.topics})


def _block_record(value: Block) -> records_pb2.QueueBlockRecord:
    kinds: dict[Kind, int] = {}
    numbers: list[int] = []
    end = 0
    for current in value.ranges:
        numbers += (current.first - end, current.last - current.first, kinds.setdefault(current.kind, len(kinds)))
        end = current.last + 1
    return records_pb2.QueueBlockRecord(kinds=map(_kind_record, kinds), ranges=numbers)


def _kind_record(kind: Kind) -> records_pb2.QueueRangeKind:
    return records_pb2.QueueRangeKind(
        state=queue_pb2.RangeState.ValueType(kind.state),
        delivery_count=kind.delivery_count,
        lease_id=kind.lease_id,
        producer_id=None if kind.producer_id == -1 else kind.producer_id,
        delay_ms=kind.delay_ms,
        death_reason=None if kind.death_reason is None else bytes.fromhex(kind.death_reason),
    )


def _block(record: records_pb2.QueueBlockRecord) -> Block:
    return Block(tuple(_ranges(record)))


def _ranges(record: records_pb2.QueueBlockRecord) -> Iterator[Range]:
    """Raises ValueError where the numbers are not those of ranges."""
    numbers, end = iter(record.ranges), 0
    if not record.ranges:
        raise ValueError("a block without ranges")
    for gap, more, place in zip(numbers, numbers, numbers, strict=True):
        if place >= len(record.kinds):
            raise ValueError(f"a range of kind {place}, and there are {len(record.kinds)}")
        first = end + gap
        yield _range(record.kinds[place], first, first + more)
        end = first + more + 1


def _range(kind: records_pb2.QueueRangeKind, first: int, last: int) -> Range:
    if int(kind.state) not in list(map(int, RangeState)):
        raise written_later("a record in the log of queues")
    return Range(
        first,
        last,
        RangeState(kind.state),
        kind.delivery_count,
        kind.lease_id,
        kind.producer_id if kind.HasField("producer_id") else -1,
        kind.delay_ms,
        kind.death_reason.hex() if kind.HasField("death_reason") else None,
    )


def _head_record(value: PartitionHead) -> records_pb2.QueuePartitionRecord:
    return records_pb2.QueuePartitionRecord(
        next_offset=value.next_offset, leader_epoch=value.leader_epoch, dead_count=value.dead_count
    )


def _head(record: records_pb2.QueuePartitionRecord) -> PartitionHead:
    return PartitionHead(record.next_offset, record.leader_epoch, record.dead_count)


def _reason_record(value: DeathReason) -> records_pb2.DeathReasonRecord:
    return records_pb2.DeathReasonRecord(text=value.text)


def _reason(record: records_pb2.DeathReasonRecord) -> DeathReason:
    return DeathReason(record.text)


def _producer_record(value: SettlingProducer) -> records_pb2.SettlingProducerRecord:
    return records_pb2.SettlingProducerRecord(
        transactional_id=value.transactional_id, last_sequence=value.last_sequence
    )


def _producer(record: records_pb2.SettlingProducerRecord) -> SettlingProducer:
    return SettlingProducer(record.transactional_id, record.last_sequence)


def _redrive_record(value: RedrivenTo) -> records_pb2.QueueRedriveRecord:
    return records_pb2.QueueRedriveRecord(
        next_offset=value.next_offset, settling_to=value.settling_to, producer_id=value.producer_id
    )


def _redriven(record: records_pb2.QueueRedriveRecord) -> RedrivenTo:
    settling_to = record.settling_to if record.HasField("settling_to") else None
    return RedrivenTo(record.next_offset, settling_to, record.producer_id)


def queue_codec() -> RecordCodec[QueueKey, QueueValue]:
    """Keys and values as records of `__queues`."""
    kinds: tuple[ValueKind[QueueKey], ...] = (
        ValueKind(PartitionHead, lambda key: key.is_partition, records_pb2.QueuePartitionRecord, _head_record, _head),
        ValueKind(Block, lambda key: key.block is not None, records_pb2.QueueBlockRecord, _block_record, _block),
        ValueKind(
            DeathReason,
            lambda key: key.reason is not None,
            records_pb2.DeathReasonRecord,
            _reason_record,
            _reason,
        ),
        ValueKind(
            SettlingProducer,
            lambda key: key.producer_id is not None,
            records_pb2.SettlingProducerRecord,
            _producer_record,
            _producer,
        ),
        ValueKind(
            RedrivenTo,
            lambda key: key.letters is not None,
            records_pb2.QueueRedriveRecord,
            _redrive_record,
            _redriven,
        ),
        ValueKind(
            Queue,
            lambda key: key.partition is None and key.producer_id is None and key.letters is None,
            records_pb2.QueueRecord,
            _queue_record,
            _queue,
        ),
    )
    return RecordCodec("queues", records_pb2.QueueLogKey, _key_message, _key, kinds)
