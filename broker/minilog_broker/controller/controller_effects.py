"""The effects of the controller for its shell, beside the records that it appends.

effect            action of the shell
ControllerAnswer  give `message` to the caller that waits with `ticket`: it is committed, or refused
ProbeBroker       try to connect; refused by the host -> broker_refused_connection, else nothing
UncleanElection   log it, count it: acknowledged records may be lost
PartitionWaits    log it: the partition has had no leader for long, and will not get one by itself
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minilog.partition_key import PartitionKey
from minilog.v1 import admin_pb2, peer_pb2, security_pb2

Response: TypeAlias = (
    peer_pb2.RegisterResponse
    | peer_pb2.HeartbeatResponse
    | peer_pb2.ProposeInSyncReplicasResponse
    | peer_pb2.AllocateProducerIdsResponse
    | peer_pb2.CreateInternalTopicResponse
    | admin_pb2.CreateTopicsResponse
    | admin_pb2.DeleteTopicsResponse
    | admin_pb2.AlterTopicsResponse
    | admin_pb2.ElectLeadersResponse
    | admin_pb2.AlterPartitionReassignmentsResponse
    | admin_pb2.ReplaceVoterResponse
    | admin_pb2.AlterVoterResponse
    | admin_pb2.UpgradeLevelResponse
    | admin_pb2.AlterBrokerSettingsResponse
    | admin_pb2.DescribeBrokerSettingsResponse
    | admin_pb2.AlterBrokerResponse
    | security_pb2.AlterUsersResponse
    | security_pb2.DescribeUsersResponse
    | security_pb2.CreateAccessRulesResponse
    | security_pb2.DeleteAccessRulesResponse
    | security_pb2.DescribeAccessRulesResponse
    | security_pb2.AlterQuotasResponse
    | security_pb2.DescribeQuotasResponse
    | security_pb2.CreateDelegationTokenResponse
    | security_pb2.RenewDelegationTokenResponse
    | security_pb2.ExpireDelegationTokenResponse
    | security_pb2.DescribeDelegationTokensResponse
)


@dataclass(frozen=True, slots=True)
class ControllerAnswer:
    """The answer to a call that took a ticket: exactly one, also when the controller is deposed (NOT_CONTROLLER)."""

    ticket: object
    message: Response


@dataclass(frozen=True, slots=True)
class ProbeBroker:
    """The heartbeat stream of this life broke: the shell finds out whether its process is dead. `is_stopping`: the
    broker was to stop, and its end is no news."""

    broker_id: int
    broker_epoch: int
    host: str
    port: int
    is_stopping: bool = False


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """A replica that may lack acknowledged records leads, as unclean.leader.election.enable allows."""

    key: PartitionKey
    topic_name: str
    leader_id: int


@dataclass(frozen=True, slots=True)
class PartitionWaits:
    """No replica may lead. `reason` names the candidates, and why they may not."""

    key: PartitionKey
    topic_name: str
    reason: str


ControllerEffect: TypeAlias = ControllerAnswer | ProbeBroker | UncleanElection | PartitionWaits
