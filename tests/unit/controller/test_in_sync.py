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
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.replication.state import PartitionKey
from tests.unit.controller.world import World, error_of


@pytest.fixture
def world() -> World:
    world = World()
    world.start_all(3)
    return world


def shrunk(world: World, name: str = "t") -> tuple[PartitionKey, int, int, int]:
    """(key, leader, the other member, who left)."""
    key = world.created(name)
    leader = world.state(key).leader_id
    stays, leaves = (broker for broker in (1, 2, 3) if broker != leader)
    assert error_of(world.propose(key, [leader, stays])) is None
    return key, leader, stays, leaves


def test_a_leader_shrinks_and_grows_its_isr(world: World) -> None:
    key, leader, stays, _leaves = shrunk(world)
    assert set(world.state(key).in_sync_replicas) == {leader, stays}
    answer = world.propose(key, [1, 2, 3])
    assert error_of(answer) is None
    assert set(answer.in_sync_replicas) == {1, 2, 3}
    assert answer.partition_epoch == world.state(key).partition_epoch
    assert answer.leader_epoch == 0


def test_a_proposal_of_what_is_changes_nothing(world: World) -> None:
    key = world.created()
    records = len(world.records)
    assert error_of(world.propose(key, [1, 2, 3])) is None
    assert len(world.records) == records


def test_a_proposal_of_another_leader_epoch_is_refused(world: World) -> None:
    key, _leader, _, _ = shrunk(world)
    for epoch in (-1, 1):
        assert isinstance(error_of(world.propose(key, [1, 2, 3], leader_epoch=epoch)), FencedLeaderEpoch)


def test_a_proposal_of_who_does_not_lead_is_refused(world: World) -> None:
    key, _, stays, _ = shrunk(world)
    assert isinstance(error_of(world.propose(key, [1, 2, 3], proposer=stays)), FencedLeaderEpoch)


def test_a_proposal_of_another_partition_epoch_is_refused_and_told_the_state(world: World) -> None:
    key, leader, stays, _ = shrunk(world)
    answer = world.propose(key, [1, 2, 3], partition_epoch=0)
    assert isinstance(error_of(answer), InvalidUpdateVersion)
    assert set(answer.in_sync_replicas) == {leader, stays}
    assert answer.partition_epoch == 1


def test_a_proposal_of_a_leaders_former_life_is_refused(world: World) -> None:
    key, leader, _, _ = shrunk(world)
    refusal = world.propose(key, [1, 2, 3], proposer=leader, epochs={leader: world.epoch(leader) - 1})
    assert isinstance(error_of(refusal), StaleBrokerEpoch)


def test_a_members_former_life_may_not_join(world: World) -> None:
    key, _, _, leaves = shrunk(world)
    former = world.epoch(leaves)
    world.start(leaves)
    refusal = world.propose(key, [1, 2, 3], epochs={leaves: former})
    assert isinstance(error_of(refusal), IneligibleReplica)
    assert error_of(world.propose(key, [1, 2, 3])) is None


def test_a_fenced_broker_may_not_join(world: World) -> None:
    key, _, _, leaves = shrunk(world)
    world.fence(leaves)
    refusal = error_of(world.propose(key, [1, 2, 3]))
    assert isinstance(refusal, IneligibleReplica)
    assert "it is fenced" in str(refusal)


def test_a_stopping_broker_may_not_join(world: World) -> None:
    key, _, _, leaves = shrunk(world)
    world.heartbeat(leaves, wants_stop=True)
    assert isinstance(error_of(world.propose(key, [1, 2, 3])), IneligibleReplica)


def test_a_replica_whose_disk_failed_may_not_join_in_this_life(world: World) -> None:
    key, _, _, leaves = shrunk(world)
    world.heartbeat(leaves, offline=[key])
    assert isinstance(error_of(world.propose(key, [1, 2, 3])), IneligibleReplica)
    world.start(leaves)
    assert error_of(world.propose(key, [1, 2, 3])) is None


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_replica_that_is_out_said_before_it_went_offline_takes_it_in_by_no_controller(
    world: World, damaged: bool
) -> None:
    """It is out of the ISR already, and known as damaged: the state is no other, and yet it is so anew."""
    key, _, _, leaves = shrunk(world)
    if damaged:
        world.heartbeat(leaves, damaged=[key])
        world.heartbeat(leaves)
    before = world.state(key)
    world.heartbeat(leaves, offline=[] if damaged else [key], damaged=[key] if damaged else [])
    assert world.state(key) == replace(before, partition_epoch=before.partition_epoch + 1)
    world.heartbeat(leaves)  # cut, or with a new log; a controller that is new knows no more than this one now
    refusal = world.propose(key, [1, 2, 3], partition_epoch=before.partition_epoch)
    assert isinstance(error_of(refusal), InvalidUpdateVersion)
    assert error_of(world.propose(key, [1, 2, 3])) is None, "its leader has heard it since"


def test_the_leader_is_in_every_isr_and_members_are_replicas_once_each(world: World) -> None:
    key, leader, stays, leaves = shrunk(world)
    for members in ([], [stays], [stays, leaves], [leader, leader], [leader, 9]):
        assert isinstance(error_of(world.propose(key, members, epochs={9: 1})), InvalidArgument)
    assert set(world.state(key).in_sync_replicas) == {leader, stays}


def test_a_proposal_for_what_was_deleted_is_refused(world: World) -> None:
    key, leader, _, _ = shrunk(world)
    world.delete("t")
    assert isinstance(error_of(world.propose(key, [1, 2, 3], proposer=leader)), UnknownTopicId)


def test_a_copy_of_a_proposal_that_was_refused_for_good_is_refused_whoever_decides_on_it(world: World) -> None:
    """Else it could be accepted when the joiner is eligible again, after the leader went back (V10)."""
    meanwhile: dict[str, Callable[[], None]] = {"a": lambda: None, "b": world.fail_over}
    for name, between in meanwhile.items():
        key, _, _, leaves = shrunk(world, name)
        world.fence(leaves)
        made_from = world.state(key).partition_epoch
        assert isinstance(error_of(world.propose(key, [1, 2, 3])), IneligibleReplica)
        between()
        world.heartbeat(leaves)
        late = world.propose(key, [1, 2, 3], partition_epoch=made_from)
        assert isinstance(error_of(late), InvalidUpdateVersion)
        assert leaves not in world.state(key).in_sync_replicas
        assert error_of(world.propose(key, [1, 2, 3])) is None


def test_a_refusal_for_good_is_answered_when_it_is_committed(world: World) -> None:
    """Else a controller that is deposed and does not know it would make the leader go back."""
    key, leader, _, leaves = shrunk(world)
    world.fence(leaves)
    state = world.state(key)
    members = [peer_pb2.InSyncReplica(broker_id=each, broker_epoch=world.epoch(each)) for each in (1, 2, 3)]
    proposal = peer_pb2.InSyncReplicasProposal(
        partition_id=common_pb2.PartitionId(topic_id=key.topic_id, partition=0),
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        in_sync_replicas=members,
    )
    request = peer_pb2.ProposeInSyncReplicasRequest(
        broker_id=leader, broker_epoch=world.epoch(leader), proposals=[proposal]
    )
    world.controller.propose_isr("refused", request)
    assert world.controller.take_effects() == []
    world.commit()
    assert "refused" in world.answers
