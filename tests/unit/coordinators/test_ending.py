"""End and Abort, and who wins: sentence by sentence of docs/spec/transactions.md § End. Time-outs of transactions."""

from __future__ import annotations

import pytest

from minilog.errors import (
    InvalidArgument,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    RequestTimedOut,
    StaleGeneration,
)
from minilog.v1 import coordinator_pb2
from tests.rules import proves
from tests.unit.coordinators.cluster import error_of
from tests.unit.coordinators.transacting import (
    ABORTED,
    BECOMING_VISIBLE,
    COMMITTED,
    ENDING,
    IDLE,
    OPEN,
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    REQUEST_TIMEOUT_MS,
    TIMEOUT_MS,
    T,
    TransactionCalls,
    winner,
)

End = coordinator_pb2.EndTransactionResponse


def test_the_winners_are_committed_and_every_other_producer_is_aborted_and_fenced() -> None:
    cluster = TransactionCalls()
    won = [cluster.writer(ORDERS_0, task=0), cluster.writer(ORDERS_0, ORDERS_1, task=1)]
    lost = [cluster.writer(ORDERS_1, task=1), cluster.writer(PAYMENTS_0, task=2)]
    assert cluster.end(won).outcome == COMMITTED
    assert cluster.marks() == {
        (ORDERS_0, won[0]): True,
        (ORDERS_0, won[1]): True,
        (ORDERS_1, won[1]): True,
        (ORDERS_1, lost[0]): False,
        (PAYMENTS_0, lost[1]): False,
    }
    for producer_id in won + lost:
        assert isinstance(error_of(cluster.register(producer_id, PAYMENTS_0)), ProducerFenced)
    assert cluster.describe().listing.state == IDLE


def test_markers_carry_the_last_sequences_that_the_winners_named() -> None:
    cluster = TransactionCalls()
    won, lost = cluster.writer(ORDERS_0, ORDERS_1), cluster.writer(ORDERS_0)
    cluster.end([winner(won, {ORDERS_0: 41})])
    assert sorted(cluster.marked) == [(ORDERS_0, won, True, 41), (ORDERS_0, lost, False, -1), (ORDERS_1, won, True, -1)]


@proves("SPS.19")
def test_a_repeated_end_gets_the_same_answer_whoever_asks_and_decides_nothing() -> None:
    cluster = TransactionCalls()
    won = cluster.writer(ORDERS_0)
    assert cluster.end([won]).outcome == COMMITTED
    end = cluster.log_end
    assert cluster.end([won]).outcome == COMMITTED
    assert cluster.end([999], attempt="z", run="zombie").outcome == COMMITTED
    assert cluster.log_end == end


def test_two_ends_at_once_are_one_decision() -> None:
    cluster = TransactionCalls()
    won = cluster.writer(ORDERS_0, task=0)
    first, second = cluster.ask_to_end([won]), cluster.ask_to_end([won])
    cluster.commit()
    cluster.write_markers()
    assert cluster.answer(first, End).outcome == cluster.answer(second, End).outcome == COMMITTED
    assert cluster.marked == [(ORDERS_0, won, True, -1)]


@pytest.mark.parametrize("wrong", ["unknown", "aborted", "superseded", "twice", "same task", "not registered"])
def test_winners_that_are_not_what_was_enlisted_are_refused_whole_and_decide_nothing(wrong: str) -> None:
    cluster = TransactionCalls()
    superseded = cluster.writer(ORDERS_0)
    good = cluster.writer(ORDERS_0, attempt="b", task=0)
    aborted = cluster.writer(ORDERS_0, attempt="b", task=1)
    same_task = cluster.writer(ORDERS_0, attempt="b", task=0)
    cluster.abort(attempt="b", producers=[aborted])
    others: dict[str, coordinator_pb2.Winner | int] = {
        "unknown": 999,
        "aborted": aborted,
        "superseded": superseded,
        "twice": good,
        "same task": same_task,
        "not registered": winner(good, {PAYMENTS_0: 0}),
    }
    winners = [others[wrong]] if wrong == "not registered" else [good, others[wrong]]
    assert isinstance(error_of(cluster.end(winners, attempt="b")), InvalidTxnState)
    assert cluster.end([good], attempt="b").outcome == COMMITTED
    assert cluster.marks()[ORDERS_0, good]
    assert not cluster.marks()[ORDERS_0, same_task]


def test_producers_that_name_no_task_may_all_win() -> None:
    cluster = TransactionCalls()
    assert cluster.end([cluster.writer(ORDERS_0), cluster.writer(ORDERS_0)]).outcome == COMMITTED
    assert set(cluster.marks().values()) == {True}


def test_an_end_without_winners_or_of_what_is_not_known_is_refused() -> None:
    cluster = TransactionCalls()
    assert isinstance(error_of(cluster.end([999])), InvalidTxnState)
    cluster.writer(ORDERS_0)
    assert isinstance(error_of(cluster.end([])), InvalidArgument)


@pytest.mark.parametrize("wrong", [{"run": "r2"}, {"attempt": "b"}, {"generation": 1}])
def test_an_end_by_another_run_attempt_or_generation_than_enlisted_last_is_refused(wrong: dict[str, object]) -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    assert isinstance(error_of(cluster.end([producer_id], **wrong)), ProducerFenced)
    assert error_of(cluster.keep_alive(producer_id)) is None


def test_an_end_of_a_generation_below_the_committed_one_says_that_its_outcome_is_not_known() -> None:
    cluster = TransactionCalls()
    cluster.end([cluster.writer(ORDERS_0, generation=4)], 4)
    error = error_of(cluster.end([100], 3))
    assert isinstance(error, StaleGeneration)
    assert "generation 4 is committed; whether 3" in str(error)


def test_a_late_end_after_a_take_over_decides_nothing() -> None:
    """Wrong rule 17."""
    cluster = TransactionCalls()
    zombie = cluster.writer(ORDERS_0, run="r1")
    cluster.enlisted(run="r2", attempt="b")
    assert isinstance(error_of(cluster.end([zombie], run="r1")), ProducerFenced)
    assert cluster.marks() == {(ORDERS_0, zombie): False}


# -- when a commit is answered


def test_a_commit_is_answered_when_all_its_markers_are_below_the_high_watermark() -> None:
    cluster = TransactionCalls()
    won, lost = cluster.writer(ORDERS_0, ORDERS_1), cluster.writer(PAYMENTS_0)
    ticket = cluster.ask_to_end([won])
    assert cluster.asked_markers() == []  # the decision is not committed
    cluster.commit()
    asked = cluster.asked_markers()
    assert {(each.target, each.markers[0].producer_id) for each in asked} == {
        (ORDERS_0, won),
        (ORDERS_1, won),
        (PAYMENTS_0, lost),  # what it wrote keeps readers from what the winner wrote behind it
    }
    for effect in asked:
        assert cluster.waits(ticket)
        cluster.write(effect)
    assert cluster.answer(ticket, End).outcome == COMMITTED


def test_a_commit_whose_markers_take_long_is_answered_as_becoming_visible() -> None:
    cluster = TransactionCalls()
    won = cluster.writer(ORDERS_0)
    ticket = cluster.ask_to_end([won])
    cluster.commit()
    cluster.wait(REQUEST_TIMEOUT_MS - 1)
    assert cluster.waits(ticket)
    cluster.wait(1)
    assert cluster.answer(ticket, End).outcome == BECOMING_VISIBLE
    assert cluster.describe().listing.state == ENDING
    again = cluster.ask_to_end([won])
    assert cluster.waits(again)
    cluster.write_markers()
    assert cluster.answer(again, End).outcome == COMMITTED


def test_a_decision_that_is_not_replicated_in_time_is_unknown_and_not_failed() -> None:
    cluster = TransactionCalls()
    won = cluster.writer(ORDERS_0)
    ticket = cluster.ask_to_end([won])
    cluster.now_ms += REQUEST_TIMEOUT_MS
    cluster.coordinator.tick(cluster.now)
    assert isinstance(error_of(cluster.answer(ticket, End)), RequestTimedOut)
    assert cluster.end([won]).outcome == COMMITTED  # an append has no time-out


def test_a_commit_does_not_wait_for_the_markers_of_a_later_generation() -> None:
    cluster = TransactionCalls()
    first = cluster.writer(ORDERS_0)
    ticket = cluster.ask_to_end([first])
    cluster.commit()
    (of_first,) = cluster.asked_markers()
    second = cluster.writer(ORDERS_1, generation=1, attempt="b")
    cluster.abort(1, "b")
    cluster.write(of_first)
    assert cluster.answer(ticket, End).outcome == COMMITTED
    cluster.write_markers()
    assert cluster.marks() == {(ORDERS_0, first): True, (ORDERS_1, second): False}


def test_a_commit_without_any_partition_is_answered_at_once() -> None:
    cluster = TransactionCalls()
    ticket = cluster.ask_to_end([cluster.enlisted()])
    cluster.commit()
    assert cluster.answer(ticket, End).outcome == COMMITTED


# -- abort


def test_an_abort_after_a_commit_that_took_place_is_told_so_and_changes_nothing() -> None:
    cluster = TransactionCalls()
    won = cluster.writer(ORDERS_0)
    ending = cluster.ask_to_end([won])
    assert cluster.abort().outcome == COMMITTED  # also where the decision was in flight
    cluster.write_markers()
    assert cluster.answer(ending, End).outcome == COMMITTED
    assert cluster.abort(producers=[won]).outcome == COMMITTED
    assert cluster.abort(attempt="z").outcome == COMMITTED
    assert cluster.marks() == {(ORDERS_0, won): True}


def test_an_abort_ends_the_attempts_producers_for_good() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    assert cluster.abort().outcome == ABORTED
    assert cluster.abort().outcome == ABORTED
    assert isinstance(error_of(cluster.end([producer_id])), ProducerFenced)
    cluster.write_markers()
    assert cluster.marks() == {(ORDERS_0, producer_id): False}


def test_a_task_aborts_itself_and_another_of_the_attempt_does_its_work() -> None:
    cluster = TransactionCalls()
    failed = cluster.writer(ORDERS_0, task=3)
    assert cluster.abort(producers=[failed]).outcome == ABORTED
    again = cluster.writer(ORDERS_0, task=3)
    assert isinstance(error_of(cluster.end([failed])), InvalidTxnState)
    assert cluster.end([again]).outcome == COMMITTED
    assert cluster.marks() == {(ORDERS_0, failed): False, (ORDERS_0, again): True}


def test_an_abort_by_a_superseded_attempt_or_of_an_unknown_id_aborts_nobody() -> None:
    cluster = TransactionCalls()
    cluster.enlisted()
    going_on = cluster.enlisted(attempt="b")
    assert cluster.abort(attempt="a").outcome == ABORTED
    assert cluster.abort(attempt="a", producers=[going_on]).outcome == ABORTED
    assert cluster.abort(name="unknown").outcome == ABORTED
    assert error_of(cluster.keep_alive(going_on)) is None


def test_an_abort_below_the_committed_generation_is_refused() -> None:
    cluster = TransactionCalls()
    cluster.end([cluster.enlisted(generation=4)], 4)
    assert isinstance(error_of(cluster.abort(3)), StaleGeneration)


# -- time-outs


def test_a_transaction_without_a_sign_of_life_is_aborted_but_its_generation_is_not() -> None:
    cluster = TransactionCalls()
    silent = cluster.writer(ORDERS_0)
    cluster.wait(TIMEOUT_MS * 1.1)
    assert isinstance(error_of(cluster.keep_alive(silent)), ProducerFenced)
    assert isinstance(error_of(cluster.end([silent])), InvalidTxnState)
    again = cluster.writer(ORDERS_0)  # of the same attempt: Spark tries the task once more
    assert cluster.end([again]).outcome == COMMITTED
    assert cluster.marks() == {(ORDERS_0, silent): False, (ORDERS_0, again): True}


@proves("SPS.18")
@pytest.mark.parametrize("sign", ["enlist", "register", "keep alive"])
def test_the_clock_begins_anew_at_every_sign_of_life(sign: str) -> None:
    cluster = TransactionCalls()
    first = cluster.writer(ORDERS_0)
    for partition in range(4):
        cluster.wait(TIMEOUT_MS * 0.8)
        match sign:
            case "enlist":
                cluster.enlisted(task=partition)
            case "register":
                cluster.register(first, ORDERS_1._replace(partition=10 + partition))
            case "keep alive":
                assert error_of(cluster.keep_alive(first)) is None
    assert cluster.end([first]).outcome == COMMITTED


def test_a_producer_that_ended_keeps_nothing_alive() -> None:
    cluster = TransactionCalls()
    lively, silent = cluster.writer(ORDERS_0), cluster.writer(ORDERS_1)
    cluster.abort(producers=[lively])
    for _ in range(4):
        assert isinstance(error_of(cluster.keep_alive(lively)), ProducerFenced)
        cluster.wait(TIMEOUT_MS * 0.3)
    assert isinstance(error_of(cluster.keep_alive(silent)), ProducerFenced)


def test_each_transaction_has_the_time_out_that_it_asked_for() -> None:
    cluster = TransactionCalls()
    quick, slow = cluster.enlisted(timeout_ms=1_000), cluster.enlisted(name="slow")
    cluster.wait(2_000)
    assert isinstance(error_of(cluster.keep_alive(quick)), ProducerFenced)
    assert error_of(cluster.keep_alive(slow, name="slow")) is None


def test_a_new_coordinator_grants_a_full_period() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    cluster.wait(TIMEOUT_MS * 0.9)
    cluster.fail_over()
    cluster.wait(TIMEOUT_MS * 0.9)
    assert cluster.describe().listing.state == OPEN
    cluster.wait(TIMEOUT_MS * 0.2)
    assert isinstance(error_of(cluster.keep_alive(producer_id)), ProducerFenced)


def test_what_a_coordinator_stood_still_itself_is_nobody_elses_silence() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    cluster.now_ms += TIMEOUT_MS * 3
    cluster.coordinator.tick(cluster.now)
    assert error_of(cluster.keep_alive(producer_id)) is None


@proves("MD.37")
def test_a_coordinator_that_is_late_now_and_then_times_out_who_is_silent() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    for _ in range(6):
        cluster.wait(TIMEOUT_MS / 4)
        cluster.now_ms += TIMEOUT_MS * 0.3
        cluster.coordinator.tick(cluster.now)
        cluster.commit()
    assert isinstance(error_of(cluster.keep_alive(producer_id)), ProducerFenced)


def test_a_time_out_that_cannot_be_written_is_tried_again() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    cluster.refusal = NotEnoughReplicas("the ISR is too small")
    cluster.wait(TIMEOUT_MS * 1.1)
    assert cluster.fates() == {producer_id: coordinator_pb2.PRODUCER_FATE_OPEN}
    cluster.refusal = None
    cluster.wait(TIMEOUT_MS * 0.1)
    assert cluster.fates(T) == {producer_id: coordinator_pb2.PRODUCER_FATE_ABORTING}
