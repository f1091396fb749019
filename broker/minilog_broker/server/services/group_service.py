"""GroupService: the offsets of consumer groups; and the markers that end transactions with such offsets in them."""

from __future__ import annotations

from collections.abc import Callable

from minilog.errors import MinilogError, wire_error
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.server.services.coordinator_checks import check_commit, check_group_id, check_partitions
from minilog_broker.server.shells.coordinator_shell import Response
from minilog_broker.server.shells.coordinators import Coordinators


class GroupService(coordinator_pb2_grpc.GroupServiceServicer):
    """Each call goes to the coordinator that its group's name hashes to."""

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators
        self._moment = coordinators.moment

    async def CommitOffsets(  # noqa: N802
        self, request: coordinator_pb2.CommitOffsetsRequest, context: object
    ) -> coordinator_pb2.CommitOffsetsResponse:
        return await self._ask(
            coordinator_pb2.CommitOffsetsResponse,
            request.group_id,
            lambda: check_commit(request),
            lambda core, ticket: core.commit(ticket, request, self._moment()),
        )

    async def FetchOffsets(  # noqa: N802
        self, request: coordinator_pb2.FetchOffsetsRequest, context: object
    ) -> coordinator_pb2.FetchOffsetsResponse:
        return await self._ask(
            coordinator_pb2.FetchOffsetsResponse,
            request.group_id,
            lambda: check_partitions(request.partitions),
            lambda core, ticket: core.fetch(ticket, request),
        )

    async def ListGroups(  # noqa: N802
        self, request: coordinator_pb2.ListGroupsRequest, context: object
    ) -> coordinator_pb2.ListGroupsResponse:
        kind = coordinator_pb2.ListGroupsResponse
        whole = kind()
        for shell in self._coordinators.groups_here():
            found = await shell.ask(kind, lambda ticket, core=shell.core: core.list(ticket, request))  # type: ignore[misc]
            if found.error.code:
                return kind(error=found.error)
            whole.groups.extend(found.groups)
        return whole

    async def DescribeGroup(  # noqa: N802
        self, request: coordinator_pb2.DescribeGroupRequest, context: object
    ) -> coordinator_pb2.DescribeGroupResponse:
        return await self._ask(
            coordinator_pb2.DescribeGroupResponse,
            request.group_id,
            lambda: None,
            lambda core, ticket: core.describe(ticket, request),
        )

    async def DeleteGroup(  # noqa: N802
        self, request: coordinator_pb2.DeleteGroupRequest, context: object
    ) -> coordinator_pb2.DeleteGroupResponse:
        return await self._ask(
            coordinator_pb2.DeleteGroupResponse,
            request.group_id,
            lambda: check_partitions(request.partitions),
            lambda core, ticket: core.delete(ticket, request),
        )

    async def _ask(
        self,
        kind: type[Response],
        group_id: str,
        check: Callable[[], None],
        ask: Callable[[GroupCoordinator, object], None],
    ) -> Response:
        """What the coordinator answers; or why it is not asked."""
        try:
            check_group_id(group_id)
            check()
            shell = self._coordinators.of_group(group_id)
        except MinilogError as error:
            return kind(error=wire_error(error))
        return await shell.ask(kind, lambda ticket: ask(shell.core, ticket))
