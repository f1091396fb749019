"""The calls to the coordinators of groups. Lives on one event loop.

A group is a name. Its coordinator keeps offsets under that name. A group may have members (member.py). Then only its
members commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from minilog.errors import MinilogError, UnstableOffsetCommit
from minilog.groups.messages import Committed, commit_request, committed_offsets, delete_request, fetch_request
from minilog.limits import MAX_GROUP_OFFSETS, parts_of
from minilog.net.coordinator_client import CoordinatorClient
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog.v1.coordinator_pb2_grpc import GroupServiceStub

_UNSTABLE_PAUSE_S = 0.1  # a transaction ends in some milliseconds, or after minutes
_log = logging.getLogger(__name__)


class Groups:
    """Every call ends within request.timeout.ms. It raises the errors of minilog.net.coordinator_client."""

    def __init__(self, cluster: NetworkClient) -> None:
        self._coordinators = CoordinatorClient(cluster)
        self._timeout_ms = cluster.config.request_timeout_ms

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[PartitionKey, Committed],
        transaction: coordinator_pb2.TransactionalCommit | None = None,
        member: coordinator_pb2.GroupMember | None = None,
    ) -> None:
        """Commit all of these offsets, or none. They are committed when this returns, or with their transaction.
        `member` is the member that commits, in a group with members. Raises UnknownOutcome, UnknownTopicId,
        InvalidArgument, ProducerFenced, UnknownMemberId, StaleMemberEpoch."""
        if offsets:
            await self._coordinators.call(
                GROUPS_TOPIC_NAME,
                group_id,
                lambda channel: GroupServiceStub(channel).CommitOffsets,
                commit_request(group_id, offsets, transaction, member),
                timeout_ms=self._timeout_ms,
            )

    async def fetch(self, group_id: str, keys: Iterable[PartitionKey]) -> dict[PartitionKey, Committed]:
        """The committed offsets, without the partitions that have none. If an open transaction may change an offset,
        this waits for the end of the transaction. Raises UnstableOffsetCommit when the time is over."""
        deadline_s = now_s() + self._timeout_ms / 1000.0
        offsets: dict[PartitionKey, Committed] = {}
        for part in parts_of(list(keys), MAX_GROUP_OFFSETS):
            offsets |= await self._fetch(group_id, fetch_request(group_id, part), deadline_s)
        return offsets

    async def _fetch(
        self, group_id: str, request: coordinator_pb2.FetchOffsetsRequest, deadline_s: float
    ) -> dict[PartitionKey, Committed]:
        unstable: UnstableOffsetCommit | None = None
        while True:
            try:
                response = await self._coordinators.call(
                    GROUPS_TOPIC_NAME,
                    group_id,
                    lambda channel: GroupServiceStub(channel).FetchOffsets,
                    request,
                    timeout_ms=max(1, int((deadline_s - now_s()) * 1000.0)),
                    changes=False,
                )
                return committed_offsets(response)
            except UnstableOffsetCommit as error:
                if now_s() + _UNSTABLE_PAUSE_S >= deadline_s:
                    raise
                _log.debug("asking again: %s", error)
                unstable = error
            except MinilogError as error:
                if unstable is None:
                    raise
                raise unstable from error  # the call had little time left: its error says less than the wait's
            await asyncio.sleep(_UNSTABLE_PAUSE_S)

    async def list(self) -> list[coordinator_pb2.GroupListing]:
        """The groups with committed or pending offsets, or with members, by name."""
        answers = await self._coordinators.call_all(
            GROUPS_TOPIC_NAME,
            lambda channel: GroupServiceStub(channel).ListGroups,
            coordinator_pb2.ListGroupsRequest(),
            timeout_ms=self._timeout_ms,
        )
        listings = {group.group_id: group for answer in answers for group in answer.groups}
        return [listings[group_id] for group_id in sorted(listings)]

    async def describe(self, group_id: str) -> coordinator_pb2.DescribeGroupResponse:
        """The committed and the pending offsets of the group, and its members. Raises GroupIdNotFound."""
        return await self._coordinators.call(
            GROUPS_TOPIC_NAME,
            group_id,
            lambda channel: GroupServiceStub(channel).DescribeGroup,
            coordinator_pb2.DescribeGroupRequest(group_id=group_id),
            timeout_ms=self._timeout_ms,
            changes=False,
        )

    async def remove_member(self, group_id: str, member: str) -> None:
        """Fence the member with this id or instance id. Raises UnknownMemberId."""
        await self._coordinators.call(
            GROUPS_TOPIC_NAME,
            group_id,
            lambda channel: GroupServiceStub(channel).RemoveMember,
            coordinator_pb2.RemoveMemberRequest(group_id=group_id, member=member),
            timeout_ms=self._timeout_ms,
        )

    async def delete(self, group_id: str, keys: Sequence[PartitionKey] = ()) -> None:
        """Delete the group's offsets of these partitions, and without `keys` all. Raises GroupIdNotFound,
        UnstableOffsetCommit."""
        await self._coordinators.call(
            GROUPS_TOPIC_NAME,
            group_id,
            lambda channel: GroupServiceStub(channel).DeleteGroup,
            delete_request(group_id, keys),
            timeout_ms=self._timeout_ms,
        )
