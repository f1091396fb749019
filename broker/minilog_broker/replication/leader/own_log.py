"""The broker's own logs: partitions of internal topics, to which it appends the decisions of its coordinators.

Such an append has no time-out and no answer. It is committed when the high watermark covers it. If it is dropped, the
effect StoppedLeading or another BeganToLead (replica_effects.py) reports that. An append names the offset that it is
meant for. So if a coordinator does not know of the change yet, the log refuses its append. Clients read these logs and
never write to them.
"""

from __future__ import annotations

from minilog.errors import InvalidTopic, MessageTooLarge, NotEnoughReplicas, NotLeaderOrFollower
from minilog.net.coordinators_of import INTERNAL_TOPIC_NAMES
from minilog.record_batch.header import Buffer, decode_header
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.leader.delete_records import advance_log_start
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.leader.produce import append_at_end
from minilog_broker.replication.replica_effects import BeganToLead, HighWatermarkMoved, StoppedLeading


def require_own_room(leader: LeaderPartition, leader_epoch: int, now_ms: float) -> None:
    """Check that a coordinator may decide now. The log takes its decision even if this changes before the append.

    Raises NotLeaderOrFollower if the epoch is over, NotEnoughReplicas or NoSpace if the coordinator may go on."""
    if not leader.leading or leader.leader_epoch != leader_epoch:
        raise NotLeaderOrFollower(f"{leader}: leader epoch {leader_epoch} has ended here")
    leader.require_space(now_ms)
    members = leader.state.in_sync_replicas
    if len(members) < leader.min_in_sync:
        raise NotEnoughReplicas(
            f"{leader}: the ISR {list(members)} is below min.insync.replicas={leader.min_in_sync}: nothing was written"
        )


def append_own(
    context: ReplicationContext,
    leader: LeaderPartition,
    leader_epoch: int,
    base_offset: int,
    batch: Buffer,
) -> int:
    """Append one batch at `base_offset`, at once. Returns the log's end behind it.

    Raises NotLeaderOrFollower if the epoch is over or the log does not end at `base_offset`. Raises MessageTooLarge if
    nothing was written and the coordinator may go on."""
    if not leader.leading or leader.leader_epoch != leader_epoch or leader.log.end != base_offset:
        raise NotLeaderOrFollower(f"{leader}: leader epoch {leader_epoch} has ended here at offset {base_offset}")
    header = decode_header(batch)
    if header.length > leader.config.max_message_bytes:
        raise MessageTooLarge(
            f"{leader}: a decision of {header.length} bytes is larger than "
            f"max.message.bytes={leader.config.max_message_bytes}"
        )
    return append_at_end(context, leader.key, leader.log, leader_epoch, header, batch).next_offset


def delete_own_records(
    context: ReplicationContext, leader: LeaderPartition | None, leader_epoch: int, offset: int
) -> None:
    """Delete the records below `offset`, here and then on the followers. If the epoch is over, do nothing, because the
    next coordinator deletes the records that it does not need."""
    if leader is not None and leader.leading and leader.leader_epoch == leader_epoch:
        advance_log_start(context, leader.key, leader.log, offset)


def refuse_client(leader: LeaderPartition) -> None:
    """Raises InvalidTopic if only brokers write to the partition."""
    if is_own(leader):
        raise InvalidTopic(f"{leader} belongs to an internal topic: clients may read it, and only brokers write to it")


def is_own(leader: LeaderPartition) -> bool:
    return leader.state.topic_name in INTERNAL_TOPIC_NAMES


def tell_leadership(context: ReplicationContext, leader: LeaderPartition) -> None:
    """Report that the partition leads from now on, or that some of its appends were dropped."""
    if is_own(leader):
        context.emit(BeganToLead(leader.key, leader.state.topic_name, leader.leader_epoch, leader.log.end))
        tell_high_watermark(context, leader)


def tell_high_watermark(context: ReplicationContext, leader: LeaderPartition) -> None:
    """Report the high watermark, for which a coordinator waits."""
    if is_own(leader):
        context.emit(HighWatermarkMoved(leader.key, leader.leader_epoch, leader.log.high_watermark))


def tell_leadership_ended(context: ReplicationContext, leader: LeaderPartition) -> None:
    """Report that the partition takes no appends any more."""
    if leader.leading and is_own(leader):
        context.emit(StoppedLeading(leader.key))
