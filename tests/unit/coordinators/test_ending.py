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
    Transacting,
    winner,
)
from tests.unit.coordinators.world import error_of

End = coordinator_pb2.EndTransactionResponse


def test_the_winners_are_committed_and_every_other_producer_is_aborted_and_fenced() -> None:
    world = Transacting()
    won = [world.writer(ORDERS_0, task=0), world.writer(ORDERS_0, ORDERS_1, task=1)]
    lost = [world.writer(ORDERS_1, task=1), world.writer(PAYMENTS_0, task=2)]
    assert world.end(won).outcome == COMMITTED
    assert world.marks() == {
        (ORDERS_0, won[0]): True,
        (ORDERS_0, won[1]): True,
        (ORDERS_1, won[1]): True,
        (ORDERS_1, lost[0]): False,
        (PAYMENTS_0, lost[1]): False,
    }
    for producer_id in won + lost:
        assert isinstance(error_of(world.register(producer_id, PAYMENTS_0)), ProducerFenced)
    assert world.describe().listing.state == IDLE


def test_markers_carry_the_last_sequences_that_the_winners_named() -> None:
    world = Transacting()
    won, lost = world.writer(ORDERS_0, ORDERS_1), world.writer(ORDERS_0)
    world.end([winner(won, {ORDERS_0: 41})])
    assert sorted(world.marked) == [(ORDERS_0, won, True, 41), (ORDERS_0, lost, False, -1), (ORDERS_1, won, True, -1)]


def test_a_repeated_end_gets_the_same_answer_whoever_asks_and_decides_nothing() -> None:
    world = Transacting()
    won = world.writer(ORDERS_0)
    assert world.end([won]).outcome == COMMITTED
    end = world.log_end
    assert world.end([won]).outcome == COMMITTED
    assert world.end([999], attempt="z", run="zombie").outcome == COMMITTED
    assert world.log_end == end


def test_two_ends_at_once_are_one_decision() -> None:
    world = Transacting()
    won = world.writer(ORDERS_0, task=0)
    first, second = world.ask_to_end([won]), world.ask_to_end([won])
    world.commit()
    world.write_markers()
    assert world.answer(first, End).outcome == world.answer(second, End).outcome == COMMITTED
    assert world.marked == [(ORDERS_0, won, True, -1)]


@pytest.mark.parametrize("wrong", ["unknown", "aborted", "superseded", "twice", "same task", "not registered"])
def test_winners_that_are_not_what_was_enlisted_are_refused_whole_and_decide_nothing(wrong: str) -> None:
    world = Transacting()
    superseded = world.writer(ORDERS_0)
    good = world.writer(ORDERS_0, attempt="b", task=0)
    aborted = world.writer(ORDERS_0, attempt="b", task=1)
    same_task = world.writer(ORDERS_0, attempt="b", task=0)
    world.abort(attempt="b", producers=[aborted])
    others: dict[str, coordinator_pb2.Winner | int] = {
        "unknown": 999,
        "aborted": aborted,
        "superseded": superseded,
        "twice": good,
        "same task": same_task,
        "not registered": winner(good, {PAYMENTS_0: 0}),
    }
    winners = [others[wrong]] if wrong == "not registered" else [good, others[wrong]]
    assert isinstance(error_of(world.end(winners, attempt="b")), InvalidTxnState)
    assert world.end([good], attempt="b").outcome == COMMITTED
    assert world.marks()[ORDERS_0, good]
    assert not world.marks()[ORDERS_0, same_task]


def test_producers_that_name_no_task_may_all_win() -> None:
    world = Transacting()
    assert world.end([world.writer(ORDERS_0), world.writer(ORDERS_0)]).outcome == COMMITTED
    assert set(world.marks().values()) == {True}


def test_an_end_without_winners_or_of_what_is_not_known_is_refused() -> None:
    world = Transacting()
    assert isinstance(error_of(world.end([999])), InvalidTxnState)
    world.writer(ORDERS_0)
    assert isinstance(error_of(world.end([])), InvalidArgument)


@pytest.mark.parametrize("wrong", [{"run": "r2"}, {"attempt": "b"}, {"generation": 1}])
def test_an_end_by_another_run_attempt_or_generation_than_enlisted_last_is_refused(wrong: dict[str, object]) -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    assert isinstance(error_of(world.end([producer_id], **wrong)), ProducerFenced)
    assert error_of(world.keep_alive(producer_id)) is None


def test_an_end_of_a_generation_below_the_committed_one_says_that_its_outcome_is_not_known() -> None:
    world = Transacting()
    world.end([world.writer(ORDERS_0, generation=4)], 4)
    error = error_of(world.end([100], 3))
    assert isinstance(error, StaleGeneration)
    assert "generation 4 is committed; whether 3" in str(error)


def test_a_late_end_after_a_take_over_decides_nothing() -> None:
    """Wrong rule 17."""
    world = Transacting()
    zombie = world.writer(ORDERS_0, run="r1")
    world.enlisted(run="r2", attempt="b")
    assert isinstance(error_of(world.end([zombie], run="r1")), ProducerFenced)
    assert world.marks() == {(ORDERS_0, zombie): False}


# -- when a commit is answered


def test_a_commit_is_answered_when_all_its_markers_are_below_the_high_watermark() -> None:
    world = Transacting()
    won, lost = world.writer(ORDERS_0, ORDERS_1), world.writer(PAYMENTS_0)
    ticket = world.ask_to_end([won])
    assert world.asked_markers() == []  # the decision is not committed
    world.commit()
    asked = world.asked_markers()
    assert {(each.target, each.markers[0].producer_id) for each in asked} == {
        (ORDERS_0, won),
        (ORDERS_1, won),
        (PAYMENTS_0, lost),  # what it wrote keeps readers from what the winner wrote behind it
    }
    for effect in asked:
        assert world.waits(ticket)
        world.write(effect)
    assert world.answer(ticket, End).outcome == COMMITTED


def test_a_commit_whose_markers_take_long_is_answered_as_becoming_visible() -> None:
    world = Transacting()
    won = world.writer(ORDERS_0)
    ticket = world.ask_to_end([won])
    world.commit()
    world.wait(REQUEST_TIMEOUT_MS - 1)
    assert world.waits(ticket)
    world.wait(1)
    assert world.answer(ticket, End).outcome == BECOMING_VISIBLE
    assert world.describe().listing.state == ENDING
    again = world.ask_to_end([won])
    assert world.waits(again)
    world.write_markers()
    assert world.answer(again, End).outcome == COMMITTED


def test_a_decision_that_is_not_replicated_in_time_is_unknown_and_not_failed() -> None:
    world = Transacting()
    won = world.writer(ORDERS_0)
    ticket = world.ask_to_end([won])
    world.now_ms += REQUEST_TIMEOUT_MS
    world.coordinator.tick(world.now)
    assert isinstance(error_of(world.answer(ticket, End)), RequestTimedOut)
    assert world.end([won]).outcome == COMMITTED  # an append has no time-out


def test_a_commit_does_not_wait_for_the_markers_of_a_later_generation() -> None:
    world = Transacting()
    first = world.writer(ORDERS_0)
    ticket = world.ask_to_end([first])
    world.commit()
    (of_first,) = world.asked_markers()
    second = world.writer(ORDERS_1, generation=1, attempt="b")
    world.abort(1, "b")
    world.write(of_first)
    assert world.answer(ticket, End).outcome == COMMITTED
    world.write_markers()
    assert world.marks() == {(ORDERS_0, first): True, (ORDERS_1, second): False}


def test_a_commit_without_any_partition_is_answered_at_once() -> None:
    world = Transacting()
    ticket = world.ask_to_end([world.enlisted()])
    world.commit()
    assert world.answer(ticket, End).outcome == COMMITTED


# -- abort


def test_an_abort_after_a_commit_that_took_place_is_told_so_and_changes_nothing() -> None:
    world = Transacting()
    won = world.writer(ORDERS_0)
    ending = world.ask_to_end([won])
    assert world.abort().outcome == COMMITTED  # also where the decision was in flight
    world.write_markers()
    assert world.answer(ending, End).outcome == COMMITTED
    assert world.abort(producers=[won]).outcome == COMMITTED
    assert world.abort(attempt="z").outcome == COMMITTED
    assert world.marks() == {(ORDERS_0, won): True}


def test_an_abort_ends_the_attempts_producers_for_good() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    assert world.abort().outcome == ABORTED
    assert world.abort().outcome == ABORTED
    assert isinstance(error_of(world.end([producer_id])), ProducerFenced)
    world.write_markers()
    assert world.marks() == {(ORDERS_0, producer_id): False}


def test_a_task_aborts_itself_and_another_of_the_attempt_does_its_work() -> None:
    world = Transacting()
    failed = world.writer(ORDERS_0, task=3)
    assert world.abort(producers=[failed]).outcome == ABORTED
    again = world.writer(ORDERS_0, task=3)
    assert isinstance(error_of(world.end([failed])), InvalidTxnState)
    assert world.end([again]).outcome == COMMITTED
    assert world.marks() == {(ORDERS_0, failed): False, (ORDERS_0, again): True}


def test_an_abort_by_a_superseded_attempt_or_of_an_unknown_id_aborts_nobody() -> None:
    world = Transacting()
    world.enlisted()
    going_on = world.enlisted(attempt="b")
    assert world.abort(attempt="a").outcome == ABORTED
    assert world.abort(attempt="a", producers=[going_on]).outcome == ABORTED
    assert world.abort(name="unknown").outcome == ABORTED
    assert error_of(world.keep_alive(going_on)) is None


def test_an_abort_below_the_committed_generation_is_refused() -> None:
    world = Transacting()
    world.end([world.enlisted(generation=4)], 4)
    assert isinstance(error_of(world.abort(3)), StaleGeneration)


# -- time-outs


def test_a_transaction_without_a_sign_of_life_is_aborted_but_its_generation_is_not() -> None:
    world = Transacting()
    silent = world.writer(ORDERS_0)
    world.wait(TIMEOUT_MS * 1.1)
    assert isinstance(error_of(world.keep_alive(silent)), ProducerFenced)
    assert isinstance(error_of(world.end([silent])), InvalidTxnState)
    again = world.writer(ORDERS_0)  # of the same attempt: Spark tries the task once more
    assert world.end([again]).outcome == COMMITTED
    assert world.marks() == {(ORDERS_0, silent): False, (ORDERS_0, again): True}


@pytest.mark.parametrize("sign", ["enlist", "register", "keep alive"])
def test_the_clock_begins_anew_at_every_sign_of_life(sign: str) -> None:
    world = Transacting()
    first = world.writer(ORDERS_0)
    for partition in range(4):
        world.wait(TIMEOUT_MS * 0.8)
        match sign:
            case "enlist":
                world.enlisted(task=partition)
            case "register":
                world.register(first, ORDERS_1._replace(partition=10 + partition))
            case "keep alive":
                assert error_of(world.keep_alive(first)) is None
    assert world.end([first]).outcome == COMMITTED


def test_a_producer_that_ended_keeps_nothing_alive() -> None:
    world = Transacting()
    lively, silent = world.writer(ORDERS_0), world.writer(ORDERS_1)
    world.abort(producers=[lively])
    for _ in range(4):
        assert isinstance(error_of(world.keep_alive(lively)), ProducerFenced)
        world.wait(TIMEOUT_MS * 0.3)
    assert isinstance(error_of(world.keep_alive(silent)), ProducerFenced)


def test_each_transaction_has_the_time_out_that_it_asked_for() -> None:
    world = Transacting()
    quick, slow = world.enlisted(timeout_ms=1_000), world.enlisted(name="slow")
    world.wait(2_000)
    assert isinstance(error_of(world.keep_alive(quick)), ProducerFenced)
    assert error_of(world.keep_alive(slow, name="slow")) is None


def test_a_new_coordinator_grants_a_full_period() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    world.wait(TIMEOUT_MS * 0.9)
    world.fail_over()
    world.wait(TIMEOUT_MS * 0.9)
    assert world.describe().listing.state == OPEN
    world.wait(TIMEOUT_MS * 0.2)
    assert isinstance(error_of(world.keep_alive(producer_id)), ProducerFenced)


def test_what_a_coordinator_stood_still_itself_is_nobody_elses_silence() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    world.now_ms += TIMEOUT_MS * 3
    world.coordinator.tick(world.now)
    assert error_of(world.keep_alive(producer_id)) is None


def test_a_coordinator_that_is_late_now_and_then_times_out_who_is_silent() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    for _ in range(6):
        world.wait(TIMEOUT_MS / 4)
        world.now_ms += TIMEOUT_MS * 0.3
        world.coordinator.tick(world.now)
        world.commit()
    assert isinstance(error_of(world.keep_alive(producer_id)), ProducerFenced)


def test_a_time_out_that_cannot_be_written_is_tried_again() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    world.refusal = NotEnoughReplicas("the ISR is too small")
    world.wait(TIMEOUT_MS * 1.1)
    assert world.fates() == {producer_id: coordinator_pb2.PRODUCER_FATE_OPEN}
    world.refusal = None
    world.wait(TIMEOUT_MS * 0.1)
    assert world.fates(T) == {producer_id: coordinator_pb2.PRODUCER_FATE_ABORTING}
