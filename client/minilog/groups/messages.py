"""What is asked of the coordinators of groups, and what is made of their answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minilog.errors import error_from_wire
from minilog.partition_key import PartitionKey
from minilog.types import GroupMetadata
from minilog.v1 import coordinator_pb2

_NOT_KNOWN = -1


class Committed(NamedTuple):
    """An offset of a group: the next to read, and the leader epoch of the record before it, None where not known.
    `metadata`: a text that the committer stores with it."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


def commit_request(
    group_id: str,
    offsets: Mapping[PartitionKey, Committed],
    transaction: coordinator_pb2.TransactionalCommit | None = None,
    member: coordinator_pb2.GroupMember | None = None,
) -> coordinator_pb2.CommitOffsetsRequest:
    """All or none of them are committed; with a `transaction` when that is."""
    return coordinator_pb2.CommitOffsetsRequest(
        group_id=group_id,
        offsets=[
            coordinator_pb2.OffsetToCommit(
                partition_id=key.to_wire(),
                offset=each.offset,
                leader_epoch=_NOT_KNOWN if each.leader_epoch is None else each.leader_epoch,
                metadata=each.metadata,
            )
            for key, each in sorted(offsets.items())
        ],
        transaction=transaction,
        member=member,
    )


def committing_member(committer: GroupMetadata) -> coordinator_pb2.GroupMember | None:
    """None for who is no member."""
    if not committer.member_id:
        return None
    return coordinator_pb2.GroupMember(member_id=committer.member_id, member_epoch=committer.member_epoch)


def fetch_request(group_id: str, keys: Iterable[PartitionKey]) -> coordinator_pb2.FetchOffsetsRequest:
    """At least one key: none would mean all that is committed."""
    return coordinator_pb2.FetchOffsetsRequest(group_id=group_id, partitions=[key.to_wire() for key in keys])


def committed_offsets(response: coordinator_pb2.FetchOffsetsResponse) -> dict[PartitionKey, Committed]:
    """Of the partitions for which anything is. Raises the error of one that has no answer, UnstableOffsetCommit."""
    found: dict[PartitionKey, Committed] = {}
    for each in response.offsets:
        error = error_from_wire(each.error)
        if error is not None:
            raise error
        if each.offset >= 0:
            epoch = each.leader_epoch if each.leader_epoch >= 0 else None
            found[PartitionKey.of(each.partition_id)] = Committed(each.offset, epoch)
    return found


def delete_request(group_id: str, keys: Sequence[PartitionKey]) -> coordinator_pb2.DeleteGroupRequest:
    """No keys: all of the group."""
    return coordinator_pb2.DeleteGroupRequest(group_id=group_id, partitions=[key.to_wire() for key in keys])
