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
from minilog_broker.replication import registering
from minilog_broker.replication.effects import RegisterPartition
from minilog_broker.replication.parked import TransactionalWrite
from tests.unit.replication.broker import KEY, batch, transactional
from tests.unit.replication.transacting import (
    WRITE,
    begin,
    cut_off,
    error_of,
    send,
)
from tests.unit.replication.world import World


def test_a_producers_first_record_waits_until_the_coordinator_has_it_registered() -> None:
    world = World()
    tickets = [send(world, 7, 0), send(world, 7, 1)]
    world.settle()
    assert world[1].ends()[2] == 0, "nothing is written"
    assert list(world[1].registrations) == [RegisterPartition(1, KEY, "spark-1", 7, 4)], "and it is asked once"
    world.register(1)
    world.settle()
    assert [world[1].answers[ticket].base_offset for ticket in tickets] == [0, 1]
    send(world, 7, 2)
    assert not world[1].registrations, "it is known from now on"


def test_who_is_refused_by_the_coordinator_writes_nothing() -> None:
    world = World()
    tickets = [send(world, 7, 0), send(world, 7, 1)]
    world.register(1, ProducerFenced("it has ended"))
    world.settle()
    assert [error_of(world, ticket) for ticket in tickets] == [ProducerFenced, ProducerFenced]
    assert world[1].ends()[2] == 0


def test_each_producer_waits_for_its_own_answer() -> None:
    world = World()
    first, second = send(world, 7), send(world, 8)
    asked = world[1].registrations.pop()
    world[1].manager.registered(asked.key, asked.number, None, world.now_ms)
    world.settle()
    assert error_of(world, second) is None
    assert first not in world[1].answers


def test_a_resent_batch_waits_too_and_is_a_duplicate_then() -> None:
    world = World()
    first, again = send(world, 7), send(world, 7)
    world.register(1)
    world.settle()
    assert world[1].answers[first].base_offset == world[1].answers[again].base_offset == 0
    assert world[1].ends()[2] == 1


def test_a_new_leader_with_the_producers_records_asks_nobody() -> None:
    world = World()
    begin(world, 7)
    world[1].crash()
    world.controller.fence(1)
    world.settle()
    ticket = send(world, 7, 1, to=2)
    world.settle()
    assert not world[2].registrations
    assert error_of(world, ticket, at=2) is None


def test_an_unknown_transactional_producer_begins_at_sequence_0() -> None:
    world = World()
    assert error_of(world, send(world, 7, 1)) is OutOfOrderSequenceNumber
    assert not world[1].registrations


@pytest.mark.parametrize("acks", [0, 1])
def test_a_transactional_batch_is_acknowledged_by_all_whatever_is_asked(acks: int) -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    ticket = send(world, 7, 1, acks=acks)
    world.settle()
    assert ticket not in world[1].answers
    world.cut.clear()
    world.advance(500)
    assert error_of(world, ticket) is None


def test_a_batch_and_its_entry_are_both_of_a_transaction_or_neither() -> None:
    world = World()
    plain, marked = batch(producer=(7, 0, 0)), transactional(batch(producer=(7, 0, 0)))
    assert error_of(world, world.produce(1, plain, transaction=WRITE)) is InvalidArgument
    assert error_of(world, world.produce(1, marked)) is InvalidArgument
    assert error_of(world, world.produce(1, marked, transaction=TransactionalWrite("", 0))) is InvalidArgument
    assert not world[1].registrations


def test_who_waits_for_its_coordinator_times_out_and_a_late_answer_writes_nothing() -> None:
    world = World()
    ticket = send(world, 7)
    number = world[1].registrations[0].number
    assert world[1].manager.is_registering(KEY, number)
    world.advance(5_001)
    assert error_of(world, ticket) is RequestTimedOut
    assert not world[1].manager.is_registering(KEY, number), "nobody has to ask any longer"
    world.register(1)
    world.settle()
    assert world[1].ends()[2] == 0


def test_losing_leadership_answers_who_waits_for_its_coordinator() -> None:
    world = World()
    ticket = send(world, 7)
    world.controller.move(KEY, 2)
    world.settle()
    assert error_of(world, ticket) is UnknownOutcome
    world.register(1)
    world.settle()
    assert world[1].ends()[2] == 0


def test_below_min_who_was_registered_is_refused_and_nothing_is_written() -> None:
    world = World()
    ticket = send(world, 7)
    cut_off(world, 2, 3)
    world.advance(4_000)
    world.controller.fence(2)
    world.controller.fence(3)
    world.settle()
    world.register(1)
    assert error_of(world, ticket) is NotEnoughReplicas


def test_what_waits_is_bounded_by_producer_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    tickets = [send(world, 7, sequence) for sequence in range(registering.MAX_WAITING + 1)]
    assert [error_of(world, tickets[-1]), tickets[-2] in world[1].answers] == [OutOfOrderSequenceNumber, False]
    monkeypatch.setattr(registering, "MAX_WAITING_BYTES", 100)
    assert error_of(world, send(world, 8)) is CoordinatorLoadInProgress
    world.register(1, ProducerFenced("it has ended"))
    send(world, 8)
    assert [asked.producer_id for asked in world[1].registrations] == [8], "room was given back"
