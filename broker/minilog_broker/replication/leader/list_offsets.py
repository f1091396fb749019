"""What a leader answers who asks for the ends of its log. Offsets by time and by size are looked up in the files, later
and within these ends (server/disk/offset_lookups.py)."""

from __future__ import annotations

from minilog.errors import InvalidArgument
from minilog.v1 import metadata_pb2
from minilog_broker.replication.replica_log import ReplicaLog

MAX_SIZES = 64  # in one question: each costs a search in the index


def list_offsets(
    log: ReplicaLog, entry: metadata_pb2.ListOffsetsEntry, leader_epoch: int
) -> metadata_pb2.ListOffsetsResult:
    """The four ends are one snapshot: "latest" is the high watermark or, read_committed, the last stable offset.

    Raises InvalidArgument."""
    ends = log.ends()
    result = metadata_pb2.ListOffsetsResult(
        partition_id=entry.partition_id,
        leader_epoch=leader_epoch,
        log_start_offset=ends.log_start_offset,
        last_stable_offset=ends.last_stable_offset,
        high_watermark=ends.high_watermark,
        log_end_offset=ends.log_end_offset,
    )
    if len(entry.sizes_bytes) > MAX_SIZES:
        partition = entry.partition_id.partition
        raise InvalidArgument(
            f"partition {partition}: {len(entry.sizes_bytes)} sizes are asked for, at most {MAX_SIZES} may be"
        )
    if entry.with_replicas:
        result.size_bytes = log.log.size_bytes
    return result
