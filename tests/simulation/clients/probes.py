"""A request of each call that answers once and that rules govern: about something that is there, or about a name that
somebody made up. Where it is allowed it does no harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from minilog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    coordinator_pb2,
    coordinator_pb2_grpc,
    data_pb2,
    data_pb2_grpc,
    metadata_pb2,
    metadata_pb2_grpc,
    queue_pb2,
    queue_pb2_grpc,
    security_pb2,
    security_pb2_grpc,
)

TIMEOUT_MS = 1_000
STUBS = {
    "AdminService": admin_pb2_grpc.AdminServiceStub,
    "DataService": data_pb2_grpc.DataServiceStub,
    "GroupService": coordinator_pb2_grpc.GroupServiceStub,
    "MetadataService": metadata_pb2_grpc.MetadataServiceStub,
    "QueueService": queue_pb2_grpc.QueueServiceStub,
    "SecurityService": security_pb2_grpc.SecurityServiceStub,
    "TransactionService": coordinator_pb2_grpc.TransactionServiceStub,
}


class Resource(NamedTuple):
    """A name that topics, groups, transactional ids, users and tokens have here; and the id of a topic."""

    name: str
    topic_id: bytes

    @property
    def partition(self) -> common_pb2.PartitionId:
        return common_pb2.PartitionId(topic_id=self.topic_id, partition=0)


Probe = Callable[[common_pb2.ClientIdentity, Resource], Any]
_a, _c, _d, _m, _q, _s = admin_pb2, coordinator_pb2, data_pb2, metadata_pb2, queue_pb2, security_pb2
NOBODY_ID = 99  # of no broker


def _transactional(kind: Any, **given: Any) -> Probe:
    return lambda client, of: kind(client=client, transactional_id=of.name, **given)


def _group(kind: Any) -> Probe:
    return lambda client, of: kind(client=client, group_id=of.name)


def _queue(kind: Any, **given: Any) -> Probe:
    return lambda client, of: kind(client=client, queue=of.name, **given)


def _empty(kind: Any) -> Probe:
    """It names nothing: it is about the cluster."""
    return lambda client, of: kind(client=client)


PROBES: Mapping[str, Probe] = {
    f"/minilog.v1.{path}": probe
    for path, probe in {
        "DataService/DeleteRecords": lambda client, of: _d.DeleteRecordsRequest(
            client=client, timeout_ms=TIMEOUT_MS, entries=[_d.DeleteRecordsEntry(partition_id=of.partition)]
        ),
        "MetadataService/GetMetadata": lambda client, of: _m.GetMetadataRequest(
            client=client, topic_names=[of.name], topic_ids=[of.topic_id]
        ),
        "MetadataService/ListOffsets": lambda client, of: _m.ListOffsetsRequest(
            client=client, entries=[_m.ListOffsetsEntry(partition_id=of.partition)]
        ),
        "MetadataService/InitProducerId": _empty(_m.InitProducerIdRequest),
        "MetadataService/GetBrokerConfig": lambda client, of: _m.GetBrokerConfigRequest(client=client, broker_id=1),
        "TransactionService/Enlist": _transactional(_c.EnlistRequest, attempt_id=b"a" * 16, timeout_ms=TIMEOUT_MS),
        "TransactionService/KeepAlive": _transactional(_c.KeepAliveRequest),
        "TransactionService/EndTransaction": _transactional(_c.EndTransactionRequest, attempt_id=b"b" * 16),
        "TransactionService/AbortAttempt": _transactional(_c.AbortAttemptRequest, attempt_id=b"b" * 16),
        "TransactionService/ListTransactions": _empty(_c.ListTransactionsRequest),
        "TransactionService/DescribeTransaction": _transactional(_c.DescribeTransactionRequest),
        "TransactionService/AbortTransaction": _transactional(_c.AbortTransactionRequest),
        "TransactionService/ForgetTransaction": _transactional(_c.ForgetTransactionRequest),
        "GroupService/CommitOffsets": lambda client, of: _c.CommitOffsetsRequest(
            client=client, group_id=of.name, offsets=[_c.OffsetToCommit(partition_id=of.partition, offset=1)]
        ),
        "GroupService/FetchOffsets": _group(_c.FetchOffsetsRequest),
        "GroupService/ListGroups": _empty(_c.ListGroupsRequest),
        "GroupService/DescribeGroup": _group(_c.DescribeGroupRequest),
        "GroupService/DeleteGroup": _group(_c.DeleteGroupRequest),
        "GroupService/RemoveMember": lambda client, of: _c.RemoveMemberRequest(
            client=client, group_id=of.name, member="nobody"
        ),
        "QueueService/Lease": lambda client, of: _q.LeaseRequest(
            client=client, queue=of.name, topic_ids=[of.topic_id], max_records=1
        ),
        "QueueService/RenewLeases": _queue(_q.RenewLeasesRequest, lease_ids=[1]),
        "QueueService/Settle": lambda client, of: _q.SettleRequest(
            client=client,
            queue=of.name,
            settlements=[_q.Settlement(lease_id=1, partition_id=of.partition, verdict=_q.VERDICT_ACCEPT)],
        ),
        "QueueService/Redrive": lambda client, of: _q.RedriveRequest(
            client=client,
            queue=of.name,
            letters_partition_id=of.partition,
            next_offset=1,
            letters=[_q.Letter(partition_id=of.partition)],
        ),
        "QueueService/ListQueues": _empty(_q.ListQueuesRequest),
        "QueueService/DescribeQueue": _queue(_q.DescribeQueueRequest),
        "QueueService/AlterQueue": _queue(_q.AlterQueueRequest, set_configs={"group.share.delivery.count.limit": "5"}),
        "QueueService/DeleteQueue": _queue(_q.DeleteQueueRequest),
        "AdminService/CreateTopics": lambda client, of: _a.CreateTopicsRequest(
            client=client, timeout_ms=TIMEOUT_MS, topics=[_a.NewTopic(name=of.name)], validate_only=True
        ),
        "AdminService/DeleteTopics": lambda client, of: _a.DeleteTopicsRequest(
            client=client, timeout_ms=TIMEOUT_MS, topics=[_a.TopicDeletion(name=f"{of.name}-gone")]
        ),
        "AdminService/AlterTopics": lambda client, of: _a.AlterTopicsRequest(
            client=client, timeout_ms=TIMEOUT_MS, topics=[_a.TopicAlteration(name=of.name)]
        ),
        "AdminService/ElectLeaders": lambda client, of: _a.ElectLeadersRequest(
            client=client, timeout_ms=TIMEOUT_MS, topics=[_a.TopicPartitions(name=of.name, partitions=[NOBODY_ID])]
        ),
        "AdminService/AlterPartitionReassignments": _empty(_a.AlterPartitionReassignmentsRequest),
        "AdminService/ReplaceVoter": lambda client, of: _a.ReplaceVoterRequest(client=client, broker_id=NOBODY_ID),
        "AdminService/AlterVoter": lambda client, of: _a.AlterVoterRequest(client=client, broker_id=NOBODY_ID),
        "AdminService/AlterBrokerSettings": lambda client, of: _a.AlterBrokerSettingsRequest(
            client=client, timeout_ms=TIMEOUT_MS, broker_id=NOBODY_ID, set_configs={"log.level": "info"}
        ),
        "AdminService/DescribeBrokerSettings": _empty(_a.DescribeBrokerSettingsRequest),
        "AdminService/AlterBroker": lambda client, of: _a.AlterBrokerRequest(client=client, broker_id=NOBODY_ID),
        "AdminService/UpgradeLevel": lambda client, of: _a.UpgradeLevelRequest(client=client, level=1),
        "SecurityService/AlterUsers": _empty(_s.AlterUsersRequest),
        "SecurityService/DescribeUsers": lambda client, of: _s.DescribeUsersRequest(client=client, names=[of.name]),
        "SecurityService/CreateAccessRules": _empty(_s.CreateAccessRulesRequest),
        "SecurityService/DeleteAccessRules": _empty(_s.DeleteAccessRulesRequest),
        "SecurityService/DescribeAccessRules": _empty(_s.DescribeAccessRulesRequest),
        "SecurityService/AlterQuotas": _empty(_s.AlterQuotasRequest),
        "SecurityService/DescribeQuotas": _empty(_s.DescribeQuotasRequest),
        "SecurityService/CreateDelegationToken": lambda client, of: _s.CreateDelegationTokenRequest(
            client=client, timeout_ms=TIMEOUT_MS, max_lifetime_ms=2 * TIMEOUT_MS
        ),
        "SecurityService/RenewDelegationToken": lambda client, of: _s.RenewDelegationTokenRequest(
            client=client, timeout_ms=TIMEOUT_MS, token_id=of.name
        ),
        "SecurityService/ExpireDelegationToken": lambda client, of: _s.ExpireDelegationTokenRequest(
            client=client, timeout_ms=TIMEOUT_MS, token_id=of.name
        ),
        "SecurityService/DescribeDelegationTokens": _empty(_s.DescribeDelegationTokensRequest),
    }.items()
}
