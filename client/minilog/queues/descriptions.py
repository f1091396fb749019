"""What Admin tells of queues. Pure: the answers of the coordinators come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

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


class Ends(NamedTuple):
    """The ends of a partition, as its leader has reported them."""

    last_stable_offset: int
    high_watermark: int


def describe_queue(response: queue_pb2.DescribeQueueResponse, queue: str, names: Names) -> QueueDescription:
    """The description of a queue, with the names of topics by their ids."""
    positions = [position for described in response.partitions if (position := _position(described, names)) is not None]
    positions.sort(key=lambda position: (position.topic, position.partition))
    return QueueDescription(queue, dict(sorted(response.settings.items())), positions)


def with_ends(description: QueueDescription, ends: Mapping[TopicPartition, Ends]) -> QueueDescription:
    """The description with the ends that leaders have reported. The coordinator may know older ones."""
    positions = [
        _with_end(position, ends.get(TopicPartition(position.topic, position.partition)))
        for position in description.partitions
    ]
    return replace(description, partitions=positions)


def _with_end(position: QueuePosition, ends: Ends | None) -> QueuePosition:
    if ends is None:
        return position
    undecided = max(0, ends.high_watermark - ends.last_stable_offset)
    return replace(position, end_offset=ends.last_stable_offset, undecided_count=undecided)


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
