"""What is known of a queue, and how it is written (coordinator_records.proto).

    key                    value              until
    (queue)                Queue              the queue is deleted
    (queue, partition)     PartitionQueue     the queue, or the topic, is deleted
    (queue, producer id)   SettlingProducer   the producer's marker
    (queue, letters)       RedrivenTo         the queue, or the dead-letter topic, is deleted

The value of a partition is the checkpoint of its state. A coordinator that takes over loads it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog.v1 import queue_pb2
from minilog.versions import written_later
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue
from minilog_broker.coordinators.queues.ranges import Range, RangeState
from minilog_broker.coordinators.record_kinds import RecordCodec, ValueKind
from minilog_broker.coordinators.table import Change, Table


class QueueKey(NamedTuple):
    """`owner` is the queue. The partition, the producer id or `letters` is given, or none of them. `letters`: a
    partition of a dead-letter topic."""

    owner: str
    partition: PartitionKey | None = None
    producer_id: int | None = None
    letters: PartitionKey | None = None


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


QueueValue: TypeAlias = Queue | PartitionQueue | SettlingProducer | RedrivenTo
QueueChange: TypeAlias = Change[QueueKey, QueueValue]
QueueTable: TypeAlias = Table[QueueKey, QueueValue]


def _key_message(key: QueueKey) -> records_pb2.QueueLogKey:
    record = records_pb2.QueueLogKey(queue=key.owner)
    if key.partition is not None:
        record.partition_id.CopyFrom(key.partition.to_wire())
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
        case _:
            return QueueKey(record.queue)


def _queue_record(value: Queue) -> records_pb2.QueueRecord:
    topics = [
        records_pb2.QueueTopic(topic_id=topic_id, partition_count=count) for topic_id, count in value.topics.items()
    ]
    return records_pb2.QueueRecord(settings=dict(value.settings), topics=topics)


def _queue(record: records_pb2.QueueRecord) -> Queue:
    return Queue(dict(record.settings), {topic.topic_id: topic.partition_count for topic in record.topics})


def _range_record(current: Range) -> records_pb2.QueueRangeRecord:
    return records_pb2.QueueRangeRecord(
        first_offset=current.first,
        last_offset=current.last,
        state=queue_pb2.RangeState.ValueType(current.state),
        delivery_count=current.delivery_count,
        lease_id=current.lease_id,
        producer_id=current.producer_id,
        delay_ms=current.delay_ms,
        death_reason=current.death_reason,
    )


def _range(record: records_pb2.QueueRangeRecord) -> Range:
    if int(record.state) not in list(map(int, RangeState)):
        raise written_later("a record in the log of queues")
    return Range(
        record.first_offset,
        record.last_offset,
        RangeState(record.state),
        record.delivery_count,
        record.lease_id,
        record.producer_id,
        record.delay_ms,
        record.death_reason if record.HasField("death_reason") else None,
    )


def _partition_record(value: PartitionQueue) -> records_pb2.QueuePartitionRecord:
    return records_pb2.QueuePartitionRecord(
        next_offset=value.next_offset,
        leader_epoch=value.leader_epoch,
        ranges=map(_range_record, value.ranges),
        dead_count=value.dead_count,
    )


def _partition(record: records_pb2.QueuePartitionRecord) -> PartitionQueue:
    return PartitionQueue(record.next_offset, record.leader_epoch, tuple(map(_range, record.ranges)), record.dead_count)


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
        ValueKind(
            PartitionQueue,
            lambda key: key.partition is not None,
            records_pb2.QueuePartitionRecord,
            _partition_record,
            _partition,
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
