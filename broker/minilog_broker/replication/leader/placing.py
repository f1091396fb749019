"""How a leader gives a batch its place: the next offset of the log, and its leader epoch."""

from __future__ import annotations

from dataclasses import replace

from minilog.record_batch.header import PLACEMENT_BYTES, BatchHeader, Buffer, placement
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.replication.replica_effects import AppendToLog, PlacedBatches
from minilog_broker.replication.replica_log import QueuedAppend, ReplicaLog
from minilog_broker.storage.markers import Marker


def append_at_end(
    context: ReplicationContext,
    key: PartitionKey,
    log: ReplicaLog,
    leader_epoch: int,
    header: BatchHeader,
    batch: Buffer,
    markers: tuple[Marker, ...] = (),
) -> BatchHeader:
    """Queue the batch behind all that was given to the disk; its header, as it is in the log. `markers`: its own."""
    offset = log.end
    placed = replace(header, base_offset=offset, partition_leader_epoch=leader_epoch)
    buffers = (placement(batch, offset, leader_epoch), memoryview(batch)[PLACEMENT_BYTES:])
    log.queue_append(QueuedAppend((placed,), header.length, None, {offset: markers} if markers else {}))
    context.emit(AppendToLog(key, PlacedBatches((placed,), buffers)))
    return placed
