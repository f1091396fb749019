"""The offsets of groups, asked of their coordinators. Lives on one event loop.

A group is a name under which offsets are kept. It may have members (member.py), and then they alone commit.
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
    """Every call is bounded by request.timeout.ms. Raises what minilog.net.coordinator_client says."""

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
        """All or none; committed when this returns, or when their transaction is. `member`: who commits, of a group
        with members. Raises UnknownOutcome, UnknownTopicId, InvalidArgument, ProducerFenced, UnknownMemberId,
        StaleMemberEpoch."""
        if offsets:
            await self._coordinators.call(
                GROUPS_TOPIC_NAME,
                group_id,
                lambda channel: GroupServiceStub(channel).CommitOffsets,
                commit_request(group_id, offsets, transaction, member),
                timeout_ms=self._timeout_ms,
            )

    async def fetch(self, group_id: str, keys: Iterable[PartitionKey]) -> dict[PartitionKey, Committed]:
        """What is committed, of those for which anything is. Where a transaction that has not ended may change it, its
        end is waited for: raises UnstableOffsetCommit when the time is over."""
        deadline_s = now_s() + self._timeout_ms / 1000.0
        found: dict[PartitionKey, Committed] = {}
        for part in parts_of(list(keys), MAX_GROUP_OFFSETS):
            found |= await self._fetch(group_id, fetch_request(group_id, part), deadline_s)
        return found

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
                raise unstable from error  # the little time that was left is not what it waited for
            await asyncio.sleep(_UNSTABLE_PAUSE_S)

    async def list(self) -> list[coordinator_pb2.GroupListing]:
        """All groups that have committed anything, by name."""
        answers = await self._coordinators.call_all(
            GROUPS_TOPIC_NAME,
            lambda channel: GroupServiceStub(channel).ListGroups,
            coordinator_pb2.ListGroupsRequest(),
            timeout_ms=self._timeout_ms,
        )
        found = {group.group_id: group for answer in answers for group in answer.groups}
        return [found[group_id] for group_id in sorted(found)]

    async def describe(self, group_id: str) -> coordinator_pb2.DescribeGroupResponse:
        """What is committed, and what is pending. Raises GroupIdNotFound."""
        return await self._coordinators.call(
            GROUPS_TOPIC_NAME,
            group_id,
            lambda channel: GroupServiceStub(channel).DescribeGroup,
            coordinator_pb2.DescribeGroupRequest(group_id=group_id),
            timeout_ms=self._timeout_ms,
            changes=False,
        )

    async def remove_member(self, group_id: str, member: str) -> None:
        """The member of this id, or instance id, is fenced. Raises UnknownMemberId."""
        await self._coordinators.call(
            GROUPS_TOPIC_NAME,
            group_id,
            lambda channel: GroupServiceStub(channel).RemoveMember,
            coordinator_pb2.RemoveMemberRequest(group_id=group_id, member=member),
            timeout_ms=self._timeout_ms,
        )

    async def delete(self, group_id: str, keys: Sequence[PartitionKey] = ()) -> None:
        """Nothing is committed any more, of these (none: of all). Raises GroupIdNotFound, UnstableOffsetCommit."""
        await self._coordinators.call(
            GROUPS_TOPIC_NAME,
            group_id,
            lambda channel: GroupServiceStub(channel).DeleteGroup,
            delete_request(group_id, keys),
            timeout_ms=self._timeout_ms,
        )
