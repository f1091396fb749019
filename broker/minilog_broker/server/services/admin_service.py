"""AdminService: changes of the cluster. The active controller answers each when the change is committed."""

from __future__ import annotations

from collections.abc import Callable

from minilog.v1 import admin_pb2, admin_pb2_grpc
from minilog_broker.controller.controller import Controller
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.services.calls import HasController, UnaryCall, decision, unary
from minilog_broker.server.shells.controller_shell import ControllerShell, OfTopics, TopicsRequest


def _each_topic(
    kind: type[OfTopics], ask: Callable[[Controller, object, TopicsRequest], None]
) -> UnaryCall[TopicsRequest, OfTopics]:
    async def answer(service: HasController, request: TopicsRequest) -> OfTopics:
        return await service.controller.decide_each_topic(kind, request, ask)

    return unary(answer)


def _alter_broker(controller: Controller, ticket: object, request: admin_pb2.AlterBrokerRequest) -> None:
    controller.alter_broker(ticket, request, now_ms())


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """The gRPC service for administrators. Each call waits for the controller's answer, or for its error."""

    def __init__(self, controller: ControllerShell) -> None:
        self.controller = controller

    CreateTopics = _each_topic(admin_pb2.CreateTopicsResponse, Controller.create_topics)
    DeleteTopics = _each_topic(admin_pb2.DeleteTopicsResponse, Controller.delete_topics)
    AlterTopics = _each_topic(admin_pb2.AlterTopicsResponse, Controller.alter_topics)
    ElectLeaders = decision(admin_pb2.ElectLeadersResponse, Controller.elect_leaders)
    AlterPartitionReassignments = decision(
        admin_pb2.AlterPartitionReassignmentsResponse, Controller.alter_reassignments
    )
    ReplaceVoter = decision(admin_pb2.ReplaceVoterResponse, Controller.replace_voter)
    AlterVoter = decision(admin_pb2.AlterVoterResponse, Controller.alter_voter)
    AlterBrokerSettings = decision(admin_pb2.AlterBrokerSettingsResponse, Controller.alter_broker_settings)
    DescribeBrokerSettings = decision(admin_pb2.DescribeBrokerSettingsResponse, Controller.describe_broker_settings)
    AlterBroker = decision(admin_pb2.AlterBrokerResponse, _alter_broker)
    UpgradeLevel = decision(admin_pb2.UpgradeLevelResponse, Controller.upgrade_level)
