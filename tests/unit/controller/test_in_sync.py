"""ISR proposals: refused, with the right error, unless every epoch in them is current and every joiner may join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from minilog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidArgument,
    InvalidUpdateVersion,
    StaleBrokerEpoch,
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


def test_a_leader_shrinks_and_grows_its_isr(cluster: ControllerCluster) -> None:
    key, leader, stays, _leaves = shrunk(cluster)
    assert set(cluster.state(key).in_sync_replicas) == {leader, stays}
    answer = cluster.propose(key, [1, 2, 3])
    assert error_of(answer) is None
    assert set(answer.in_sync_replicas) == {1, 2, 3}
    assert answer.partition_epoch == cluster.state(key).partition_epoch
    assert answer.leader_epoch == 0


def test_a_proposal_of_what_is_changes_nothing(cluster: ControllerCluster) -> None:
    key = cluster.created()
    records = len(cluster.records)
    assert error_of(cluster.propose(key, [1, 2, 3])) is None
    assert len(cluster.records) == records


def test_a_proposal_of_another_leader_epoch_is_refused(cluster: ControllerCluster) -> None:
    key, _leader, _, _ = shrunk(cluster)
    for epoch in (-1, 1):
        assert isinstance(error_of(cluster.propose(key, [1, 2, 3], leader_epoch=epoch)), FencedLeaderEpoch)


def test_a_proposal_of_who_does_not_lead_is_refused(cluster: ControllerCluster) -> None:
    key, _, stays, _ = shrunk(cluster)
    assert isinstance(error_of(cluster.propose(key, [1, 2, 3], proposer=stays)), FencedLeaderEpoch)


@proves("MD.3")
def test_a_proposal_of_another_partition_epoch_is_refused_and_told_the_state(cluster: ControllerCluster) -> None:
    key, leader, stays, _ = shrunk(cluster)
    answer = cluster.propose(key, [1, 2, 3], partition_epoch=0)
    assert isinstance(error_of(answer), InvalidUpdateVersion)
    assert set(answer.in_sync_replicas) == {leader, stays}
    assert answer.partition_epoch == 1


def test_a_proposal_of_a_leaders_former_life_is_refused(cluster: ControllerCluster) -> None:
    key, leader, _, _ = shrunk(cluster)
    refusal = cluster.propose(key, [1, 2, 3], proposer=leader, epochs={leader: cluster.epoch(leader) - 1})
    assert isinstance(error_of(refusal), StaleBrokerEpoch)


def test_a_members_former_life_may_not_join(cluster: ControllerCluster) -> None:
    key, _, _, leaves = shrunk(cluster)
    former = cluster.epoch(leaves)
    cluster.start(leaves)
    refusal = cluster.propose(key, [1, 2, 3], epochs={leaves: former})
    assert isinstance(error_of(refusal), IneligibleReplica)
    assert error_of(cluster.propose(key, [1, 2, 3])) is None


def test_a_fenced_broker_may_not_join(cluster: ControllerCluster) -> None:
    key, _, _, leaves = shrunk(cluster)
    cluster.fence(leaves)
    refusal = error_of(cluster.propose(key, [1, 2, 3]))
    assert isinstance(refusal, IneligibleReplica)
    assert "it is fenced" in str(refusal)


def test_a_stopping_broker_may_not_join(cluster: ControllerCluster) -> None:
    key, _, _, leaves = shrunk(cluster)
    cluster.heartbeat(leaves, wants_stop=True)
    assert isinstance(error_of(cluster.propose(key, [1, 2, 3])), IneligibleReplica)


def test_a_replica_whose_disk_failed_may_not_join_in_this_life(cluster: ControllerCluster) -> None:
    key, _, _, leaves = shrunk(cluster)
    cluster.heartbeat(leaves, offline=[key])
    assert isinstance(error_of(cluster.propose(key, [1, 2, 3])), IneligibleReplica)
    cluster.start(leaves)
    assert error_of(cluster.propose(key, [1, 2, 3])) is None


@proves("ISR.4")
@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_replica_that_is_out_said_before_it_went_offline_takes_it_in_by_no_controller(
    cluster: ControllerCluster, damaged: bool
) -> None:
    """It is out of the ISR already, and known as damaged: the state is no other, and yet it is so anew."""
    key, _, _, leaves = shrunk(cluster)
    if damaged:
        cluster.heartbeat(leaves, damaged=[key])
        cluster.heartbeat(leaves)
    before = cluster.state(key)
    cluster.heartbeat(leaves, offline=[] if damaged else [key], damaged=[key] if damaged else [])
    assert cluster.state(key) == replace(before, partition_epoch=before.partition_epoch + 1)
    cluster.heartbeat(leaves)  # cut, or with a new log; a controller that is new knows no more than this one now
    refusal = cluster.propose(key, [1, 2, 3], partition_epoch=before.partition_epoch)
    assert isinstance(error_of(refusal), InvalidUpdateVersion)
    assert error_of(cluster.propose(key, [1, 2, 3])) is None, "its leader has heard it since"


@proves("MD.1")
def test_the_leader_is_in_every_isr_and_members_are_replicas_once_each(cluster: ControllerCluster) -> None:
    key, leader, stays, leaves = shrunk(cluster)
    for members in ([], [stays], [stays, leaves], [leader, leader], [leader, 9]):
        assert isinstance(error_of(cluster.propose(key, members, epochs={9: 1})), InvalidArgument)
    assert set(cluster.state(key).in_sync_replicas) == {leader, stays}


def test_a_proposal_for_what_was_deleted_is_refused(cluster: ControllerCluster) -> None:
    key, leader, _, _ = shrunk(cluster)
    cluster.delete("t")
    assert isinstance(error_of(cluster.propose(key, [1, 2, 3], proposer=leader)), UnknownTopicId)


@proves("MD.46")
def test_a_copy_of_a_proposal_that_was_refused_for_good_is_refused_whoever_decides_on_it(
    cluster: ControllerCluster,
) -> None:
    """Else it could be accepted when the joiner is eligible again, after the leader went back (V10)."""
    meanwhile: dict[str, Callable[[], None]] = {"a": lambda: None, "b": cluster.fail_over}
    for name, between in meanwhile.items():
        key, _, _, leaves = shrunk(cluster, name)
        cluster.silence(leaves)
        made_from = cluster.state(key).partition_epoch
        assert isinstance(error_of(cluster.propose(key, [1, 2, 3])), IneligibleReplica)
        between()
        cluster.heartbeat(leaves)
        late = cluster.propose(key, [1, 2, 3], partition_epoch=made_from)
        assert isinstance(error_of(late), InvalidUpdateVersion)
        assert leaves not in cluster.state(key).in_sync_replicas
        assert error_of(cluster.propose(key, [1, 2, 3])) is None


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
