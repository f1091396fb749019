"""A broker whose disk is full: it leads only what nobody else can, and is in no ISR that would wait for it."""

from __future__ import annotations

from minilog.errors import IneligibleReplica
from minilog.v1 import peer_pb2
from minilog_broker.replication.state import PartitionKey, PartitionState
from tests.unit.controller.world import World, error_of


def beat(world: World, broker_id: int, *, full: bool) -> None:
    broker = world.image.brokers[broker_id]
    ticket = world.ticket()
    request = peer_pb2.HeartbeatRequest(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, metadata_offset=world.image.end_offset, no_space=full
    )
    world.controller.heartbeat(ticket, request, world.now_ms)
    assert error_of(world.answer(ticket, peer_pb2.HeartbeatResponse)) is None


def led(replication_factor: int = 3) -> tuple[World, PartitionKey]:
    world = World()
    world.start_all()
    return world, world.created(replication_factor=replication_factor)


def state(world: World, key: PartitionKey) -> PartitionState:
    return world.image.partitions[key]


def test_leadership_is_handed_over_and_the_isr_does_not_wait() -> None:
    world, key = led()
    leader = state(world, key).leader_id
    beat(world, leader, full=True)
    after = state(world, key)
    assert after.leader_id not in (-1, leader)
    assert leader not in after.in_sync_replicas
    assert len(after.in_sync_replicas) == 2


def test_a_full_follower_leaves_the_isr() -> None:
    world, key = led()
    before = state(world, key)
    follower = next(each for each in before.replicas if each != before.leader_id)
    beat(world, follower, full=True)
    after = state(world, key)
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
    assert follower not in after.in_sync_replicas


def test_where_nobody_else_can_lead_it_stays_and_reading_goes_on() -> None:
    world, key = led(replication_factor=1)
    before = state(world, key)
    beat(world, before.leader_id, full=True)
    assert state(world, key) == before


def test_full_brokers_do_not_hand_over_to_each_other() -> None:
    world, key = led()
    for broker_id in state(world, key).replicas:
        beat(world, broker_id, full=True)
    last = state(world, key)
    for _ in range(3):
        for broker_id in last.replicas:
            beat(world, broker_id, full=True)
    assert state(world, key) == last
    assert last.leader_id != -1


def test_it_joins_no_isr_before_it_has_space() -> None:
    world, key = led()
    before = state(world, key)
    follower = next(each for each in before.replicas if each != before.leader_id)
    beat(world, follower, full=True)
    answer = world.propose(key, before.replicas)
    assert isinstance(error_of(answer), IneligibleReplica)
    assert "its disk is full" in str(error_of(answer))
    beat(world, follower, full=False)
    assert error_of(world.propose(key, before.replicas)) is None
    assert set(state(world, key).in_sync_replicas) == set(before.replicas)


def test_it_is_handed_over_as_soon_as_another_can_lead() -> None:
    world, key = led()
    before = state(world, key)
    for broker_id in before.replicas:
        if broker_id != before.leader_id:
            world.fence(broker_id)
    beat(world, before.leader_id, full=True)
    assert state(world, key).leader_id == before.leader_id
    other = next(each for each in before.replicas if each != before.leader_id)
    world.start(other)
    world.propose(key, (before.leader_id, other))
    beat(world, before.leader_id, full=True)
    assert state(world, key).leader_id == other
    assert state(world, key).in_sync_replicas == (other,)


def test_a_new_life_or_a_new_controller_asks_again() -> None:
    world, key = led()
    follower = next(each for each in state(world, key).replicas if each != state(world, key).leader_id)
    beat(world, follower, full=True)
    world.restart(follower)
    assert error_of(world.propose(key, state(world, key).replicas)) is None
    world.fail_over()
    beat(world, follower, full=True)
    assert follower not in state(world, key).in_sync_replicas
