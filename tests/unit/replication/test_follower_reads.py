"""Consumers read from a follower (KIP-392) what is committed, and are sent to the leader where it cannot tell."""

from __future__ import annotations

from minilog.record_batch.header import iterate_headers
from minilog.v1 import common_pb2, data_pb2
from tests.unit.replication.cluster import KEY, ReplicaCluster

NOT_HERE = common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def offsets(cluster: ReplicaCluster, broker_id: int, session_id: int) -> list[int]:
    """The base offsets of the batches that a consumer was sent."""
    return [
        header.base_offset
        for _, batches in cluster.pushed(broker_id, session_id)
        for _, header in iterate_headers(batches)
    ]


def last_run(cluster: ReplicaCluster, broker_id: int, session_id: int) -> data_pb2.PartitionRun:
    return cluster.runs(broker_id, session_id)[-1]


def later(cluster: ReplicaCluster, ms: float) -> None:
    """All that can happen does, time passes, and all that can happen does."""
    cluster.settle()
    cluster.advance(ms)
    cluster.settle()


def produced(count: int, *, brokers: int = 3) -> ReplicaCluster:
    cluster = ReplicaCluster(brokers)
    for _ in range(count):
        cluster.produce(1)
        later(cluster, 10)
    return cluster


def test_a_follower_whose_image_is_behind_waits_for_the_epoch_and_then_sends() -> None:
    cluster = produced(1)
    cluster.controller.move(KEY, 2)
    cluster[3].alive = False
    cluster.settle()
    cluster[3].alive = True
    session_id = cluster.consume(3, 0, leader_epoch=1)
    while session_id in cluster[3].consumers_ready:
        cluster.pull_consumer(cluster[3], session_id)
    assert last_run(cluster, 3, session_id).error.code == common_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH
    later(cluster, 1_000)
    assert offsets(cluster, 3, session_id) == [0]


def test_a_follower_that_registers_anew_never_leaves_a_reader_waiting_in_silence() -> None:
    cluster = produced(1)
    session_id = cluster.consume(2, 0, leader_epoch=0)
    cluster.settle()
    cluster[2].manager.set_broker_epoch(999, cluster.now_ms)
    cluster[2].run()
    later(cluster, 5)
    assert last_run(cluster, 2, session_id).error.code == NOT_HERE
