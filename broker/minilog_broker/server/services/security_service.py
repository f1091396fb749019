"""SecurityService: users, access rules and quotas, answered by the active controller when it is committed."""

from __future__ import annotations

from minilog.v1 import security_pb2, security_pb2_grpc
from minilog_broker.controller.controller import Controller
from minilog_broker.server.services.calls import decision
from minilog_broker.server.shells.controller_shell import ControllerShell


class SecurityService(security_pb2_grpc.SecurityServiceServicer):
    """As AdminService."""

    def __init__(self, controller: ControllerShell) -> None:
        self.controller = controller

    AlterUsers = decision(security_pb2.AlterUsersResponse, Controller.alter_users)
    DescribeUsers = decision(security_pb2.DescribeUsersResponse, Controller.describe_users)
    CreateAccessRules = decision(security_pb2.CreateAccessRulesResponse, Controller.create_access_rules)
    DeleteAccessRules = decision(security_pb2.DeleteAccessRulesResponse, Controller.delete_access_rules)
    DescribeAccessRules = decision(security_pb2.DescribeAccessRulesResponse, Controller.describe_access_rules)
    AlterQuotas = decision(security_pb2.AlterQuotasResponse, Controller.alter_quotas)
    DescribeQuotas = decision(security_pb2.DescribeQuotasResponse, Controller.describe_quotas)
