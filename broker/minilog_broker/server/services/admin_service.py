"""AdminService: what changes the cluster, answered by the active controller when the change is committed."""

from __future__ import annotations

from minilog.v1 import admin_pb2, admin_pb2_grpc
from minilog_broker.server.shells.controller_shell import ControllerShell


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """Each call waits for the controller's answer, and gives its error where there is one."""

    def __init__(self, controller: ControllerShell) -> None:
        self._controller = controller

    async def CreateTopics(  # noqa: N802
        self, request: admin_pb2.CreateTopicsRequest, context: object
    ) -> admin_pb2.CreateTopicsResponse:
        return await self._controller.create_topics(request)

    async def DeleteTopics(  # noqa: N802
        self, request: admin_pb2.DeleteTopicsRequest, context: object
    ) -> admin_pb2.DeleteTopicsResponse:
        return await self._controller.delete_topics(request)

    async def AlterTopics(  # noqa: N802
        self, request: admin_pb2.AlterTopicsRequest, context: object
    ) -> admin_pb2.AlterTopicsResponse:
        return await self._controller.alter_topics(request)

    async def ElectLeaders(  # noqa: N802
        self, request: admin_pb2.ElectLeadersRequest, context: object
    ) -> admin_pb2.ElectLeadersResponse:
        return await self._controller.elect_leaders(request)

    async def AlterPartitionReassignments(  # noqa: N802
        self, request: admin_pb2.AlterPartitionReassignmentsRequest, context: object
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        return await self._controller.alter_reassignments(request)

    async def ReplaceVoter(  # noqa: N802
        self, request: admin_pb2.ReplaceVoterRequest, context: object
    ) -> admin_pb2.ReplaceVoterResponse:
        return await self._controller.replace_voter(request)

    async def UpgradeLevel(  # noqa: N802
        self, request: admin_pb2.UpgradeLevelRequest, context: object
    ) -> admin_pb2.UpgradeLevelResponse:
        return await self._controller.upgrade_level(request)
