"""What the tests of transactions in a partition share."""

from __future__ import annotations

from minilog.errors import MinilogError
from minilog.record_batch.header import iterate_headers
from minilog.v1 import data_pb2
from minilog_broker.replication.leader.pending import TransactionalWrite
from minilog_broker.replication.replica_effects import AppendToLog, EndMarker
from tests.unit.replication.broker import KEY, batch, transactional
from tests.unit.replication.cluster import ReplicaCluster

UNCOMMITTED = data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
WRITE = TransactionalWrite("spark-1", 4)


def send(
    cluster: ReplicaCluster, producer_id: int, sequence: int = 0, *, to: int = 1, acks: int = -1, rows: int = 1
) -> int:
    data = transactional(batch(rows, producer=(producer_id, 0, sequence)))
    return cluster.produce(to, data, acks=acks, transaction=WRITE)


def begin(cluster: ReplicaCluster, producer_id: int, *, to: int = 1) -> None:
    """A producer's first record, registered and committed to the log."""
    send(cluster, producer_id, to=to)
    cluster.register(to)
    cluster.settle()


def commit(producer_id: int, last_sequence: int = 0) -> EndMarker:
    return EndMarker(producer_id, committed=True, last_sequence=last_sequence)


def abort(producer_id: int) -> EndMarker:
    return EndMarker(producer_id, committed=False, last_sequence=-1)


def error_of(cluster: ReplicaCluster, ticket: int, *, at: int = 1) -> type[MinilogError] | None:
    error = cluster[at].answers[ticket].error
    return None if error is None else type(error)


def stable(cluster: ReplicaCluster, broker_id: int = 1) -> int:
    replica = cluster[broker_id].manager._replicas[KEY]
    assert replica.log is not None
    return replica.log.last_stable_offset


def cut_off(cluster: ReplicaCluster, *broker_ids: int, leader_id: int = 1) -> None:
    for broker_id in broker_ids:
        cluster.cut.add((broker_id, leader_id))
        cluster.break_link(cluster[broker_id].links[leader_id])


def offsets(cluster: ReplicaCluster, broker_id: int, session_id: int) -> list[int]:
    """Of the batches that a consumer was sent."""
    pushed = cluster.pushed(broker_id, session_id)
    return [header.base_offset for _, batches in pushed for _, header in iterate_headers(batches)]


def appends(cluster: ReplicaCluster, broker_id: int = 1) -> int:
    return sum(isinstance(effect, AppendToLog) for effect in cluster[broker_id].history)
