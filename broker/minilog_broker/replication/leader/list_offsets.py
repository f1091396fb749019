"""The leader's answer to the question for the ends of its log.

The disk's threads look up offsets by time and by size in the files later, within these ends
(server/disk/offset_lookups.py).
"""

from __future__ import annotations

from minilog.errors import InvalidArgument
from minilog.v1 import metadata_pb2
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.storage.compaction.due import dirty_bytes

MAX_SIZES = 64  # in one question, because each costs a search in the index


def list_offsets(
    log: ReplicaLog, entry: metadata_pb2.ListOffsetsEntry, leader_epoch: int, *, is_compacted: bool
) -> metadata_pb2.ListOffsetsResult:
    """The four ends of the log, as one snapshot. "latest" is the high watermark, or the last stable offset for
    read_committed.

    Raises InvalidArgument."""
    ends = log.ends()
    result = metadata_pb2.ListOffsetsResult(
        partition_id=entry.partition_id,
        leader_epoch=leader_epoch,
        log_start_offset=ends.log_start_offset,
        last_stable_offset=ends.last_stable_offset,
        high_watermark=ends.high_watermark,
        log_end_offset=ends.log_end_offset,
        clean_to=ends.compaction.clean_to,
    )
    if len(entry.sizes_bytes) > MAX_SIZES:
        partition = entry.partition_id.partition
        raise InvalidArgument(
            f"partition {partition}: a question may name at most {MAX_SIZES} sizes, and this one names "
            f"{len(entry.sizes_bytes)}"
        )
    if entry.with_replicas:
        result.size_bytes = log.log.size_bytes
        if is_compacted:
            result.dirty_bytes = dirty_bytes(log.log).dirty_bytes
    return result
