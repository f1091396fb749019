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
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.transactions import enlisting
from tests.rules import proves
from tests.unit.coordinators.cluster import error_of
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
    TransactionCalls,
)


def committed(generation: int = 4) -> TransactionCalls:
    """One whose run `r` has committed a generation, by attempt `a`."""
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0, generation=generation)
    assert cluster.end([producer_id], generation=generation).outcome == COMMITTED
    return cluster


def test_each_writer_gets_a_producer_id_of_its_own() -> None:
    cluster = TransactionCalls()
    responses = [cluster.enlist(task=task) for task in (0, 1, 1)]
    assert len({response.producer_id for response in responses}) == 3
    assert {(each.outcome, each.generation, each.producer_epoch) for each in responses} == {(ENLISTED, 0, 0)}


@proves("SPS.11")
def test_a_new_run_at_the_last_committed_generation_is_told_so_and_each_of_its_tasks_is() -> None:
    cluster = committed(generation=4)
    for task in range(3):
        response = cluster.enlist(generation=4, attempt="b", run="r2", task=task)
        assert (response.outcome, response.generation) == (ALREADY, 4)
    assert cluster.marks() == {(ORDERS_0, 100): True}


@proves("CO.15", "SPS.13")
def test_and_what_is_committed_whoever_coordinates_by_then_and_whatever_was_begun_since() -> None:
    cluster = TransactionCalls()
    held = coordinator_pb2.GenerationContents(rows=7, offsets_digest=b"digest")
    cluster.end([cluster.writer(ORDERS_0, generation=4)], generation=4, contents=held)
    assert cluster.enlist(generation=4, attempt="b", run="r2").contents == held
    cluster.enlisted(generation=5, attempt="b")
    cluster.abort(generation=5, attempt="b")
    cluster.fail_over()
    assert cluster.enlist(generation=4, attempt="b", run="r2").contents == held


@proves("CO.15")
def test_of_the_last_one_only_and_nothing_where_nothing_was_said() -> None:
    cluster = TransactionCalls()
    held = coordinator_pb2.GenerationContents(rows=7)
    cluster.end([cluster.writer(ORDERS_0, generation=4)], generation=4, contents=held)
    cluster.end([cluster.writer(ORDERS_0, generation=5, attempt="b")], generation=5, attempt="b")
    response = cluster.enlist(generation=5, attempt="c", run="r2")
    assert response.outcome == ALREADY
    assert not response.HasField("contents")


def test_a_digest_has_a_bound_and_nothing_is_decided_above_it() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    wrong = coordinator_pb2.GenerationContents(rows=7, offsets_digest=bytes(65))
    assert isinstance(error_of(cluster.end([producer_id], contents=wrong)), InvalidArgument)
    right = coordinator_pb2.GenerationContents(rows=7, offsets_digest=bytes(64))
    assert cluster.end([producer_id], contents=right).outcome == COMMITTED


@proves("SPS.15")
def test_already_committed_supersedes_nobody() -> None:
    cluster = committed(generation=4)
    going_on = cluster.writer(ORDERS_0, generation=5, attempt="b")
    assert cluster.enlist(generation=4, attempt="z", run="r2").outcome == ALREADY
    assert cluster.end([going_on], generation=5, attempt="b").outcome == COMMITTED


def test_the_run_that_committed_a_generation_cannot_enlist_in_it_again() -> None:
    error = error_of(committed(generation=4).enlist(generation=4, attempt="b"))
    assert isinstance(error, StaleGeneration)
    assert "generation 4 is asked for, 4 is committed" in str(error)


@proves("SPS.12")
@pytest.mark.parametrize("run", ["r", "r2"])
def test_a_generation_below_the_committed_one_is_refused_with_both_numbers(run: str) -> None:
    error = error_of(committed(generation=4).enlist(generation=3, attempt="b", run=run))
    assert isinstance(error, StaleGeneration)
    assert "generation 3 is asked for, 4 is committed" in str(error)


@proves("SPS.15")
def test_a_new_attempt_takes_over_and_the_old_one_is_aborted_and_fenced() -> None:
    cluster = TransactionCalls()
    old = cluster.writer(ORDERS_0, ORDERS_1)
    idle = cluster.enlisted()
    new = cluster.writer(ORDERS_0, attempt="b")
    for producer_id in (old, idle):
        assert isinstance(error_of(cluster.register(producer_id, PAYMENTS_0)), ProducerFenced)
        assert isinstance(error_of(cluster.keep_alive(producer_id)), ProducerFenced)
    cluster.write_markers()
    assert cluster.marks() == {(ORDERS_0, old): False, (ORDERS_1, old): False}
    assert cluster.fates() == {new: coordinator_pb2.PRODUCER_FATE_OPEN}
    assert isinstance(error_of(cluster.end([old])), ProducerFenced)
    assert isinstance(error_of(cluster.enlist(attempt="a")), ProducerFenced)
    assert cluster.end([new], attempt="b").outcome == COMMITTED


def test_a_higher_generation_aborts_what_is_open() -> None:
    cluster = TransactionCalls()
    old = cluster.writer(ORDERS_0)
    new = cluster.writer(ORDERS_0, generation=1, attempt="b")
    assert cluster.end([new], generation=1, attempt="b").outcome == COMMITTED
    assert cluster.marks() == {(ORDERS_0, old): False, (ORDERS_0, new): True}


@proves("SPS.15")
def test_a_new_run_supersedes_and_the_old_ones_are_refused_for_ever() -> None:
    cluster = TransactionCalls()
    cluster.enlisted(run="r1")
    cluster.enlisted(run="r2", attempt="b")
    cluster.enlisted(run="r3", attempt="c")
    for run in ("r1", "r2"):
        for generation in (0, 1, None):
            assert isinstance(error_of(cluster.enlist(generation, "new", run)), ProducerFenced)
    cluster.fail_over()
    assert isinstance(error_of(cluster.enlist(1, "new", "r1")), ProducerFenced)


@proves("SPS.15")
def test_a_refused_run_supersedes_nobody() -> None:
    cluster = committed(generation=4)
    cluster.enlisted(generation=5, attempt="b")
    assert isinstance(error_of(cluster.enlist(generation=2, attempt="z", run="zombie")), StaleGeneration)
    assert cluster.enlist(generation=5, attempt="b").outcome == ENLISTED


def test_a_run_never_goes_back_but_a_new_one_may_above_what_is_committed() -> None:
    cluster = committed(generation=4)
    cluster.enlisted(generation=7, attempt="b")
    assert isinstance(error_of(cluster.enlist(generation=6, attempt="late")), ProducerFenced)
    assert cluster.enlist(generation=6, attempt="c", run="r2").outcome == ENLISTED


def test_an_attempt_is_of_one_run_at_one_generation() -> None:
    cluster = TransactionCalls()
    cluster.enlisted(generation=3)
    assert isinstance(error_of(cluster.enlist(generation=4)), InvalidTxnState)
    assert isinstance(error_of(cluster.enlist(generation=3, run="r2")), InvalidTxnState)


def test_an_attempt_that_was_aborted_enlists_nobody_and_the_generation_may_be_begun_again() -> None:
    cluster = TransactionCalls()
    cluster.enlisted()
    assert cluster.abort().outcome == ABORTED
    assert isinstance(error_of(cluster.enlist(task=5)), ProducerFenced)
    again = cluster.writer(ORDERS_0, attempt="b")
    assert cluster.end([again], attempt="b").outcome == COMMITTED


def test_a_superseded_attempt_stays_refused_after_another_and_a_failover() -> None:
    cluster = TransactionCalls()
    for attempt in "abc":
        cluster.enlisted(attempt=attempt)
    cluster.fail_over()
    for attempt in "ab":
        assert isinstance(error_of(cluster.enlist(attempt=attempt)), ProducerFenced)


def test_superseded_runs_are_remembered_within_a_bound() -> None:
    cluster = TransactionCalls()
    for run in range(enlisting.MAX_SUPERSEDED + 5):
        cluster.enlisted(run=f"r{run}", attempt=f"a{run}")
    assert isinstance(error_of(cluster.enlist(run="r10", attempt="x")), ProducerFenced)
    state = cluster.coordinator.committed_state()
    assert max(len(getattr(value, "superseded_runs", ())) for value in state.values()) == enlisting.MAX_SUPERSEDED


def test_the_next_generation_may_enlist_as_soon_as_the_decision_is_durable() -> None:
    cluster = TransactionCalls()
    first = cluster.writer(ORDERS_0)
    ending = cluster.ask_to_end([first])
    enlisting_ticket = cluster.ask_to_enlist(generation=1, attempt="b")
    assert cluster.waits(enlisting_ticket)
    cluster.commit()
    assert cluster.answer(enlisting_ticket, coordinator_pb2.EnlistResponse).outcome == ENLISTED
    assert cluster.waits(ending)  # its markers are not written
    cluster.write_markers()
    assert cluster.marks() == {(ORDERS_0, first): True}


# -- ordinary programs


def test_a_program_begins_at_the_next_generation_and_names_it_from_then_on() -> None:
    cluster = committed(generation=4)
    response = cluster.enlist(generation=None, attempt="p1", run="program")
    assert (response.outcome, response.generation) == (ENLISTED, 5)
    assert cluster.enlist(generation=None, attempt="p1", run="program").generation == 5
    assert cluster.end([response.producer_id], 5, "p1", "program").outcome == COMMITTED
    assert cluster.enlist(generation=6, attempt="p2", run="program").outcome == ENLISTED


def test_the_first_enlisting_of_a_program_that_comes_again_late_takes_nothing_over() -> None:
    cluster = TransactionCalls()
    first = cluster.enlisted(generation=None, attempt="p1")
    cluster.end([first], 0, "p1")
    assert isinstance(error_of(cluster.enlist(generation=None, attempt="p1")), (StaleGeneration, ProducerFenced))
    second = cluster.enlisted(generation=1, attempt="p2")
    assert isinstance(error_of(cluster.enlist(generation=None, attempt="p1")), ProducerFenced)
    assert cluster.end([second], 1, "p2").outcome == COMMITTED


def test_a_program_that_starts_anew_fences_the_one_before() -> None:
    cluster = TransactionCalls()
    zombie = cluster.writer(ORDERS_0, generation=None, attempt="p1", run="first")
    response = cluster.enlist(generation=None, attempt="p2", run="second")
    assert response.generation == 1
    assert isinstance(error_of(cluster.end([zombie], 0, "p1", "first")), ProducerFenced)
    cluster.write_markers()
    assert cluster.marks() == {(ORDERS_0, zombie): False}


# -- what is malformed, and bounds


@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": "x" * 1001}, {"attempt": ""}, {"run": "r" * 65}])
def test_ids_have_bounds(wrong: dict[str, str]) -> None:
    assert isinstance(error_of(TransactionCalls().enlist(**wrong)), InvalidArgument)


def test_a_generation_is_not_negative() -> None:
    assert isinstance(error_of(TransactionCalls().enlist(generation=-1)), InvalidArgument)


def test_the_time_out_is_the_brokers_unless_one_is_named_that_is_allowed() -> None:
    cluster = TransactionCalls()
    assert cluster.enlist().timeout_ms == TIMEOUT_MS
    assert cluster.enlist(attempt="b", timeout_ms=5_000).timeout_ms == 5_000
    assert isinstance(error_of(cluster.enlist(attempt="c", timeout_ms=86_400_001)), InvalidTransactionTimeout)


@proves("SPS.18")
def test_of_several_writers_of_an_attempt_the_last_one_says_the_time_out() -> None:
    """A driver that has enlisted may wait for long until its first task runs, which holds nobody up."""
    cluster = TransactionCalls()
    assert cluster.enlist(timeout_ms=900_000).timeout_ms == 900_000
    assert cluster.enlist(timeout_ms=5_000).timeout_ms == 5_000
    cluster.wait(4_900)
    assert len(cluster.fates()) == 2
    cluster.wait(300)
    assert not cluster.fates()


def test_producers_and_registrations_of_one_id_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enlisting, "MAX_PRODUCERS", 2)
    monkeypatch.setattr(enlisting, "MAX_REGISTRATIONS", 1)
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    assert isinstance(error_of(cluster.register(producer_id, ORDERS_1)), InvalidTxnState)
    cluster.enlisted()
    assert isinstance(error_of(cluster.enlist()), InvalidTxnState)


# -- registration


@proves("SPS.16")
def test_a_registration_is_durable_before_it_is_answered_and_may_be_repeated() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.enlisted()
    ticket = cluster.ask_to_register(producer_id, ORDERS_0)
    again = cluster.ask_to_register(producer_id, ORDERS_0)
    assert cluster.waits(ticket)
    assert cluster.waits(again)  # it may say no sooner than the first that it is durable
    cluster.commit()
    state = cluster.coordinator.committed_state()
    assert error_of(cluster.register(producer_id, ORDERS_0)) is None
    assert cluster.coordinator.committed_state() == state


def test_nobody_registers_a_producer_that_ended_or_never_was() -> None:
    cluster = TransactionCalls()
    loser, stranger = cluster.enlisted(), 999
    won = cluster.enlisted()
    cluster.end([won])
    for producer_id in (loser, won, stranger):
        assert isinstance(error_of(cluster.register(producer_id, ORDERS_0)), ProducerFenced)
    assert isinstance(error_of(cluster.register(won, ORDERS_0, name="another")), ProducerFenced)


def test_a_topic_that_the_coordinator_does_not_know_yet_is_not_registered() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.enlisted()
    young = PartitionKey(bytes(15) + b"\x55", 0)
    assert isinstance(error_of(cluster.register(producer_id, young)), UnknownTopicId)
    cluster.topics.add(young.topic_id)
    assert error_of(cluster.register(producer_id, young)) is None


def test_ids_are_apart() -> None:
    cluster = TransactionCalls()
    one, other = cluster.writer(ORDERS_0), cluster.writer(ORDERS_0, name="another")
    cluster.end([one])
    assert error_of(cluster.keep_alive(other, name="another")) is None
    assert cluster.describe(T).listing.last_committed_generation == 0
    assert not cluster.describe("another").listing.HasField("last_committed_generation")
