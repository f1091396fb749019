"""ISR proposals: refused, with the right error, unless every epoch in them is current and every joiner may join."""

from __future__ import annotations

import pytest

from minilog.errors import (
    UnknownTopicId,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2, peer_pb2
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    return cluster


def shrunk(cluster: ControllerCluster, name: str = "t") -> tuple[PartitionKey, int, int, int]:
    """(key, leader, the other member, who left)."""
    key = cluster.created(name)
    leader = cluster.state(key).leader_id
    stays, leaves = (broker for broker in (1, 2, 3) if broker != leader)
    assert error_of(cluster.propose(key, [leader, stays])) is None
    return key, leader, stays, leaves


def test_a_proposal_for_what_was_deleted_is_refused(cluster: ControllerCluster) -> None:
    key, leader, _, _ = shrunk(cluster)
    cluster.delete("t")
    assert isinstance(error_of(cluster.propose(key, [1, 2, 3], proposer=leader)), UnknownTopicId)


@proves("MD.46")
def test_a_refusal_for_good_is_answered_when_it_is_committed(cluster: ControllerCluster) -> None:
    """Else a controller that is deposed and does not know it would make the leader go back."""
    key, leader, _, leaves = shrunk(cluster)
    cluster.fence(leaves)
    state = cluster.state(key)
    members = [peer_pb2.InSyncReplica(broker_id=each, broker_epoch=cluster.epoch(each)) for each in (1, 2, 3)]
    proposal = peer_pb2.InSyncReplicasProposal(
        partition_id=common_pb2.PartitionId(topic_id=key.topic_id, partition=0),
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        in_sync_replicas=members,
    )
    request = peer_pb2.ProposeInSyncReplicasRequest(
        broker_id=leader, broker_epoch=cluster.epoch(leader), proposals=[proposal]
    )
    cluster.controller.propose_isr("refused", request)
    assert cluster.controller.take_effects() == []
    cluster.commit()
    assert "refused" in cluster.answers
