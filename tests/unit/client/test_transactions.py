"""What is said to the coordinator of transactions, and what its answers mean (docs/spec/transactions.md)."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    InvalidTxnState,
    MinilogError,
    ProducerFenced,
    RequestTimedOut,
    StaleGeneration,
    UnknownOutcome,
)
from minilog.transactions.messages import (
    AlreadyCommitted,
    Attempt,
    Ending,
    Enlistment,
    Run,
    TransactionOutcome,
    Winner,
    WrittenPartition,
    abort_request,
    end_request,
    enlist_request,
    enlisted,
    outcome_of,
)
from minilog.v1 import coordinator_pb2
from tests.rules import proves

pytestmark = proves("SPS.6")

ATTEMPT = Attempt("spark-q", 7, b"attempt", b"run")
COMMITTED, BECOMING_VISIBLE = TransactionOutcome.COMMITTED, TransactionOutcome.BECOMING_VISIBLE


class TestEnlisting:
    def test_a_request_names_all_five(self) -> None:
        request = enlist_request(ATTEMPT, task=3, timeout_ms=900, expires=True)
        assert (request.transactional_id, request.generation, request.task) == ("spark-q", 7, 3)
        assert (request.attempt_id, request.run_id) == (b"attempt", b"run")
        assert (request.timeout_ms, request.expires) == (900, True)

    def test_a_generation_that_is_left_open_is_absent_and_so_is_a_task_that_there_is_none_of(self) -> None:
        request = enlist_request(Attempt("t", None, b"a", b"r"), task=None, timeout_ms=0, expires=False)
        assert not request.HasField("generation")
        assert not request.HasField("task")

    def test_generation_and_task_zero_are_said(self) -> None:
        request = enlist_request(Attempt("t", 0, b"a", b"r"), task=0, timeout_ms=0, expires=False)
        assert request.HasField("generation")
        assert request.HasField("task")

    def test_the_answer_has_the_generation_and_who_one_writes_as(self) -> None:
        response = coordinator_pb2.EnlistResponse(
            outcome=coordinator_pb2.ENLIST_OUTCOME_ENLISTED,
            generation=4,
            producer_id=1001,
            timeout_ms=6_000,
            coordinator_epoch=9,
        )
        found = enlisted(Attempt("t", None, b"a", b"r"), response)
        assert found == Enlistment(Attempt("t", 4, b"a", b"r"), 1001, 0, 9, 6_000)
        assert pickle.loads(pickle.dumps(found)) == found

    def test_a_committed_generation_is_to_be_drained(self) -> None:
        response = coordinator_pb2.EnlistResponse(
            outcome=coordinator_pb2.ENLIST_OUTCOME_ALREADY_COMMITTED, generation=7, producer_id=-1, producer_epoch=-1
        )
        assert enlisted(ATTEMPT, response) == AlreadyCommitted(replace(ATTEMPT, generation=7), None)

    @pytest.mark.parametrize(("timeout_ms", "every_ms"), [(1_000, 200), (900_000, 30_000)])
    def test_several_signs_of_life_fit_into_the_time_out(self, timeout_ms: int, every_ms: float) -> None:
        assert Enlistment(ATTEMPT, 1, 0, 0, timeout_ms).keep_alive_ms == every_ms


class TestEnd:
    def test_winners_say_where_they_wrote_how_far(self) -> None:
        winner = Winner(1001, (WrittenPartition(b"t" * 16, 2, 41),))
        request = end_request(ATTEMPT, [winner], timeout_ms=15_000, coordinator_epoch=9)
        (named,) = request.winners
        (written,) = named.partitions
        assert (named.producer_id, written.last_sequence) == (1001, 41)
        assert (written.partition_id.topic_id, written.partition_id.partition) == (b"t" * 16, 2)
        assert (request.generation, request.run_id, request.coordinator_epoch) == (7, b"run", 9)

    def test_an_abort_names_producers_or_the_whole_attempt(self) -> None:
        assert list(abort_request(ATTEMPT, [5], coordinator_epoch=0).producer_ids) == [5]
        assert not abort_request(ATTEMPT, [], coordinator_epoch=0).producer_ids

    def test_an_outcome_of_a_later_version_is_unknown(self) -> None:
        with pytest.raises(UnknownOutcome):
            outcome_of(coordinator_pb2.TRANSACTION_OUTCOME_NONE)

    def test_committed_is_the_end(self) -> None:
        assert Ending(ATTEMPT).answered(COMMITTED) is COMMITTED

    def test_becoming_visible_is_asked_again_while_there_is_time(self) -> None:
        ending = Ending(ATTEMPT)
        assert ending.answered(BECOMING_VISIBLE) is None
        assert ending.out_of_time(1_000) is BECOMING_VISIBLE

    @proves("SPS.19")
    @pytest.mark.parametrize("error", [UnknownOutcome("lost"), RequestTimedOut("not replicated")])
    def test_an_answer_that_is_lost_is_asked_for_again_and_then_unknown(self, error: MinilogError) -> None:
        ending = Ending(ATTEMPT)
        assert ending.failed(error) is None
        assert ending.failed(CoordinatorLoadInProgress("loads")) is None
        with pytest.raises(UnknownOutcome, match=r"generation 7 .* may or may not be committed"):
            ending.out_of_time(1_000)

    def test_a_coordinator_that_never_was_there_has_decided_nothing(self) -> None:
        ending = Ending(ATTEMPT)
        assert ending.failed(CoordinatorLoadInProgress("loads")) is None
        with pytest.raises(CoordinatorLoadInProgress, match="not answered within 1000 ms"):
            ending.out_of_time(1_000)

    def test_nothing_asked_in_time_is_unknown_rather_than_failed(self) -> None:
        with pytest.raises(UnknownOutcome):
            Ending(ATTEMPT).out_of_time(0)

    def test_a_later_generation_is_committed_so_this_one_is_unknown(self) -> None:
        ending = Ending(ATTEMPT)
        ending.failed(UnknownOutcome("lost"))
        with pytest.raises(UnknownOutcome, match="generation 8 is committed"):
            ending.failed(StaleGeneration("generation 8 is committed"))

    @pytest.mark.parametrize("error", [ProducerFenced("took over"), InvalidTxnState("not enlisted")])
    def test_a_refusal_is_final(self, error: MinilogError) -> None:
        with pytest.raises(type(error)):
            Ending(ATTEMPT).failed(error)

    def test_nothing_that_comes_after_the_decision_takes_it_back(self) -> None:
        ending = Ending(ATTEMPT)
        ending.answered(BECOMING_VISIBLE)
        assert ending.failed(StaleGeneration("generation 8 is committed")) is BECOMING_VISIBLE


class TestRun:
    def run_and_ids(self) -> Run:
        ids = iter([b"a0", b"a1", b"a2", b"a3"])
        return Run("t", b"run", lambda: next(ids))

    def test_the_first_leaves_the_generation_open_and_is_one_attempt_until_it_is_answered(self) -> None:
        run = self.run_and_ids()
        assert run.next_attempt() == Attempt("t", None, b"a0", b"run")
        assert run.next_attempt() == Attempt("t", None, b"a0", b"run")

    def test_each_after_it_is_another_attempt_at_the_next_generation(self) -> None:
        run = self.run_and_ids()
        run.enlisted(Enlistment(Attempt("t", 5, b"a0", b"run"), 1001, 0, 0, 1_000))
        assert run.next_attempt() == Attempt("t", 6, b"a1", b"run")
        assert run.next_attempt() == Attempt("t", 7, b"a2", b"run")  # whatever became of the Enlist in 6
