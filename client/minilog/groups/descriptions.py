"""How far groups have got, and where they are told to go on. Pure: what was asked of the brokers comes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minilog.errors import InvalidArgument, UnstableOffsetCommit
from minilog.partition_key import PartitionKey
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
    """What may be read of a partition now."""

    log_start_offset: int
    end_offset: int


Names = Mapping[bytes, str]
"""Of topics, by their ids."""


def named(key: PartitionKey, names: Names) -> TopicPartition | None:
    """None for a topic that is not there any more: its coordinator forgets what was committed of it."""
    name = names.get(key.topic_id)
    return None if name is None else TopicPartition(name, key.partition)


def committed_positions(
    told: Iterable[coordinator_pb2.CommittedOffset | coordinator_pb2.OffsetToCommit], names: Names
) -> dict[TopicPartition, int]:
    """The offsets of partitions of topics that are there, sorted."""
    found = {named(PartitionKey.of(each.partition_id), names): each.offset for each in told}
    return {each: found[each] for each in sorted(partition for partition in found if partition is not None)}


def unread(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, ReadableEnds]
) -> dict[TopicPartition, ReadableEnds]:
    """What each group's partition that is behind has before it: from the next offset that the log still holds on."""
    found = {
        each: ReadableEnds(max(offset, ends[each].log_start_offset), ends[each].end_offset)
        for each, offset in positions.items()
        if each in ends
    }
    return {each: left for each, left in found.items() if left.log_start_offset < left.end_offset}


def describe_group(
    told: coordinator_pb2.DescribeGroupResponse,
    group_id: str,
    names: Names,
    ends: Mapping[TopicPartition, ReadableEnds],
    ages_s: Mapping[TopicPartition, float | None],
) -> GroupDescription:
    """`ages_s`: of the first record that is not read, of the partitions that are behind."""
    positions = committed_positions(told.offsets, names)
    behind = unread(positions, ends)
    by_partition = {named(PartitionKey.of(each.partition_id), names): each for each in told.offsets}
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
        PendingOffsets(each.transactional_id, each.producer_id, committed_positions(each.offsets, names))
        for each in told.pending
    ]
    members = [_member(each, names) for each in told.members]
    return GroupDescription(group_id, offsets, pending, members, told.group_epoch, told.assignor)


def _member(told: coordinator_pb2.DescribedMember, names: Names) -> GroupMember:
    def partitions(ids: Iterable[common_pb2.PartitionId]) -> list[TopicPartition]:
        found = (named(PartitionKey.of(each), names) for each in ids)
        return sorted(partition for partition in found if partition is not None)

    return GroupMember(
        member_id=told.member_id,
        instance_id=told.instance_id,
        rack=told.rack_id,
        client_id=told.client_id,
        client_host=told.client_host,
        member_epoch=told.member_epoch,
        topics=list(told.topics),
        assigned=partitions(told.assigned),
        revoking=partitions(told.revoking),
        target=partitions(told.target),
        is_away=told.away,
        silent_seconds=told.silent_ms / 1000.0,
    )


def _lag(left: ReadableEnds | None) -> int:
    return 0 if left is None else left.end_offset - left.log_start_offset


def check_none_pending(group_id: str, told: coordinator_pb2.DescribeGroupResponse) -> None:
    """Raises UnstableOffsetCommit: the end of the transaction could change what a seek says."""
    for each in told.pending:
        if not each.transactional_id:
            raise UnstableOffsetCommit(
                f"group '{group_id}' has offsets of a transaction that has not ended, and that this client may not "
                "describe: seek when it has ended"
            )
        raise UnstableOffsetCommit(
            f"group '{group_id}' has offsets of transaction '{each.transactional_id}' that has not ended: seek when it "
            f"has, or abort it (minilog transaction abort {each.transactional_id})"
        )


def timestamp_of(partition: TopicPartition, to: GroupPosition) -> int | None:
    """The timestamp to look up in milliseconds, None for a position that is none. Raises InvalidArgument."""
    if isinstance(to, int) and not isinstance(to, bool) and to >= 0:
        return None
    if to in ("earliest", "latest"):
        return None
    if isinstance(to, str) and to.startswith("@") and to[1:].isascii() and to[1:].isdigit():
        return int(to[1:])
    raise InvalidArgument(
        f"partition {partition.partition} of topic {partition.topic!r} cannot go on at {to!r}: give an offset, "
        '"earliest", "latest", or "@" and milliseconds since 1970'
    )


def look_ups(to: Mapping[TopicPartition, GroupPosition]) -> dict[TopicPartition, OffsetSpec]:
    """The timestamps to look up. Raises InvalidArgument."""
    found = {partition: timestamp_of(partition, each) for partition, each in to.items()}
    return {partition: timestamp for partition, timestamp in found.items() if timestamp is not None}


def place(partition: TopicPartition, to: GroupPosition, found: int | None, ends: ReadableEnds) -> int:
    """The offset meant; `found` is the answer to a look-up, and where no record is as young the end is meant. Raises
    InvalidArgument for an offset that the log does not hold."""
    if to == "earliest":
        return ends.log_start_offset
    if isinstance(to, str):
        return ends.end_offset if found is None else min(max(found, ends.log_start_offset), ends.end_offset)
    if not ends.log_start_offset <= to <= ends.end_offset:
        raise InvalidArgument(
            f"partition {partition.partition} of topic {partition.topic!r} cannot go on at {to}: its log goes from "
            f"{ends.log_start_offset} to {ends.end_offset}"
        )
    return to
