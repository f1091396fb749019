"""Reassignment of replicas (KIP-455): its steps, that they keep the rules of the ISR, and what it survives."""

from __future__ import annotations

import pytest

from minilog.errors import UnknownTopicOrPartition
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


def test_min_insync_replicas_is_bounded_by_the_number_before_until_it_is_done(cluster: ControllerCluster) -> None:
    key = on(cluster, 1)
    cluster.reassign(key, (2, 3, 4))
    assert cluster.state(key).replication_factor == 1, "the one there is may go on to take writes"
    join(cluster, key, 2, 3, 4)
    assert cluster.state(key).replication_factor == 3


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
