"""GroupService: the offsets of groups, and their members, of which each has a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar

from minilog.errors import MinilogError, UnknownLeaderEpoch, wire_error
from minilog.stream_messages import StreamMessage
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.groups.presences import Speaker
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.producer_owners import Claim, ProducerOwners
from minilog_broker.server.clients.streams import pump
from minilog_broker.server.services.calls import (
    Ask,
    Response,
    UnaryCall,
    callers_call,
    coordinator_call,
    listing,
    untimed,
)
from minilog_broker.server.services.coordinator_checks import (
    GroupsRequest,
    check_commit,
    check_group,
    check_group_partitions,
    check_leader_epochs,
)
from minilog_broker.server.shells.coordinator_shell import GroupShell
from minilog_broker.server.shells.coordinators import Coordinators
from minilog_broker.server.shells.member_stream import MemberStream, StreamOver

if TYPE_CHECKING:
    from minilog_broker.server.ingress.rules.client_stream import ClientStream

_Request = TypeVar("_Request", bound=GroupsRequest)


def _call(
    kind: type[Response], ask: Ask[GroupCoordinator, _Request], check: Callable[[_Request], None] = check_group
) -> UnaryCall[_Request, Response]:
    return coordinator_call(_of_group, kind, ask, check)


def _of_group(here: Coordinators, request: GroupsRequest) -> GroupShell:
    return here.of_group(request.group_id)


class GroupService(coordinator_pb2_grpc.GroupServiceServicer):
    """The gRPC service for groups. Each call goes to the coordinator of the hash of the group's name."""

    def __init__(self, coordinators: Coordinators, image: MetadataImage) -> None:
        self.coordinators = coordinators
        self._image = image
        self._owners = ProducerOwners(image)

    async def CommitOffsets(  # noqa: N802
        self, request: coordinator_pb2.CommitOffsetsRequest, context: object
    ) -> coordinator_pb2.CommitOffsetsResponse:
        if request.HasField("transaction"):
            assert isinstance(context, Caller)
            if (refusal := self._owners.refusal(context, Claim.of_commit(request.transaction))) is not None:
                return coordinator_pb2.CommitOffsetsResponse(error=wire_error(refusal))
        try:
            check_leader_epochs(self._image, request)
        except UnknownLeaderEpoch as error:
            return coordinator_pb2.CommitOffsetsResponse(error=wire_error(error))
        return await self._commit(request, context)

    _commit = callers_call(_of_group, coordinator_pb2.CommitOffsetsResponse, GroupCoordinator.commit, check_commit)
    FetchOffsets = _call(coordinator_pb2.FetchOffsetsResponse, untimed(GroupCoordinator.fetch), check_group_partitions)
    DescribeGroup = _call(coordinator_pb2.DescribeGroupResponse, GroupCoordinator.describe)
    DeleteGroup = _call(coordinator_pb2.DeleteGroupResponse, untimed(GroupCoordinator.delete), check_group_partitions)
    RemoveMember = _call(coordinator_pb2.RemoveMemberResponse, GroupCoordinator.remove_member)

    async def Member(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[StreamMessage[coordinator_pb2.MemberRequest]], context: ClientStream
    ) -> None:
        stream = MemberStream()
        coordinator: GroupShell | None = None

        def receive(received: StreamMessage[coordinator_pb2.MemberRequest]) -> None:
            nonlocal coordinator
            try:
                if coordinator is None:
                    check_group(received.message)
                    coordinator = self.coordinators.of_group(received.message.group_id)
                speaker = Speaker(context.caller.host, str(context.caller.principal))
                coordinator.member(stream, received.message, speaker)
            except MinilogError as error:
                stream.put(coordinator_pb2.MemberResponse(error=wire_error(error)))

        try:
            await pump(request_iterator, receive, stream.next_message, context.write, stream.ready)
        except StreamOver:
            return
        finally:
            if coordinator is not None:
                coordinator.member_stream_ended(stream)

    ListGroups = listing(Coordinators.groups_here, coordinator_pb2.ListGroupsResponse, GroupCoordinator.list)
