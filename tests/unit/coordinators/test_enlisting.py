"""Enlist, sentence by sentence of docs/spec/transactions.md § Enlist; and the registration of partitions."""

from __future__ import annotations

import pytest

from minilog.errors import (
    InvalidArgument,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    StaleGeneration,
    UnknownTopicId,
)
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.transactions import enlisting
from minilog_broker.replication.state import PartitionKey
from tests.unit.coordinators.transacting import (
    ABORTED,
    ALREADY,
    COMMITTED,
    ENLISTED,
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    TIMEOUT_MS,
    T,
    Transacting,
)
from tests.unit.coordinators.world import error_of


def committed(generation: int = 4) -> Transacting:
    """One whose run `r` has committed a generation, by attempt `a`."""
    world = Transacting()
    producer_id = world.writer(ORDERS_0, generation=generation)
    assert world.end([producer_id], generation=generation).outcome == COMMITTED
    return world


def test_each_writer_gets_a_producer_id_of_its_own() -> None:
    world = Transacting()
    responses = [world.enlist(task=task) for task in (0, 1, 1)]
    assert len({response.producer_id for response in responses}) == 3
    assert {(each.outcome, each.generation, each.producer_epoch) for each in responses} == {(ENLISTED, 0, 0)}


def test_a_new_run_at_the_last_committed_generation_is_told_so_and_each_of_its_tasks_is() -> None:
    world = committed(generation=4)
    for task in range(3):
        response = world.enlist(generation=4, attempt="b", run="r2", task=task)
        assert (response.outcome, response.generation) == (ALREADY, 4)
    assert world.marks() == {(ORDERS_0, 100): True}


def test_and_what_is_committed_whoever_coordinates_by_then_and_whatever_was_begun_since() -> None:
    world = Transacting()
    held = coordinator_pb2.GenerationContents(rows=7, offsets_digest=b"digest")
    world.end([world.writer(ORDERS_0, generation=4)], generation=4, contents=held)
    assert world.enlist(generation=4, attempt="b", run="r2").contents == held
    world.enlisted(generation=5, attempt="b")
    world.abort(generation=5, attempt="b")
    world.fail_over()
    assert world.enlist(generation=4, attempt="b", run="r2").contents == held


def test_of_the_last_one_only_and_nothing_where_nothing_was_said() -> None:
    world = Transacting()
    held = coordinator_pb2.GenerationContents(rows=7)
    world.end([world.writer(ORDERS_0, generation=4)], generation=4, contents=held)
    world.end([world.writer(ORDERS_0, generation=5, attempt="b")], generation=5, attempt="b")
    response = world.enlist(generation=5, attempt="c", run="r2")
    assert response.outcome == ALREADY
    assert not response.HasField("contents")


def test_a_digest_has_a_bound_and_nothing_is_decided_above_it() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    wrong = coordinator_pb2.GenerationContents(rows=7, offsets_digest=bytes(65))
    assert isinstance(error_of(world.end([producer_id], contents=wrong)), InvalidArgument)
    right = coordinator_pb2.GenerationContents(rows=7, offsets_digest=bytes(64))
    assert world.end([producer_id], contents=right).outcome == COMMITTED


def test_already_committed_supersedes_nobody() -> None:
    world = committed(generation=4)
    going_on = world.writer(ORDERS_0, generation=5, attempt="b")
    assert world.enlist(generation=4, attempt="z", run="r2").outcome == ALREADY
    assert world.end([going_on], generation=5, attempt="b").outcome == COMMITTED


def test_the_run_that_committed_a_generation_cannot_enlist_in_it_again() -> None:
    error = error_of(committed(generation=4).enlist(generation=4, attempt="b"))
    assert isinstance(error, StaleGeneration)
    assert "generation 4 is asked for, 4 is committed" in str(error)


@pytest.mark.parametrize("run", ["r", "r2"])
def test_a_generation_below_the_committed_one_is_refused_with_both_numbers(run: str) -> None:
    error = error_of(committed(generation=4).enlist(generation=3, attempt="b", run=run))
    assert isinstance(error, StaleGeneration)
    assert "generation 3 is asked for, 4 is committed" in str(error)


def test_a_new_attempt_takes_over_and_the_old_one_is_aborted_and_fenced() -> None:
    world = Transacting()
    old = world.writer(ORDERS_0, ORDERS_1)
    idle = world.enlisted()
    new = world.writer(ORDERS_0, attempt="b")
    for producer_id in (old, idle):
        assert isinstance(error_of(world.register(producer_id, PAYMENTS_0)), ProducerFenced)
        assert isinstance(error_of(world.keep_alive(producer_id)), ProducerFenced)
    world.write_markers()
    assert world.marks() == {(ORDERS_0, old): False, (ORDERS_1, old): False}
    assert world.fates() == {new: coordinator_pb2.PRODUCER_FATE_OPEN}
    assert isinstance(error_of(world.end([old])), ProducerFenced)
    assert isinstance(error_of(world.enlist(attempt="a")), ProducerFenced)
    assert world.end([new], attempt="b").outcome == COMMITTED


def test_a_higher_generation_aborts_what_is_open() -> None:
    world = Transacting()
    old = world.writer(ORDERS_0)
    new = world.writer(ORDERS_0, generation=1, attempt="b")
    assert world.end([new], generation=1, attempt="b").outcome == COMMITTED
    assert world.marks() == {(ORDERS_0, old): False, (ORDERS_0, new): True}


def test_a_new_run_supersedes_and_the_old_ones_are_refused_for_ever() -> None:
    world = Transacting()
    world.enlisted(run="r1")
    world.enlisted(run="r2", attempt="b")
    world.enlisted(run="r3", attempt="c")
    for run in ("r1", "r2"):
        for generation in (0, 1, None):
            assert isinstance(error_of(world.enlist(generation, "new", run)), ProducerFenced)
    world.fail_over()
    assert isinstance(error_of(world.enlist(1, "new", "r1")), ProducerFenced)


def test_a_refused_run_supersedes_nobody() -> None:
    world = committed(generation=4)
    world.enlisted(generation=5, attempt="b")
    assert isinstance(error_of(world.enlist(generation=2, attempt="z", run="zombie")), StaleGeneration)
    assert world.enlist(generation=5, attempt="b").outcome == ENLISTED


def test_a_run_never_goes_back_but_a_new_one_may_above_what_is_committed() -> None:
    world = committed(generation=4)
    world.enlisted(generation=7, attempt="b")
    assert isinstance(error_of(world.enlist(generation=6, attempt="late")), ProducerFenced)
    assert world.enlist(generation=6, attempt="c", run="r2").outcome == ENLISTED


def test_an_attempt_is_of_one_run_at_one_generation() -> None:
    world = Transacting()
    world.enlisted(generation=3)
    assert isinstance(error_of(world.enlist(generation=4)), InvalidTxnState)
    assert isinstance(error_of(world.enlist(generation=3, run="r2")), InvalidTxnState)


def test_an_attempt_that_was_aborted_enlists_nobody_and_the_generation_may_be_begun_again() -> None:
    world = Transacting()
    world.enlisted()
    assert world.abort().outcome == ABORTED
    assert isinstance(error_of(world.enlist(task=5)), ProducerFenced)
    again = world.writer(ORDERS_0, attempt="b")
    assert world.end([again], attempt="b").outcome == COMMITTED


def test_a_superseded_attempt_stays_refused_after_another_and_a_failover() -> None:
    world = Transacting()
    for attempt in "abc":
        world.enlisted(attempt=attempt)
    world.fail_over()
    for attempt in "ab":
        assert isinstance(error_of(world.enlist(attempt=attempt)), ProducerFenced)


def test_superseded_runs_are_remembered_within_a_bound() -> None:
    world = Transacting()
    for run in range(enlisting.MAX_SUPERSEDED + 5):
        world.enlisted(run=f"r{run}", attempt=f"a{run}")
    assert isinstance(error_of(world.enlist(run="r10", attempt="x")), ProducerFenced)
    state = world.coordinator.committed_state()
    assert max(len(getattr(value, "superseded_runs", ())) for value in state.values()) == enlisting.MAX_SUPERSEDED


def test_the_next_generation_may_enlist_as_soon_as_the_decision_is_durable() -> None:
    world = Transacting()
    first = world.writer(ORDERS_0)
    ending = world.ask_to_end([first])
    enlisting_ticket = world.ask_to_enlist(generation=1, attempt="b")
    assert world.waits(enlisting_ticket)
    world.commit()
    assert world.answer(enlisting_ticket, coordinator_pb2.EnlistResponse).outcome == ENLISTED
    assert world.waits(ending)  # its markers are not written
    world.write_markers()
    assert world.marks() == {(ORDERS_0, first): True}


# -- ordinary programs


def test_a_program_begins_at_the_next_generation_and_names_it_from_then_on() -> None:
    world = committed(generation=4)
    response = world.enlist(generation=None, attempt="p1", run="program")
    assert (response.outcome, response.generation) == (ENLISTED, 5)
    assert world.enlist(generation=None, attempt="p1", run="program").generation == 5
    assert world.end([response.producer_id], 5, "p1", "program").outcome == COMMITTED
    assert world.enlist(generation=6, attempt="p2", run="program").outcome == ENLISTED


def test_the_first_enlisting_of_a_program_that_comes_again_late_takes_nothing_over() -> None:
    world = Transacting()
    first = world.enlisted(generation=None, attempt="p1")
    world.end([first], 0, "p1")
    assert isinstance(error_of(world.enlist(generation=None, attempt="p1")), (StaleGeneration, ProducerFenced))
    second = world.enlisted(generation=1, attempt="p2")
    assert isinstance(error_of(world.enlist(generation=None, attempt="p1")), ProducerFenced)
    assert world.end([second], 1, "p2").outcome == COMMITTED


def test_a_program_that_starts_anew_fences_the_one_before() -> None:
    world = Transacting()
    zombie = world.writer(ORDERS_0, generation=None, attempt="p1", run="first")
    response = world.enlist(generation=None, attempt="p2", run="second")
    assert response.generation == 1
    assert isinstance(error_of(world.end([zombie], 0, "p1", "first")), ProducerFenced)
    world.write_markers()
    assert world.marks() == {(ORDERS_0, zombie): False}


# -- what is malformed, and bounds


@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": "x" * 1001}, {"attempt": ""}, {"run": "r" * 65}])
def test_ids_have_bounds(wrong: dict[str, str]) -> None:
    assert isinstance(error_of(Transacting().enlist(**wrong)), InvalidArgument)


def test_a_generation_is_not_negative() -> None:
    assert isinstance(error_of(Transacting().enlist(generation=-1)), InvalidArgument)


def test_the_time_out_is_the_brokers_unless_one_is_named_that_is_allowed() -> None:
    world = Transacting()
    assert world.enlist().timeout_ms == TIMEOUT_MS
    assert world.enlist(attempt="b", timeout_ms=5_000).timeout_ms == 5_000
    assert isinstance(error_of(world.enlist(attempt="c", timeout_ms=86_400_001)), InvalidTransactionTimeout)


def test_producers_and_registrations_of_one_id_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enlisting, "MAX_PRODUCERS", 2)
    monkeypatch.setattr(enlisting, "MAX_REGISTRATIONS", 1)
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    assert isinstance(error_of(world.register(producer_id, ORDERS_1)), InvalidTxnState)
    world.enlisted()
    assert isinstance(error_of(world.enlist()), InvalidTxnState)


# -- registration


def test_a_registration_is_durable_before_it_is_answered_and_may_be_repeated() -> None:
    world = Transacting()
    producer_id = world.enlisted()
    ticket = world.ask_to_register(producer_id, ORDERS_0)
    again = world.ask_to_register(producer_id, ORDERS_0)
    assert world.waits(ticket)
    assert world.waits(again)  # it may say no sooner than the first that it is durable
    world.commit()
    state = world.coordinator.committed_state()
    assert error_of(world.register(producer_id, ORDERS_0)) is None
    assert world.coordinator.committed_state() == state


def test_nobody_registers_a_producer_that_ended_or_never_was() -> None:
    world = Transacting()
    loser, stranger = world.enlisted(), 999
    won = world.enlisted()
    world.end([won])
    for producer_id in (loser, won, stranger):
        assert isinstance(error_of(world.register(producer_id, ORDERS_0)), ProducerFenced)
    assert isinstance(error_of(world.register(won, ORDERS_0, name="another")), ProducerFenced)


def test_a_topic_that_the_coordinator_does_not_know_yet_is_not_registered() -> None:
    world = Transacting()
    producer_id = world.enlisted()
    young = PartitionKey(bytes(15) + b"\x55", 0)
    assert isinstance(error_of(world.register(producer_id, young)), UnknownTopicId)
    world.topics.add(young.topic_id)
    assert error_of(world.register(producer_id, young)) is None


def test_ids_are_apart() -> None:
    world = Transacting()
    one, other = world.writer(ORDERS_0), world.writer(ORDERS_0, name="another")
    world.end([one])
    assert error_of(world.keep_alive(other, name="another")) is None
    assert world.describe(T).listing.last_committed_generation == 0
    assert not world.describe("another").listing.HasField("last_committed_generation")
