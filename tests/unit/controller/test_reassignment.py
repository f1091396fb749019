"""Reassignment of replicas (KIP-455): its steps, that they keep the rules of the ISR, and what it survives."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition
from minilog.partition_key import PartitionKey
from minilog.v1 import admin_pb2
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("MD.52")


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(6)
    return cluster


def on(cluster: ControllerCluster, *replicas: int, **configs: str) -> PartitionKey:
    """A new partition on these brokers; the first leads."""
    key = cluster.created(f"t{len(cluster.image.topics)}", 1, len(replicas), **configs)
    assert error_of(cluster.reassign(key, replicas)) is None
    join(cluster, key, *replicas)
    if cluster.state(key).leader_id != replicas[0]:
        cluster.elect(cluster.state(key).topic_name)
    state = cluster.state(key)
    assert (state.replicas, state.leader_id, state.reassigning) == (replicas, replicas[0], False)
    return key


def join(cluster: ControllerCluster, key: PartitionKey, *members: int) -> None:
    """The leader takes them into the ISR, one after the other."""
    for member in members:
        isr = set(cluster.state(key).in_sync_replicas)
        if member not in isr and member in cluster.state(key).replicas:
            assert error_of(cluster.propose(key, sorted(isr | {member}))) is None


def test_while_under_way_the_replicas_are_both_those_of_the_target_first(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    before = cluster.state(key)
    assert error_of(cluster.reassign(key, (3, 4, 5))) is None
    state = cluster.state(key)
    assert state.replicas == (3, 4, 5, 1, 2)
    assert (state.adding_replicas, state.removing_replicas) == ((4, 5), (1, 2))
    assert set(state.in_sync_replicas) == {1, 2, 3}
    assert (state.leader_id, state.leader_epoch) == (1, before.leader_epoch), "nobody who is there is disturbed"
    assert state.partition_epoch == before.partition_epoch + 1
    assert (state.target_replicas, state.original_replicas) == ((3, 4, 5), (3, 1, 2))


def test_it_is_done_when_all_of_the_target_are_in_the_isr_and_the_leader_moves_where_it_must(
    cluster: ControllerCluster,
) -> None:
    key = on(cluster, 1, 2, 3)
    cluster.reassign(key, (3, 4, 5))
    join(cluster, key, 4)
    assert cluster.state(key).reassigning
    epoch = cluster.state(key).leader_epoch
    join(cluster, key, 5)
    state = cluster.state(key)
    assert (state.replicas, state.in_sync_replicas, state.leader_id) == ((3, 4, 5), (3, 4, 5), 3)
    assert (state.adding_replicas, state.removing_replicas) == ((), ())
    assert state.leader_epoch == epoch + 1
    assert key not in cluster.image.partitions_of_broker.get(1, ())


@proves("MD.53")
def test_a_replica_that_goes_takes_the_leader_epoch_with_it_though_the_leader_stays(cluster: ControllerCluster) -> None:
    """Else a leader that sees only that it went and came back would count what its deleted log had (mutant 8)."""
    key = on(cluster, 1, 2, 3)
    epoch = cluster.state(key).leader_epoch
    cluster.reassign(key, (1, 2))
    assert (cluster.state(key).leader_id, cluster.state(key).leader_epoch) == (1, epoch + 1)
    cluster.reassign(key, (1, 2, 3))
    assert cluster.state(key).leader_epoch == epoch + 1


def test_a_new_order_alone_is_done_at_once_and_disturbs_nobody(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    before = cluster.state(key)
    cluster.reassign(key, (2, 3, 1))
    state = cluster.state(key)
    assert (state.replicas, state.reassigning) == ((2, 3, 1), False)
    assert (state.leader_id, state.leader_epoch) == (1, before.leader_epoch)


def test_fewer_replicas_wait_for_all_that_stay(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    cluster.propose(key, [1, 3])
    cluster.reassign(key, (1, 2))
    assert cluster.state(key).reassigning, "2 lacks what 3 has"
    join(cluster, key, 2)
    assert cluster.state(key).replicas == (1, 2)


def test_min_insync_replicas_is_bounded_by_the_number_before_until_it_is_done(cluster: ControllerCluster) -> None:
    key = on(cluster, 1)
    cluster.reassign(key, (2, 3, 4))
    assert cluster.state(key).replication_factor == 1, "the one there is may go on to take writes"
    join(cluster, key, 2, 3, 4)
    assert cluster.state(key).replication_factor == 3


def test_a_new_one_replaces_an_unfinished_one_and_lets_go_what_nobody_wants(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    cluster.reassign(key, (4, 5, 6))
    cluster.reassign(key, (3, 4, 2))
    state = cluster.state(key)
    assert state.replicas == (3, 4, 2, 1)
    assert (state.adding_replicas, state.removing_replicas) == ((4,), (1,))
    join(cluster, key, 4)
    assert cluster.state(key).replicas == (3, 4, 2)


def test_an_added_one_that_leads_stays_until_the_isr_can_spare_it(cluster: ControllerCluster) -> None:
    """As in Kafka's test of a second reassignment that does not name the leader of the first."""
    key = on(cluster, 1, 2)
    cluster.reassign(key, (3, 4))
    join(cluster, key, 3)
    cluster.fence(1)
    cluster.elect(cluster.state(key).topic_name)
    assert (cluster.state(key).leader_id, set(cluster.state(key).in_sync_replicas)) == (3, {2, 3})
    cluster.reassign(key, (4, 5))
    state = cluster.state(key)
    assert state.leader_id == 3
    assert set(state.removing_replicas) == {1, 2, 3}
    assert set(state.adding_replicas) == {3, 4, 5}
    join(cluster, key, 4)
    assert 3 not in cluster.state(key).replicas, "2 and 4 are enough"
    join(cluster, key, 5)
    assert cluster.state(key).in_sync_replicas == (4, 5)


def test_cancelled_the_replicas_are_those_before(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    cluster.reassign(key, (3, 4, 5))
    join(cluster, key, 4)
    assert error_of(cluster.reassign(key, ())) is None
    state = cluster.state(key)
    assert set(state.replicas) == {1, 2, 3}
    assert set(state.in_sync_replicas) == {1, 2, 3}
    assert not state.reassigning


def test_cancelled_where_an_added_one_is_needed_it_stays_until_it_is_not(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2)
    cluster.reassign(key, (1, 4))
    join(cluster, key, 2)
    cluster.fence(2)
    join(cluster, key, 4)
    key = on(cluster, 1, 3)
    cluster.reassign(key, (1, 4, 5))
    join(cluster, key, 4)
    cluster.fence(3)
    assert cluster.state(key).in_sync_replicas == (1, 4)
    cluster.reassign(key, ())
    assert set(cluster.state(key).replicas) == {1, 3, 4}, "with 1 alone the ISR would be below min"
    cluster.heartbeat(3)
    join(cluster, key, 3)
    assert set(cluster.state(key).replicas) == {1, 3}


def test_it_survives_controllers(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    cluster.reassign(key, (4, 5, 6), throttle_bytes_per_second=1_000_000)
    cluster.fail_over()
    assert cluster.state(key).throttle_bytes_per_second == 1_000_000
    join(cluster, key, 4, 5)
    cluster.fail_over()
    join(cluster, key, 6)
    assert cluster.state(key).replicas == (4, 5, 6)
    assert cluster.state(key).throttle_bytes_per_second == 0, "it ends with what it was for"


def test_the_death_of_an_added_one_holds_it_up_and_of_a_removed_one_does_not(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    cluster.reassign(key, (3, 4, 5))
    cluster.fence(4)
    cluster.fence(1)
    join(cluster, key, 5)
    assert cluster.state(key).reassigning
    cluster.heartbeat(4)
    join(cluster, key, 4)
    assert cluster.state(key).replicas == (3, 4, 5)


def test_a_limit_is_changed_by_asking_again(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    cluster.reassign(key, (3, 4, 5), throttle_bytes_per_second=100)
    before = cluster.state(key)
    cluster.reassign(key, (3, 4, 5), throttle_bytes_per_second=200)
    assert cluster.state(key).throttle_bytes_per_second == 200
    assert cluster.state(key).replicas == before.replicas
    assert cluster.state(key).leader_epoch == before.leader_epoch


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
    cluster: ControllerCluster, target: tuple[int, ...], error: type[Exception]
) -> None:
    key = on(cluster, 1, 2, 3, min_insync_replicas="2")
    cluster.fence(5)
    cluster.heartbeat(6, wants_stop=True)
    before = cluster.state(key)
    assert type(error_of(cluster.reassign(key, target))) is error
    assert cluster.state(key) == before


def test_partitions_that_do_not_exist_are_refused(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 3)
    name = cluster.state(key).topic_name
    wanted = [
        admin_pb2.PartitionReassignment(name=name, partition=7, replicas=[1]),
        admin_pb2.PartitionReassignment(name="nowhere", partition=0, replicas=[1]),
        admin_pb2.PartitionReassignment(name=name, partition=0, replicas=[4, 5, 6]),
    ]
    cluster.controller.alter_reassignments("t", admin_pb2.AlterPartitionReassignmentsRequest(reassignments=wanted))
    results = cluster.answer("t", admin_pb2.AlterPartitionReassignmentsResponse).results
    assert [type(error_of(each)) for each in results] == [UnknownTopicOrPartition, UnknownTopicOrPartition, type(None)]
    assert cluster.state(key).reassigning


def test_a_replica_whose_disk_failed_is_whole_again_when_it_went_and_came_back(cluster: ControllerCluster) -> None:
    """Its broker names it offline no more: it has a new log."""
    key = on(cluster, 1, 2, 3)
    cluster.heartbeat(3, offline=[key])
    cluster.reassign(key, (1, 2))
    cluster.heartbeat(3)
    cluster.reassign(key, (1, 2, 3))
    join(cluster, key, 3)
    assert cluster.state(key).in_sync_replicas == (1, 2, 3)
