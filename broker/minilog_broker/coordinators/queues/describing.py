"""A partition of a queue, as people see it."""

from __future__ import annotations

from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.locks import LeaseName, Locks
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue, due_ms
from minilog_broker.coordinators.queues.ranges import Range, RangeState
from minilog_broker.coordinators.queues.records import QueueKey
from minilog_broker.coordinators.queues.stable_offsets import StableOffset


def described_partition(
    key: QueueKey, state: PartitionQueue, stable: StableOffset | None, locks: Locks, now_ms: float, activated_ms: float
) -> queue_pb2.DescribedQueuePartition:
    """The ranges of a partition, with the workers that have them and the time that is left of locks and delays."""
    assert key.partition is not None

    def described(current: Range) -> queue_pb2.DescribedRange:
        name = LeaseName(key.owner, current.lease_id)
        end_ms = due_ms(current, activated_ms) if current.state is RangeState.READY else locks.end_ms(name)
        return queue_pb2.DescribedRange(
            first_offset=current.first,
            last_offset=current.last,
            state=queue_pb2.RangeState.ValueType(current.state),
            delivery_count=current.delivery_count,
            lease_id=current.lease_id,
            worker_id=locks.worker(name) if current.lease_id else "",
            remaining_ms=int(max(0.0, end_ms - now_ms)),
        )

    return queue_pb2.DescribedQueuePartition(
        partition_id=key.partition.to_wire(),
        settled_to=state.settled_to,
        next_offset=state.next_offset,
        last_stable_offset=-1 if stable is None else stable.last_stable_offset,
        ranges=map(described, state.ranges),
    )
