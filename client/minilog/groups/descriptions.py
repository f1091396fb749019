"""The positions of groups and their lag, and the offsets of a seek. Pure: the answers of the brokers come in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minilog.errors import InvalidArgument, UnstableOffsetCommit
from minilog.partition_key import PartitionKey
from minilog.place_words import named_place
from minilog.types import (
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupPosition,
    OffsetSpec,
    PendingOffsets,
    TopicPartition,
)
from minilog.v1 import common_pb2, coordinator_pb2


class ReadableEnds(NamedTuple):
    """The range of offsets that a consumer may read of a partition now."""

    log_start_offset: int
    end_offset: int


Names = Mapping[bytes, str]
"""The names of topics, by their ids."""


def named(key: PartitionKey, names: Names) -> TopicPartition | None:
    """The partition with its topic's name. None if the topic is deleted: the coordinator forgets its offsets soon."""
    name = names.get(key.topic_id)
    return None if name is None else TopicPartition(name, key.partition)


def committed_positions(
    commits: Iterable[coordinator_pb2.CommittedOffset | coordinator_pb2.OffsetToCommit], names: Names
) -> dict[TopicPartition, int]:
    """The offsets by partition, sorted, without the partitions of deleted topics."""
    offsets = {named(PartitionKey.of(commit.partition_id), names): commit.offset for commit in commits}
    return {
        partition: offsets[partition]
        for partition in sorted(partition for partition in offsets if partition is not None)
    }


def unread(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, ReadableEnds]
) -> dict[TopicPartition, ReadableEnds]:
    """The offsets that the group has not read, of each partition that is behind. A stretch begins at the first of them
    that the log still holds."""
    stretches = {
        partition: ReadableEnds(max(offset, ends[partition].log_start_offset), ends[partition].end_offset)
        for partition, offset in positions.items()
        if partition in ends
    }
    return {
        partition: stretch for partition, stretch in stretches.items() if stretch.log_start_offset < stretch.end_offset
    }


def describe_group(
    response: coordinator_pb2.DescribeGroupResponse,
    group_id: str,
    names: Names,
    ends: Mapping[TopicPartition, ReadableEnds],
    ages_s: Mapping[TopicPartition, float | None],
) -> GroupDescription:
    """`ages_s`: the age of the first unread record, of each partition that is behind."""
    positions = committed_positions(response.offsets, names)
    behind = unread(positions, ends)
    by_partition = {named(PartitionKey.of(commit.partition_id), names): commit for commit in response.offsets}
    offsets = [
        GroupOffset(
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            metadata=by_partition[partition].metadata,
            committed_ms=by_partition[partition].committed_us // 1000,
            end_offset=ends[partition].end_offset if partition in ends else None,
            lag_records=_lag(behind.get(partition)) if partition in ends else None,
            lag_seconds=ages_s.get(partition, 0.0) if partition in ends else None,
        )
        for partition, offset in positions.items()
    ]
    pending = [
        PendingOffsets(
            transaction.transactional_id, transaction.producer_id, committed_positions(transaction.offsets, names)
        )
        for transaction in response.pending
    ]
    members = [_member(member, names) for member in response.members]
    return GroupDescription(group_id, offsets, pending, members, response.group_epoch, response.assignor)


def _member(member: coordinator_pb2.DescribedMember, names: Names) -> GroupMember:
    def partitions(ids: Iterable[common_pb2.PartitionId]) -> list[TopicPartition]:
        keys = map(PartitionKey.of, ids)
        return sorted(partition for key in keys if (partition := named(key, names)) is not None)

    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_epoch=member.member_epoch,
        topics=list(member.topics),
        assigned=partitions(member.assigned),
        revoking=partitions(member.revoking),
        target=partitions(member.target),
        is_away=member.away,
        silent_seconds=member.silent_ms / 1000.0,
    )


def _lag(left: ReadableEnds | None) -> int:
    return 0 if left is None else left.end_offset - left.log_start_offset


def check_none_pending(group_id: str, response: coordinator_pb2.DescribeGroupResponse) -> None:
    """Raises UnstableOffsetCommit: the end of the transaction could overwrite the offsets of a seek."""
    for transaction in response.pending:
        if not transaction.transactional_id:
            raise UnstableOffsetCommit(
                f"group '{group_id}' has offsets of an open transaction, which this client may not describe: seek when "
                "it has ended"
            )
        raise UnstableOffsetCommit(
            f"group '{group_id}' has offsets of the open transaction '{transaction.transactional_id}': seek when it "
            f"has ended, or abort it (minilog transaction abort {transaction.transactional_id})"
        )


def timestamp_of(partition: TopicPartition, to: GroupPosition) -> int | None:
    """The timestamp to look up, in milliseconds. None for a position that is no timestamp. Raises InvalidArgument."""
    if isinstance(to, int) and not isinstance(to, bool) and to >= 0:
        return None
    if named_place(to) in ("earliest", "latest"):
        return None
    if isinstance(to, str) and to.startswith("@") and to[1:].isascii() and to[1:].isdigit():
        return int(to[1:])
    raise InvalidArgument(
        f"partition {partition.partition} of topic {partition.topic!r} cannot go on at {to!r}: give an offset, "
        '"earliest", "latest", or "@" and milliseconds since 1970'
    )


def look_ups(to: Mapping[TopicPartition, GroupPosition]) -> dict[TopicPartition, OffsetSpec]:
    """The timestamps to look up. Raises InvalidArgument."""
    timestamps = {partition: timestamp_of(partition, position) for partition, position in to.items()}
    return {partition: timestamp for partition, timestamp in timestamps.items() if timestamp is not None}


def place(partition: TopicPartition, to: GroupPosition, first_offset: int | None, ends: ReadableEnds) -> int:
    """The offset of this position. For a timestamp, `first_offset` is the first record at or after it. Without such a
    record it is None, and the position is the end. Raises InvalidArgument for an offset that the log does not hold."""
    if named_place(to) == "earliest":
        return ends.log_start_offset
    if isinstance(to, str):
        return (
            ends.end_offset if first_offset is None else min(max(first_offset, ends.log_start_offset), ends.end_offset)
        )
    if not ends.log_start_offset <= to <= ends.end_offset:
        raise InvalidArgument(
            f"partition {partition.partition} of topic {partition.topic!r} cannot go on at {to}: its log goes from "
            f"{ends.log_start_offset} to {ends.end_offset}"
        )
    return to
