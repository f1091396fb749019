"""Reassignment of replicas (KIP-455): its steps, that they keep the rules of the ISR, and what it survives."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition
from minilog.v1 import admin_pb2
from minilog_broker.replication.state import PartitionKey
from tests.unit.controller.world import World, error_of


@pytest.fixture
def world() -> World:
    world = World()
    world.start_all(6)
    return world


def on(world: World, *replicas: int, **configs: str) -> PartitionKey:
    """A new partition on these brokers; the first leads."""
    key = world.created(f"t{len(world.image.topics)}", 1, len(replicas), **configs)
    assert error_of(world.reassign(key, replicas)) is None
    join(world, key, *replicas)
    if world.state(key).leader_id != replicas[0]:
        world.elect(world.state(key).topic_name)
    state = world.state(key)
    assert (state.replicas, state.leader_id, state.reassigning) == (replicas, replicas[0], False)
    return key


def join(world: World, key: PartitionKey, *members: int) -> None:
    """The leader takes them into the ISR, one after the other."""
    for member in members:
        isr = set(world.state(key).in_sync_replicas)
        if member not in isr and member in world.state(key).replicas:
            assert error_of(world.propose(key, sorted(isr | {member}))) is None


def test_while_under_way_the_replicas_are_both_those_of_the_target_first(world: World) -> None:
    key = on(world, 1, 2, 3)
    before = world.state(key)
    assert error_of(world.reassign(key, (3, 4, 5))) is None
    state = world.state(key)
    assert state.replicas == (3, 4, 5, 1, 2)
    assert (state.adding_replicas, state.removing_replicas) == ((4, 5), (1, 2))
    assert set(state.in_sync_replicas) == {1, 2, 3}
    assert (state.leader_id, state.leader_epoch) == (1, before.leader_epoch), "nobody who is there is disturbed"
    assert state.partition_epoch == before.partition_epoch + 1
    assert (state.target_replicas, state.original_replicas) == ((3, 4, 5), (3, 1, 2))


def test_it_is_done_when_all_of_the_target_are_in_the_isr_and_the_leader_moves_where_it_must(world: World) -> None:
    key = on(world, 1, 2, 3)
    world.reassign(key, (3, 4, 5))
    join(world, key, 4)
    assert world.state(key).reassigning
    epoch = world.state(key).leader_epoch
    join(world, key, 5)
    state = world.state(key)
    assert (state.replicas, state.in_sync_replicas, state.leader_id) == ((3, 4, 5), (3, 4, 5), 3)
    assert (state.adding_replicas, state.removing_replicas) == ((), ())
    assert state.leader_epoch == epoch + 1
    assert key not in world.image.partitions_of_broker.get(1, ())


def test_a_replica_that_goes_takes_the_leader_epoch_with_it_though_the_leader_stays(world: World) -> None:
    """Else a leader that sees only that it went and came back would count what its deleted log had (mutant 8)."""
    key = on(world, 1, 2, 3)
    epoch = world.state(key).leader_epoch
    world.reassign(key, (1, 2))
    assert (world.state(key).leader_id, world.state(key).leader_epoch) == (1, epoch + 1)
    world.reassign(key, (1, 2, 3))
    assert world.state(key).leader_epoch == epoch + 1


def test_a_new_order_alone_is_done_at_once_and_disturbs_nobody(world: World) -> None:
    key = on(world, 1, 2, 3)
    before = world.state(key)
    world.reassign(key, (2, 3, 1))
    state = world.state(key)
    assert (state.replicas, state.reassigning) == ((2, 3, 1), False)
    assert (state.leader_id, state.leader_epoch) == (1, before.leader_epoch)


def test_fewer_replicas_wait_for_all_that_stay(world: World) -> None:
    key = on(world, 1, 2, 3)
    world.propose(key, [1, 3])
    world.reassign(key, (1, 2))
    assert world.state(key).reassigning, "2 lacks what 3 has"
    join(world, key, 2)
    assert world.state(key).replicas == (1, 2)


def test_min_insync_replicas_is_bounded_by_the_number_before_until_it_is_done(world: World) -> None:
    key = on(world, 1)
    world.reassign(key, (2, 3, 4))
    assert world.state(key).replication_factor == 1, "the one there is may go on to take writes"
    join(world, key, 2, 3, 4)
    assert world.state(key).replication_factor == 3


def test_a_new_one_replaces_an_unfinished_one_and_lets_go_what_nobody_wants(world: World) -> None:
    key = on(world, 1, 2, 3)
    world.reassign(key, (4, 5, 6))
    world.reassign(key, (3, 4, 2))
    state = world.state(key)
    assert state.replicas == (3, 4, 2, 1)
    assert (state.adding_replicas, state.removing_replicas) == ((4,), (1,))
    join(world, key, 4)
    assert world.state(key).replicas == (3, 4, 2)


def test_an_added_one_that_leads_stays_until_the_isr_can_spare_it(world: World) -> None:
    """As in Kafka's test of a second reassignment that does not name the leader of the first."""
    key = on(world, 1, 2)
    world.reassign(key, (3, 4))
    join(world, key, 3)
    world.fence(1)
    world.elect(world.state(key).topic_name)
    assert (world.state(key).leader_id, set(world.state(key).in_sync_replicas)) == (3, {2, 3})
    world.reassign(key, (4, 5))
    state = world.state(key)
    assert state.leader_id == 3
    assert set(state.removing_replicas) == {1, 2, 3}
    assert set(state.adding_replicas) == {3, 4, 5}
    join(world, key, 4)
    assert 3 not in world.state(key).replicas, "2 and 4 are enough"
    join(world, key, 5)
    assert world.state(key).in_sync_replicas == (4, 5)


def test_cancelled_the_replicas_are_those_before(world: World) -> None:
    key = on(world, 1, 2, 3)
    world.reassign(key, (3, 4, 5))
    join(world, key, 4)
    assert error_of(world.reassign(key, ())) is None
    state = world.state(key)
    assert set(state.replicas) == {1, 2, 3}
    assert set(state.in_sync_replicas) == {1, 2, 3}
    assert not state.reassigning


def test_cancelled_where_an_added_one_is_needed_it_stays_until_it_is_not(world: World) -> None:
    key = on(world, 1, 2)
    world.reassign(key, (1, 4))
    join(world, key, 2)
    world.fence(2)
    join(world, key, 4)
    key = on(world, 1, 3)
    world.reassign(key, (1, 4, 5))
    join(world, key, 4)
    world.fence(3)
    assert world.state(key).in_sync_replicas == (1, 4)
    world.reassign(key, ())
    assert set(world.state(key).replicas) == {1, 3, 4}, "with 1 alone the ISR would be below min"
    world.heartbeat(3)
    join(world, key, 3)
    assert set(world.state(key).replicas) == {1, 3}


def test_it_survives_controllers(world: World) -> None:
    key = on(world, 1, 2, 3)
    world.reassign(key, (4, 5, 6), throttle_bytes_per_second=1_000_000)
    world.fail_over()
    assert world.state(key).throttle_bytes_per_second == 1_000_000
    join(world, key, 4, 5)
    world.fail_over()
    join(world, key, 6)
    assert world.state(key).replicas == (4, 5, 6)
    assert world.state(key).throttle_bytes_per_second == 0, "it ends with what it was for"


def test_the_death_of_an_added_one_holds_it_up_and_of_a_removed_one_does_not(world: World) -> None:
    key = on(world, 1, 2, 3)
    world.reassign(key, (3, 4, 5))
    world.fence(4)
    world.fence(1)
    join(world, key, 5)
    assert world.state(key).reassigning
    world.heartbeat(4)
    join(world, key, 4)
    assert world.state(key).replicas == (3, 4, 5)


def test_a_limit_is_changed_by_asking_again(world: World) -> None:
    key = on(world, 1, 2, 3)
    world.reassign(key, (3, 4, 5), throttle_bytes_per_second=100)
    before = world.state(key)
    world.reassign(key, (3, 4, 5), throttle_bytes_per_second=200)
    assert world.state(key).throttle_bytes_per_second == 200
    assert world.state(key).replicas == before.replicas
    assert world.state(key).leader_epoch == before.leader_epoch


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ((1, 1), InvalidReplicaAssignment),
        ((1, 9), InvalidReplicaAssignment),
        ((1, 5), InvalidReplicaAssignment),
        ((1, 6), InvalidReplicaAssignment),
        ((1,), InvalidReplicaAssignment),
        ((), NoReassignmentInProgress),
    ],
    ids=["twice", "unknown", "fenced", "stopping", "below min.insync.replicas", "nothing to cancel"],
)
def test_what_cannot_be_is_refused_without_a_trace(
    world: World, target: tuple[int, ...], error: type[Exception]
) -> None:
    key = on(world, 1, 2, 3, min_insync_replicas="2")
    world.fence(5)
    world.heartbeat(6, wants_stop=True)
    before = world.state(key)
    assert type(error_of(world.reassign(key, target))) is error
    assert world.state(key) == before


def test_partitions_that_do_not_exist_are_refused(world: World) -> None:
    key = on(world, 1, 2, 3)
    name = world.state(key).topic_name
    wanted = [
        admin_pb2.PartitionReassignment(name=name, partition=7, replicas=[1]),
        admin_pb2.PartitionReassignment(name="nowhere", partition=0, replicas=[1]),
        admin_pb2.PartitionReassignment(name=name, partition=0, replicas=[4, 5, 6]),
    ]
    world.controller.alter_reassignments("t", admin_pb2.AlterPartitionReassignmentsRequest(reassignments=wanted))
    results = world.answer("t", admin_pb2.AlterPartitionReassignmentsResponse).results
    assert [type(error_of(each)) for each in results] == [UnknownTopicOrPartition, UnknownTopicOrPartition, type(None)]
    assert world.state(key).reassigning


def test_a_replica_whose_disk_failed_is_whole_again_when_it_went_and_came_back(world: World) -> None:
    """Its broker names it offline no more: it has a new log."""
    key = on(world, 1, 2, 3)
    world.heartbeat(3, offline=[key])
    world.reassign(key, (1, 2))
    world.heartbeat(3)
    world.reassign(key, (1, 2, 3))
    join(world, key, 3)
    assert world.state(key).in_sync_replicas == (1, 2, 3)
