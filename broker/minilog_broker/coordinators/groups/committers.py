"""The right to commit the offsets of a group. A group with members takes commits of its members alone. A group without
members takes anybody's.

A member commits offsets of the partitions that it holds. It got the partition in an epoch up to the one that the commit
names, and that epoch is not above the member's. So its commits go on while its epoch moves for the sake of other
partitions. The former holder of a partition cannot commit for it (KIP-1251. Kafka first compared the epochs alone, and
refused commits that were on their way).

Only its own principal commits in the name of a member. For others it is not there.
"""

from __future__ import annotations

from minilog.errors import StaleMemberEpoch, UnknownMemberId
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.groups.offsets import GroupTable
from minilog_broker.coordinators.groups.records import GroupKey, GroupPart, Held, Member


def check_speaker(table: GroupTable, request: coordinator_pb2.CommitOffsetsRequest, principal: str) -> None:
    """Raises UnknownMemberId where the commit names a member of another principal."""
    if not request.HasField("member"):
        return
    member = table.get(GroupKey(request.group_id, part=GroupPart.MEMBER, member_id=request.member.member_id))
    if isinstance(member, Member) and not member.is_of(principal):
        raise _unknown(request)


def check_committer(table: GroupTable, request: coordinator_pb2.CommitOffsetsRequest) -> None:
    """Raises UnknownMemberId, StaleMemberEpoch."""
    group = request.group_id
    if not request.HasField("member"):
        if table.get(GroupKey(group, part=GroupPart.GROUP)) is not None:
            raise UnknownMemberId(
                f"group '{group}' has members, and only they commit: join it (group.protocol=consumer), wait until its "
                f"members have left, or use another group. `minilog group describe {group}` shows them"
            )
        return
    member_id, epoch = request.member.member_id, request.member.member_epoch
    held = table.get(GroupKey(group, part=GroupPart.HELD, member_id=member_id))
    if not isinstance(held, Held):
        raise _unknown(request)
    for new_offset in request.offsets:
        key = PartitionKey.of(new_offset.partition_id)
        given = held.given(key)
        if given is None or not given.given_epoch <= epoch <= held.member_epoch:
            raise StaleMemberEpoch(
                f"group '{group}': partition {key.partition} of topic id {key.topic_id.hex()} is not of member "
                f"'{member_id}' in its epoch {epoch}: nothing of the commit was done"
            )


def _unknown(request: coordinator_pb2.CommitOffsetsRequest) -> UnknownMemberId:
    return UnknownMemberId(
        f"group '{request.group_id}' has no member '{request.member.member_id}' of this user: it left, or was silent "
        "for the session time-out"
    )
