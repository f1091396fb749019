"""Before a producer's first record in a partition its leader has it registered with the coordinator."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    InvalidArgument,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOut,
)
from minilog_broker.replication.leader import pending_registrations
from minilog_broker.replication.leader.pending import TransactionalWrite
from tests.rules import proves
from tests.unit.replication.broker import KEY, batch, transactional
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.transacting import (
    WRITE,
    error_of,
    send,
)


def test_each_producer_waits_for_its_own_answer() -> None:
    cluster = ReplicaCluster()
    first, second = send(cluster, 7), send(cluster, 8)
    asked = cluster[1].registrations.pop()
    cluster[1].manager.registered(asked.key, asked.number, None, cluster.now_ms)
    cluster.settle()
    assert error_of(cluster, second) is None
    assert first not in cluster[1].answers


@proves("TX.3")
def test_a_batch_and_its_entry_are_both_of_a_transaction_or_neither() -> None:
    cluster = ReplicaCluster()
    plain, marked = batch(producer=(7, 0, 0)), transactional(batch(producer=(7, 0, 0)))
    assert error_of(cluster, cluster.produce(1, plain, transaction=WRITE)) is InvalidArgument
    assert error_of(cluster, cluster.produce(1, marked)) is InvalidArgument
    assert error_of(cluster, cluster.produce(1, marked, transaction=TransactionalWrite("", 0))) is InvalidArgument
    assert not cluster[1].registrations


@proves("TX.2")
def test_an_entry_that_waits_for_its_coordinator_times_out_and_a_late_answer_writes_nothing() -> None:
    cluster = ReplicaCluster()
    ticket = send(cluster, 7)
    number = cluster[1].registrations[0].number
    assert cluster[1].manager.is_registering(KEY, number)
    cluster.advance(5_001)
    assert error_of(cluster, ticket) is RequestTimedOut
    assert not cluster[1].manager.is_registering(KEY, number), "nobody has to ask any longer"
    cluster.register(1)
    cluster.settle()
    assert cluster[1].ends()[2] == 0


@proves("TX.2")
def test_waiting_entries_are_bounded_by_producer_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ReplicaCluster()
    tickets = [send(cluster, 7, sequence) for sequence in range(pending_registrations.MAX_WAITING + 1)]
    assert [error_of(cluster, tickets[-1]), tickets[-2] in cluster[1].answers] == [OutOfOrderSequenceNumber, False]
    monkeypatch.setattr(pending_registrations, "MAX_WAITING_BYTES", 100)
    assert error_of(cluster, send(cluster, 8)) is CoordinatorLoadInProgress
    cluster.register(1, ProducerFenced("it has ended"))
    send(cluster, 8)
    assert [asked.producer_id for asked in cluster[1].registrations] == [8], "room was given back"
