"""Queues, as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.holdings import Tally
from minilog_broker.coordinators.queues.leasing import Leasing
from minilog_broker.coordinators.queues.locks import LeaseName, Locks
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.ranges import Range, RangeState


class QueueProgress(NamedTuple):
    """Of a queue in a partition: what is settled, and the end of what may be leased."""

    settled_to: int
    last_stable_offset: int


@dataclass(slots=True)
class RecordCounts:
    """The unsettled offsets of a queue by their state, all that died, and the expired and redelivered ones of this
    term. `dead_letters`: those that wait for their way to the dead-letter topic. `progress`: in the partitions whose
    leaders have reported."""

    ready: int = 0
    leased: int = 0
    settling: int = 0
    fresh: int = 0
    dead_letters: int = 0
    dead: int = 0
    expired: int = 0
    redelivered: int = 0
    progress: dict[QueueKey, QueueProgress] = field(default_factory=dict)

    def add(self, key: QueueKey, state: PartitionQueue, last_stable_offset: int | None) -> None:
        """Count a partition. `last_stable_offset`: as far as it is known."""
        for part in state.ranges:
            match part.state:
                case RangeState.READY:
                    self.ready += part.count
                case RangeState.LEASED:
                    self.leased += part.count
                case RangeState.SETTLING:
                    self.settling += part.count
                case RangeState.DEAD:
                    self.dead_letters += part.count
        if last_stable_offset is not None:
            self.fresh += max(0, last_stable_offset - state.next_offset)
            self.progress[key] = QueueProgress(state.settled_to, last_stable_offset)


def listing(queue: str, tallies: Sequence[Tally]) -> queue_pb2.QueueListing:
    """A queue as a line. `tallies`: of its partitions."""
    held = sum(tally.held for tally in tallies)
    return queue_pb2.QueueListing(queue=queue, partition_count=len(tallies), leased_count=held)


def described_partition(
    key: QueueKey, state: PartitionQueue, leasing: Leasing, locks: Locks, now_ms: float
) -> queue_pb2.DescribedQueuePartition:
    """The ranges of a partition, with the workers that have them and the time that is left of locks and delays."""
    assert key.partition is not None
    stable = leasing.stable(key)

    def described(part: Range) -> queue_pb2.DescribedRange:
        name = LeaseName(key.owner, part.lease_id)
        end_ms = locks.end_ms(name) if part.lease_id else leasing.due_ms(part)
        return queue_pb2.DescribedRange(
            first_offset=part.first,
            last_offset=part.last,
            state=queue_pb2.RangeState.ValueType(part.state),
            delivery_count=part.delivery_count,
            lease_id=part.lease_id,
            worker_id=locks.worker(name) if part.lease_id else "",
            remaining_ms=int(max(0.0, end_ms - now_ms)),
            death_reason=part.death_reason,
        )

    return queue_pb2.DescribedQueuePartition(
        partition_id=key.partition.to_wire(),
        settled_to=state.settled_to,
        next_offset=state.next_offset,
        last_stable_offset=-1 if stable is None else stable.last_stable_offset,
        ranges=map(described, state.ranges),
    )
