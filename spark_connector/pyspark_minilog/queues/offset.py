"""The offset of a stream that reads a queue: the leases of one micro-batch, as JSON in the checkpoint. Pure.

    {"__queue": "shipping", "leases": {"17": {"orders": [[0, 5, 9, 1, 2]]}}, "topic_ids": {"orders": "<uuid>"}}

A range is [partition, first offset, last offset, delivery count, leader epoch], with both offsets included. Lease ids
are never used again, so each batch has an offset of its own. A query that has read nothing yet has an offset without
leases. `__schema_versions` is there for topics with a schema, as in the offsets of other streams (options/offsets.py).
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.offsets import QUEUE_KEY, VERSIONS_KEY, Partition, written_later
from pyspark_minilog.reading.planning import PlannedRange, gathered

if TYPE_CHECKING:
    from minilog.v1 import queue_pb2

_LEASES, _TOPIC_IDS = "leases", "topic_ids"
MAX_RANGES = 10_000  # of one batch: some hundred kibibytes of the checkpoint, and ten requests that settle them


class LeasedOffsets(NamedTuple):
    """Leased offsets of one partition, both included. Some of them may hold no record."""

    partition: Partition
    first: int
    last: int
    delivery_count: int
    leader_epoch: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class QueueLease(NamedTuple):
    """The ranges of one lease."""

    lease_id: int
    ranges: tuple[LeasedOffsets, ...]


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The leases of one batch of a queue, the ids of their topics, and the schema versions of topics with a schema."""

    queue: str
    leases: tuple[QueueLease, ...] = ()
    topic_ids: dict[str, str] = field(default_factory=dict)
    schema_versions: dict[str, int] = field(default_factory=dict)

    @property
    def lease_ids(self) -> list[int]:
        return [lease.lease_id for lease in self.leases]

    @property
    def count(self) -> int:
        """The number of leased offsets."""
        return sum(leased.size for lease in self.leases for leased in lease.ranges)

    def to_json(self) -> dict[str, Any]:
        """The dictionary for Spark, sorted."""
        versions = {VERSIONS_KEY: dict(sorted(self.schema_versions.items()))} if self.schema_versions else {}
        leases = {str(lease.lease_id): _by_topic(lease.ranges) for lease in self.leases}
        return {QUEUE_KEY: self.queue, **versions, _LEASES: leases, _TOPIC_IDS: dict(sorted(self.topic_ids.items()))}

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> QueueOffset:
        """Reads an offset of a checkpoint. Raises InvalidOption if it is not of a queue."""
        if QUEUE_KEY not in offset:
            raise InvalidOption(
                "the checkpoint is of a query without the option 'queue', and a queue cannot go on from its offsets: "
                "begin with a new checkpoint"
            )
        try:
            leases = tuple(_lease(int(lease_id), topics) for lease_id, topics in offset[_LEASES].items())
            return cls(offset[QUEUE_KEY], leases, dict(offset[_TOPIC_IDS]), dict(offset.get(VERSIONS_KEY, {})))
        except (AttributeError, KeyError, TypeError, ValueError, IndexError):
            raise written_later("leases of a queue", offset) from None

    def planned(self) -> list[PlannedRange]:
        """What a batch reads: the leased ranges in order. Neighbouring ranges are one, whatever lease they are of."""
        planned: list[PlannedRange] = []
        for leased in sorted(leased for lease in self.leases for leased in lease.ranges):
            first, end, topic_id = leased.first, leased.last + 1, self.topic_ids[leased.partition.topic]
            if planned and planned[-1].partition == leased.partition and planned[-1].end == first:
                first = planned.pop().start
            planned.append(PlannedRange(leased.partition, first, end, topic_id))
        return planned

    def settlements(self, verdict: queue_pb2.Verdict.ValueType) -> list[queue_pb2.Settlement]:
        """One verdict for all ranges, each under its lease."""
        from minilog.v1 import common_pb2, queue_pb2

        return [
            queue_pb2.Settlement(
                lease_id=lease.lease_id,
                partition_id=common_pb2.PartitionId(
                    topic_id=uuid.UUID(self.topic_ids[leased.partition.topic]).bytes,
                    partition=leased.partition.partition,
                ),
                first_offset=leased.first,
                last_offset=leased.last,
                verdict=verdict,
            )
            for lease in self.leases
            for leased in lease.ranges
        ]

    def name(self) -> str:
        """A name of this batch that no other batch has: no two leases of a queue have one id."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def _lease(lease_id: int, topics: Mapping[str, Sequence[Sequence[int]]]) -> QueueLease:
    ranges = [LeasedOffsets(Partition(topic, part[0]), *part[1:]) for topic, parts in topics.items() for part in parts]
    return QueueLease(lease_id, tuple(ranges))


def _by_topic(ranges: Iterable[LeasedOffsets]) -> dict[str, list[list[int]]]:
    topics: dict[str, list[list[int]]] = {}
    for leased in sorted(ranges):
        part = [leased.partition.partition, leased.first, leased.last, leased.delivery_count, leased.leader_epoch]
        topics.setdefault(leased.partition.topic, []).append(part)
    return topics


def leased_ranges(response: queue_pb2.LeaseResponse, topic_names: Mapping[bytes, str]) -> QueueLease:
    """The lease of an answer. The request named all topics of `topic_names`."""
    return QueueLease(
        response.lease_id,
        tuple(
            LeasedOffsets(
                Partition(topic_names[leased.partition_id.topic_id], leased.partition_id.partition),
                leased.first_offset,
                leased.last_offset,
                leased.delivery_count,
                leased.leader_epoch,
            )
            for leased in response.ranges
        ),
    )


def gathered_parts(ranges: Sequence[PlannedRange]) -> list[tuple[tuple[PlannedRange, ...], ...]]:
    """The ranges of each task, in parts that a task reads one after the other. A part has at most one range of a
    partition. Small ranges share a task: a queue often leases few offsets here and there."""
    return [_parts(task) for task in gathered(ranges)]


def _parts(ranges: Iterable[PlannedRange]) -> tuple[tuple[PlannedRange, ...], ...]:
    parts: list[dict[Partition, PlannedRange]] = []
    for planned_range in ranges:
        free = next((part for part in parts if planned_range.partition not in part), None)
        if free is None:
            parts.append(free := {})
        free[planned_range.partition] = planned_range
    return tuple(tuple(part.values()) for part in parts)
