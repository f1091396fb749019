"""What Admin tells of queues. Pure: the answers of the coordinators come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minilog.groups.descriptions import Names, named
from minilog.partition_key import PartitionKey
from minilog.types import QueueDescription, QueuePosition, QueueRange, TopicPartition
from minilog.v1 import queue_pb2

_STATES: dict[int, str] = {
    queue_pb2.RANGE_STATE_READY: "ready",
    queue_pb2.RANGE_STATE_LEASED: "leased",
    queue_pb2.RANGE_STATE_SETTLING: "settling",
    queue_pb2.RANGE_STATE_DEAD: "dead",
}


def describe_queue(response: queue_pb2.DescribeQueueResponse, queue: str, names: Names) -> QueueDescription:
    """The description of a queue, with the names of topics by their ids."""
    positions = [position for described in response.partitions if (position := _position(described, names)) is not None]
    positions.sort(key=lambda position: (position.topic, position.partition))
    return QueueDescription(queue, dict(sorted(response.settings.items())), positions)


def with_ends(description: QueueDescription, ends: Mapping[TopicPartition, int]) -> QueueDescription:
    """The description with the ends that leaders have reported. The coordinator may know older ones."""
    positions = [
        replace(position, end_offset=ends.get(TopicPartition(position.topic, position.partition), position.end_offset))
        for position in description.partitions
    ]
    return replace(description, partitions=positions)


def _position(described: queue_pb2.DescribedQueuePartition, names: Names) -> QueuePosition | None:
    partition = named(PartitionKey.of(described.partition_id), names)
    if partition is None:
        return None
    return QueuePosition(
        topic=partition.topic,
        partition=partition.partition,
        settled_to=described.settled_to,
        next_offset=described.next_offset,
        end_offset=described.last_stable_offset if described.last_stable_offset >= 0 else None,
        ranges=[_range(part) for part in described.ranges],
        expired_count=described.expired_count,
        dead_count=described.dead_count,
    )


def _range(part: queue_pb2.DescribedRange) -> QueueRange:
    return QueueRange(
        first_offset=part.first_offset,
        last_offset=part.last_offset,
        state=_STATES.get(part.state, "unknown"),
        delivery_count=part.delivery_count,
        lease_id=part.lease_id,
        worker_id=part.worker_id,
        remaining_ms=part.remaining_ms,
        death_reason=part.death_reason if part.HasField("death_reason") else None,
    )
