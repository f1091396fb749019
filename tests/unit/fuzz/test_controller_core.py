"""The controller under requests that nobody of ours would send: each is answered, once, with an error or what it did.

What it decides is judged by the world: its image is the replay of what it wrote, leaders are in their ISR, a leader
epoch belongs to one life. Afterwards an honest broker is unfenced and a topic can be created.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from minilog.v1 import admin_pb2, peer_pb2, security_pb2
from minilog_broker.controller.controller import Controller
from minilog_broker.controller.delegation_tokens import NewToken, Requester
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import CLUSTER_ID, ControllerCluster, directory_id
from tests.unit.fuzz.messages import Plausible, fuzzing, messages

pytestmark = proves("DK.22")

TOKEN_ID, OWNER = "0f1e", Requester("User:alice")
UNTIMED: dict[type[Message], Callable[..., None]] = {
    peer_pb2.ProposeInSyncReplicasRequest: Controller.propose_isr,
    peer_pb2.AllocateProducerIdsRequest: Controller.allocate_producer_ids,
    peer_pb2.CreateInternalTopicRequest: Controller.create_internal_topic,
    admin_pb2.CreateTopicsRequest: Controller.create_topics,
    admin_pb2.DeleteTopicsRequest: Controller.delete_topics,
    admin_pb2.AlterTopicsRequest: Controller.alter_topics,
    admin_pb2.ElectLeadersRequest: Controller.elect_leaders,
    admin_pb2.AlterPartitionReassignmentsRequest: Controller.alter_reassignments,
    admin_pb2.ReplaceVoterRequest: Controller.replace_voter,
    admin_pb2.AlterVoterRequest: Controller.alter_voter,
    admin_pb2.AlterBrokerSettingsRequest: Controller.alter_broker_settings,
    admin_pb2.DescribeBrokerSettingsRequest: Controller.describe_broker_settings,
    admin_pb2.UpgradeLevelRequest: Controller.upgrade_level,
    security_pb2.AlterUsersRequest: Controller.alter_users,
    security_pb2.DescribeUsersRequest: Controller.describe_users,
    security_pb2.CreateAccessRulesRequest: Controller.create_access_rules,
    security_pb2.DeleteAccessRulesRequest: Controller.delete_access_rules,
    security_pb2.DescribeAccessRulesRequest: Controller.describe_access_rules,
    security_pb2.AlterQuotasRequest: Controller.alter_quotas,
    security_pb2.DescribeQuotasRequest: Controller.describe_quotas,
}
TIMED: dict[type[Message], Callable[..., None]] = {
    peer_pb2.RegisterRequest: Controller.register,
    peer_pb2.HeartbeatRequest: Controller.heartbeat,
    admin_pb2.AlterBrokerRequest: Controller.alter_broker,
}
OF_TOKENS: dict[type[Message], Callable[..., None]] = {
    security_pb2.RenewDelegationTokenRequest: Controller.renew_token,
    security_pb2.ExpireDelegationTokenRequest: Controller.expire_token,
    security_pb2.DescribeDelegationTokensRequest: Controller.describe_tokens,
}
ASK: set[type[Message]] = {*UNTIMED, *TIMED, *OF_TOKENS, security_pb2.CreateDelegationTokenRequest}


def ask(controller: Controller, ticket: int, what: Any, now_ms: float) -> None:  # Any: a message of any kind of ASK
    kind = type(what)
    if kind in UNTIMED:
        UNTIMED[kind](controller, ticket, what)
    elif kind in TIMED:
        TIMED[kind](controller, ticket, what, now_ms)
    elif kind in OF_TOKENS:
        OF_TOKENS[kind](controller, ticket, what, OWNER, int(now_ms))
    else:
        controller.create_token(ticket, _wanted(what), int(now_ms))


def founded() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all()
    cluster.controller.upgrade_level(cluster.ticket(), admin_pb2.UpgradeLevelRequest())
    cluster.created("flights", partitions=2)
    cluster.controller.create_token(cluster.ticket(), NewToken(TOKEN_ID, OWNER.principal, ()), cluster.wall_ms)
    cluster.commit()
    return cluster


def _wanted(what: security_pb2.CreateDelegationTokenRequest) -> NewToken:
    lifetime_ms = what.max_lifetime_ms if what.HasField("max_lifetime_ms") else None
    return NewToken("another", OWNER.principal, (), tuple(what.renewers), lifetime_ms)


def plausible(cluster: ControllerCluster) -> Plausible:
    brokers = tuple(cluster.image.brokers)
    return {
        "cluster_id": (CLUSTER_ID, ""),
        "broker_id": brokers,
        "broker_epoch": tuple(broker.broker_epoch for broker in cluster.image.brokers.values()),
        "clean_stop_broker_epoch": tuple(broker.broker_epoch for broker in cluster.image.brokers.values()),
        "directory_id": tuple(directory_id(each) for each in brokers),
        "lost_directory_id": tuple(directory_id(each) for each in brokers),
        "metadata_offset": (cluster.image.end_offset, 1 << 40),
        "topic_id": tuple(cluster.image.topics),
        "partition": (0, 1),
        "partitions": (0, 1),
        "leader_epoch": (0,),
        "partition_epoch": (0,),
        "name": ("flights", "planes", "__groups", "alice"),
        "names": ("alice",),
        "mechanism": (1, 2),
        "iterations": (4_096,),
        "salt": (bytes(16),),
        "stored_key": (bytes(32), bytes(64)),
        "server_key": (bytes(32), bytes(64)),
        "principal": ("User:alice", "User:*"),
        "token_id": (TOKEN_ID,),
        "renewers": ("User:alice", "User:*"),
        "owners": (OWNER.principal,),
        "entity": ("User:alice", "default"),
        "num_partitions": (1, 3),
        "replication_factor": (1, 3, -1),
        "replicas": brokers,
        "key": (
            "connections",
            "retention.ms",
            "min.insync.replicas",
            "segment.bytes",
            "flush.policy",
            "unclean.leader.election.enable",
        ),
        "value": (5, -1, "1", "-1", "fsync", "true", "9" * 30, "1e9"),
        "unset_configs": ("retention.ms", "no.such"),
        "host": ("host", "*", "127.0.0.1"),
        "operation": (1, 2, 7),
        "resource_kind": (1, 2),
        "pattern": (1, 2),
        "permission": (1, 2),
        "port": (9092,),
    }


PLAUSIBLE = plausible(founded())


@pytest.mark.parametrize("kind", sorted(ASK, key=str), ids=lambda kind: kind.DESCRIPTOR.name)
def test_requests(kind: type[Message]) -> None:
    @fuzzing(60)
    @given(st.lists(messages(kind, PLAUSIBLE), min_size=1, max_size=4))
    def answered_and_harmless(requests: list[Message]) -> None:
        cluster = founded()
        for request in requests:
            ticket, before = cluster.ticket(), len(cluster.records)
            ask(cluster.controller, ticket, request, cluster.now_ms)
            cluster.commit()
            assert cluster.answers.pop(ticket) is not None
            assert len(cluster.records) - before < 1_000, "work without bound"
        goes_on(cluster)

    answered_and_harmless()


def goes_on(cluster: ControllerCluster) -> None:
    image = cluster.image
    content = encode_snapshot(image, 1)
    assert decode_snapshot(content, SnapshotId(image.end_offset, 1)) == image
    assert MetadataImage() != image
    for broker_id in (1, 2, 3):
        cluster.restart(broker_id)
        uncordon = admin_pb2.AlterBrokerRequest(broker_id=broker_id, change=admin_pb2.BROKER_CHANGE_UNCORDON)
        cluster.controller.alter_broker(cluster.ticket(), uncordon, cluster.now_ms)
        cluster.commit()
    name = "afterwards"
    cluster.created(name)
    cluster.advance(10_000.0)
    cluster.check()
