"""The requests to the coordinators of groups, and the reading of their answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minilog.errors import error_from_wire
from minilog.partition_key import PartitionKey
from minilog.types import GroupMetadata
from minilog.v1 import coordinator_pb2

_NO_EPOCH = -1


class Committed(NamedTuple):
    """A committed offset: the next to read. `leader_epoch` is that of the record before it, or None if the client does
    not know it. `metadata` is a text that the committer stores with the offset."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


def commit_request(
    group_id: str,
    offsets: Mapping[PartitionKey, Committed],
    transaction: coordinator_pb2.TransactionalCommit | None = None,
    member: coordinator_pb2.GroupMember | None = None,
) -> coordinator_pb2.CommitOffsetsRequest:
    """The coordinator commits all of these offsets or none, and with a `transaction` at its commit."""
    return coordinator_pb2.CommitOffsetsRequest(
        group_id=group_id,
        offsets=[
            coordinator_pb2.OffsetToCommit(
                partition_id=key.to_wire(),
                offset=commit.offset,
                leader_epoch=_NO_EPOCH if commit.leader_epoch is None else commit.leader_epoch,
                metadata=commit.metadata,
            )
            for key, commit in sorted(offsets.items())
        ],
        transaction=transaction,
        member=member,
    )


def committing_member(committer: GroupMetadata) -> coordinator_pb2.GroupMember | None:
    """The member of the request. None if the committer is no member."""
    if not committer.member_id:
        return None
    return coordinator_pb2.GroupMember(member_id=committer.member_id, member_epoch=committer.member_epoch)


def fetch_request(group_id: str, keys: Iterable[PartitionKey]) -> coordinator_pb2.FetchOffsetsRequest:
    """Give at least one key: without keys the coordinator answers with every offset of the group."""
    return coordinator_pb2.FetchOffsetsRequest(group_id=group_id, partitions=[key.to_wire() for key in keys])


def committed_offsets(response: coordinator_pb2.FetchOffsetsResponse) -> dict[PartitionKey, Committed]:
    """The committed offsets, without the partitions that have none. Raises the error of a partition,
    UnstableOffsetCommit."""
    commits: dict[PartitionKey, Committed] = {}
    for answer in response.offsets:
        error = error_from_wire(answer.error)
        if error is not None:
            raise error
        if answer.offset >= 0:
            epoch = answer.leader_epoch if answer.leader_epoch >= 0 else None
            commits[PartitionKey.of(answer.partition_id)] = Committed(answer.offset, epoch)
    return commits


def delete_request(group_id: str, keys: Sequence[PartitionKey]) -> coordinator_pb2.DeleteGroupRequest:
    """Without keys the coordinator deletes all offsets of the group."""
    return coordinator_pb2.DeleteGroupRequest(group_id=group_id, partitions=[key.to_wire() for key in keys])
