"""Before a producer's first record in a partition its leader has it registered with the coordinator."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    InvalidArgument,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOut,
    UnknownOutcome,
)
from minilog_broker.replication.leader import pending_registrations
from minilog_broker.replication.leader.pending import TransactionalWrite
from minilog_broker.replication.replica_effects import RegisterPartition
from tests.rules import proves
from tests.unit.replication.broker import KEY, batch, transactional
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.transacting import (
    WRITE,
    begin,
    cut_off,
    error_of,
    send,
)


@proves("TX.1")
def test_a_producers_first_record_waits_until_the_coordinator_has_it_registered() -> None:
    cluster = ReplicaCluster()
    tickets = [send(cluster, 7, 0), send(cluster, 7, 1)]
    cluster.settle()
    assert cluster[1].ends()[2] == 0, "nothing is written"
    assert list(cluster[1].registrations) == [RegisterPartition(1, KEY, "spark-1", 7, 4)], "and it is asked once"
    cluster.register(1)
    cluster.settle()
    assert [cluster[1].answers[ticket].base_offset for ticket in tickets] == [0, 1]
    send(cluster, 7, 2)
    assert not cluster[1].registrations, "it is known from now on"


@proves("TX.1")
def test_who_is_refused_by_the_coordinator_writes_nothing() -> None:
    cluster = ReplicaCluster()
    tickets = [send(cluster, 7, 0), send(cluster, 7, 1)]
    cluster.register(1, ProducerFenced("it has ended"))
    cluster.settle()
    assert [error_of(cluster, ticket) for ticket in tickets] == [ProducerFenced, ProducerFenced]
    assert cluster[1].ends()[2] == 0


def test_each_producer_waits_for_its_own_answer() -> None:
    cluster = ReplicaCluster()
    first, second = send(cluster, 7), send(cluster, 8)
    asked = cluster[1].registrations.pop()
    cluster[1].manager.registered(asked.key, asked.number, None, cluster.now_ms)
    cluster.settle()
    assert error_of(cluster, second) is None
    assert first not in cluster[1].answers


def test_a_resent_batch_waits_too_and_is_a_duplicate_then() -> None:
    cluster = ReplicaCluster()
    first, again = send(cluster, 7), send(cluster, 7)
    cluster.register(1)
    cluster.settle()
    assert cluster[1].answers[first].base_offset == cluster[1].answers[again].base_offset == 0
    assert cluster[1].ends()[2] == 1


@proves("TX.1")
def test_a_new_leader_with_the_producers_records_asks_nobody() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cluster[1].crash()
    cluster.controller.fence(1)
    cluster.settle()
    ticket = send(cluster, 7, 1, to=2)
    cluster.settle()
    assert not cluster[2].registrations
    assert error_of(cluster, ticket, at=2) is None


@proves("TX.3")
def test_an_unknown_transactional_producer_begins_at_sequence_0() -> None:
    cluster = ReplicaCluster()
    assert error_of(cluster, send(cluster, 7, 1)) is OutOfOrderSequenceNumber
    assert not cluster[1].registrations


@proves("TX.3")
@pytest.mark.parametrize("acks", [0, 1])
def test_a_transactional_batch_is_acknowledged_by_all_whatever_is_asked(acks: int) -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cut_off(cluster, 2, 3)
    ticket = send(cluster, 7, 1, acks=acks)
    cluster.settle()
    assert ticket not in cluster[1].answers
    cluster.cut.clear()
    cluster.advance(500)
    assert error_of(cluster, ticket) is None


@proves("TX.3")
def test_a_batch_and_its_entry_are_both_of_a_transaction_or_neither() -> None:
    cluster = ReplicaCluster()
    plain, marked = batch(producer=(7, 0, 0)), transactional(batch(producer=(7, 0, 0)))
    assert error_of(cluster, cluster.produce(1, plain, transaction=WRITE)) is InvalidArgument
    assert error_of(cluster, cluster.produce(1, marked)) is InvalidArgument
    assert error_of(cluster, cluster.produce(1, marked, transaction=TransactionalWrite("", 0))) is InvalidArgument
    assert not cluster[1].registrations


@proves("TX.2")
def test_who_waits_for_its_coordinator_times_out_and_a_late_answer_writes_nothing() -> None:
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
def test_losing_leadership_answers_who_waits_for_its_coordinator() -> None:
    cluster = ReplicaCluster()
    ticket = send(cluster, 7)
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert error_of(cluster, ticket) is UnknownOutcome
    cluster.register(1)
    cluster.settle()
    assert cluster[1].ends()[2] == 0


def test_below_min_who_was_registered_is_refused_and_nothing_is_written() -> None:
    cluster = ReplicaCluster()
    ticket = send(cluster, 7)
    cut_off(cluster, 2, 3)
    cluster.advance(4_000)
    cluster.controller.fence(2)
    cluster.controller.fence(3)
    cluster.settle()
    cluster.register(1)
    assert error_of(cluster, ticket) is NotEnoughReplicas


@proves("TX.2")
def test_what_waits_is_bounded_by_producer_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ReplicaCluster()
    tickets = [send(cluster, 7, sequence) for sequence in range(pending_registrations.MAX_WAITING + 1)]
    assert [error_of(cluster, tickets[-1]), tickets[-2] in cluster[1].answers] == [OutOfOrderSequenceNumber, False]
    monkeypatch.setattr(pending_registrations, "MAX_WAITING_BYTES", 100)
    assert error_of(cluster, send(cluster, 8)) is CoordinatorLoadInProgress
    cluster.register(1, ProducerFenced("it has ended"))
    send(cluster, 8)
    assert [asked.producer_id for asked in cluster[1].registrations] == [8], "room was given back"
