"""The table of authorization has a row for each call, and names what the call is about."""

from __future__ import annotations

import pytest
from grpc_health.v1 import health_pb2

from minilog.v1 import admin_pb2, common_pb2, coordinator_pb2, peer_pb2, queue_pb2
from minilog_broker.controller.image import MetadataImage, TopicImage
from minilog_broker.coordinators.queues.settings import DEAD_LETTER_TOPIC
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.server.access.refusals import ById
from minilog_broker.server.access.table import ROWS, AllOf, Asked, OfPeers
from minilog_broker.server.ingress.rules.admission import methods

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].methods
PATHS = {f"/{each.containing_service.full_name}/{each.name}" for each in (*methods(), *HEALTH)}
IMAGE = MetadataImage()


def asked(path: str, request: object) -> list[tuple[Operation, ResourceKind, list[str | ById]]]:
    row = ROWS[path]
    parts = row.parts if isinstance(row, AllOf) else (row,)
    return [(each.operation, each.kind, list(each.names(request, IMAGE))) for each in parts if isinstance(each, Asked)]


@pytest.mark.parametrize("path", sorted(PATHS))
def test_every_call_has_a_row(path: str) -> None:
    assert path in ROWS


def test_every_row_is_of_a_call() -> None:
    assert ROWS.keys() - PATHS == set()


@pytest.mark.parametrize("path", sorted(path for path in PATHS if "PeerService" in path or "MarkerService" in path))
def test_calls_between_brokers_are_for_brokers_alone(path: str) -> None:
    assert isinstance(ROWS[path], OfPeers)


def test_the_topics_of_a_request_are_named() -> None:
    request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicDeletion(name=each) for each in "ab"])
    found = asked("/minilog.v1.AdminService/DeleteTopics", request)
    assert found == [(Operation.DELETE, ResourceKind.TOPIC, ["a", "b"])]


def test_a_commit_of_offsets_needs_the_group_its_topics_and_its_transaction() -> None:
    image = MetadataImage()
    image.topics[b"t" * 16] = TopicImage("flights", b"t" * 16, internal=False)
    partition_id = common_pb2.PartitionId(topic_id=b"t" * 16)
    request = coordinator_pb2.CommitOffsetsRequest(
        group_id="g", offsets=[coordinator_pb2.OffsetToCommit(partition_id=partition_id)]
    )
    row = ROWS["/minilog.v1.GroupService/CommitOffsets"]
    assert isinstance(row, AllOf)
    assert [list(each.names(request, image)) for each in row.parts] == [["g"], [ById(b"t" * 16, "flights")], []]
    request.transaction.transactional_id = "x"
    assert list(row.parts[2].names(request, image)) == ["x"]


def test_a_dead_letter_topic_needs_the_right_to_write_there() -> None:
    path = "/minilog.v1.QueueService/AlterQueue"
    request = queue_pb2.AlterQueueRequest(queue="jobs", set_configs={DEAD_LETTER_TOPIC: "letters"})
    assert asked(path, request) == [
        (Operation.ALTER, ResourceKind.GROUP, ["jobs"]),
        (Operation.WRITE, ResourceKind.TOPIC, ["letters"]),
    ]
    assert asked(path, queue_pb2.AlterQueueRequest(queue="jobs"))[1][2] == []


@pytest.mark.parametrize(
    ("path", "request_of"),
    [
        ("Register", peer_pb2.RegisterRequest(broker_id=2)),
        ("Heartbeat", peer_pb2.HeartbeatRequest(broker_id=2)),
        ("Replicate", peer_pb2.ReplicateRequest(broker_id=2)),
        ("Vote", peer_pb2.VoteRequest(candidate_id=2)),
        ("BeginQuorumEpoch", peer_pb2.BeginQuorumEpochRequest(leader_id=2)),
        ("FetchSnapshot", peer_pb2.FetchSnapshotRequest(broker_id=2)),
        ("ProposeInSyncReplicas", peer_pb2.ProposeInSyncReplicasRequest(broker_id=2)),
        ("AllocateProducerIds", peer_pb2.AllocateProducerIdsRequest(broker_id=2)),
        ("AwaitStableOffsets", peer_pb2.AwaitStableOffsetsRequest(broker_id=2)),
        ("CreateInternalTopic", peer_pb2.CreateInternalTopicRequest(broker_id=2)),
    ],
)
def test_every_message_of_a_broker_names_its_sender(path: str, request_of: object) -> None:
    row = ROWS[f"/minilog.v1.PeerService/{path}"]
    assert isinstance(row, OfPeers)
    assert row.sender(request_of, IMAGE) == 2
