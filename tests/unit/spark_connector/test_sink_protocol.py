"""What the sink decides: one test for each sentence of docs/spec/connector.md § 6 that is not the coordinator's."""

from __future__ import annotations

import pathlib
import pickle
from dataclasses import replace

import pytest

from minilog.transactions.messages import AlreadyCommitted, Attempt, Contents, Enlistment, Winner, WrittenPartition
from pyspark_minilog.errors import InconsistentWrite, NotAReplay
from pyspark_minilog.writing.checkpoint import offsets_digest, query_id
from pyspark_minilog.writing.replay_facts import Facts, MicroBatch, facts_of_rows
from pyspark_minilog.writing.sink_protocol import (
    Abort,
    End,
    TaskReport,
    abort_decision,
    attempt_mark,
    batch_attempt,
    commit_decision,
    stream_attempt,
)
from tests.rules import proves

pytestmark = proves("SPF.28")

ATTEMPT = stream_attempt("query", 7, "run", b"attempt")
EMPTY = TaskReport(0)
ALREADY = TaskReport(0, AlreadyCommitted(ATTEMPT, None))


def already(rows: int, held: Contents | None) -> TaskReport:
    return TaskReport(rows, AlreadyCommitted(ATTEMPT, held))


def enlistment(producer_id: int, attempt: Attempt = ATTEMPT, epoch: int = 3) -> Enlistment:
    return Enlistment(attempt, producer_id, 0, epoch, 900_000)


def wrote(producer_id: int, attempt: Attempt = ATTEMPT, epoch: int = 3) -> TaskReport:
    winner = Winner(producer_id, (WrittenPartition(b"t" * 16, 0, 9),))
    return TaskReport(10, enlistment(producer_id, attempt, epoch), winner)


class TestNames:
    @proves("SPS.10")
    def test_a_stream_is_named_by_its_query_its_generation_by_the_batch_and_its_run_by_the_run(self) -> None:
        assert Attempt("spark-query", 7, b"attempt", b"run") == ATTEMPT

    @proves("SPS.10")
    def test_a_batch_write_is_named_by_its_options(self) -> None:
        assert batch_attempt("daily", "late", 12, "random", b"a") == Attempt("daily:late", 12, b"a", b"random")

    @proves("SPS.22")
    def test_under_one_name_it_is_another_one_for_each_topic(self) -> None:
        topics = ("a", "b", None)  # None: each row names its own
        named = {batch_attempt("daily", topic, 0, "x", b"a").transactional_id for topic in topics}
        assert named == {"daily:a", "daily:b", "daily:"}

    def test_or_at_random_and_is_then_a_transaction_of_its_own(self) -> None:
        first, second = (batch_attempt(None, "late", 0, each, b"a") for each in ("x", "y"))
        assert first.transactional_id != second.transactional_id
        assert first.generation == second.generation == 0

    @proves("SPF.30")
    def test_the_attempts_of_one_query_and_driver_carry_one_mark(self) -> None:
        options = {"topic": "late", "checkpointLocation": "/c"}
        mark = attempt_mark("/tmp/blockmgr-1", options)
        assert mark
        assert mark == attempt_mark("/tmp/blockmgr-1", {"checkpointlocation": "/c", "topic": "late"})
        others = [
            attempt_mark("/tmp/blockmgr-2", options),
            attempt_mark("/tmp/blockmgr-1", {**options, "checkpointLocation": "/d"}),
            attempt_mark("/tmp/blockmgr-1", {"topic": "late", "queryName": "c"}),
        ]
        assert len({mark, *others}) == 4

    @proves("SPF.30")
    def test_an_attempt_that_nothing_tells_from_others_has_no_mark(self) -> None:
        assert attempt_mark("/tmp/blockmgr-1", {"topic": "late"}) == b""
        assert attempt_mark(None, {"checkpointLocation": "/c"}) == b""

    def test_the_report_of_a_task_can_be_sent_to_the_driver(self) -> None:
        assert pickle.loads(pickle.dumps(wrote(1))) == wrote(1)


class TestCommit:
    def test_the_tasks_that_reported_win_and_tell_how_far_they_wrote(self) -> None:
        decision = commit_decision([wrote(1, epoch=3), EMPTY, wrote(2, epoch=4)], batch_id=7)
        assert isinstance(decision, End)
        assert decision.attempt == ATTEMPT
        assert [each.producer_id for each in decision.winners] == [1, 2]
        assert decision.winners[0].partitions == (WrittenPartition(b"t" * 16, 0, 9),)

    def test_the_highest_epoch_of_the_coordinator_that_any_task_heard_of_is_named(self) -> None:
        decision = commit_decision([wrote(1, epoch=3), wrote(2, epoch=5), wrote(3, epoch=4)])
        assert isinstance(decision, End)
        assert decision.coordinator_epoch == 5

    @proves("SPF.32")
    def test_without_producers_nothing_is_called(self) -> None:
        assert commit_decision([EMPTY, EMPTY], batch_id=7) is None
        assert commit_decision([], batch_id=7) is None

    def test_a_micro_batch_that_was_committed_before_is_not_ended_again(self) -> None:
        assert commit_decision([ALREADY, EMPTY, ALREADY], batch_id=7) is None

    def test_open_for_some_tasks_and_committed_for_others_is_refused(self) -> None:
        with pytest.raises(InconsistentWrite, match=r"1 tasks that generation 7 .* did a command forget it"):
            commit_decision([ALREADY, wrote(1)], batch_id=7)

    def test_two_attempts_in_one_commit_are_refused(self) -> None:
        other = replace(ATTEMPT, attempt_id=b"other")
        with pytest.raises(InconsistentWrite, match="different attempts"):
            commit_decision([wrote(1), wrote(2, other)], batch_id=7)

    def test_another_batch_than_spark_commits_is_refused_with_both_numbers(self) -> None:
        with pytest.raises(InconsistentWrite, match="Spark commits micro-batch 8, but its tasks wrote generation 7"):
            commit_decision([wrote(1)], batch_id=8)

    def test_a_task_that_has_not_reported_is_refused(self) -> None:
        with pytest.raises(InconsistentWrite, match="1 of 2 tasks"):
            commit_decision([wrote(1), None], batch_id=7)

    @proves("SPS.17")
    def test_a_task_that_enlisted_and_does_not_say_what_it_wrote_is_refused(self) -> None:
        with pytest.raises(InconsistentWrite, match="reported what it wrote"):
            commit_decision([TaskReport(1, enlistment(1))], batch_id=7)


class TestReplays:
    """A checkpoint that was set back by one batch asks for the committed generation, as a replay does. The facts that
    are compared have their tests in test_replay_facts.py."""

    FACTS = facts_of_rows(["value"], [b"a" * 16])

    def test_rows_and_facts_are_kept_with_what_is_committed(self) -> None:
        decision = commit_decision([wrote(1), EMPTY, wrote(2)], batch_id=7, facts=self.FACTS)
        assert isinstance(decision, End)
        assert decision.contents == Contents(20, self.FACTS.stored())

    @proves("CO.15", "SPS.13")
    def test_other_numbers_of_rows_are_refused_with_both(self) -> None:
        reports = [already(2, Contents(4)), already(3, Contents(4)), EMPTY]
        with pytest.raises(
            NotAReplay,
            match=r"generation 7 of .*'spark-query' .* the committed write has 4 rows, and this write has 5 rows",
        ):
            commit_decision(reports, batch_id=7)

    @proves("CO.15", "SPS.13")
    @pytest.mark.parametrize("batch_id", [7, None])
    def test_so_are_as_many_rows_that_another_fact_tells_from_them(self, batch_id: int | None) -> None:
        held = Contents(4, self.FACTS.stored())
        reports = [already(1, held), already(3, held)]
        assert commit_decision(reports, batch_id=batch_id, facts=self.FACTS) is None
        other = facts_of_rows(["value"], [b"b" * 16])
        with pytest.raises(NotAReplay, match="the 4 committed rows went to other topics than the rows of this write"):
            commit_decision(reports, batch_id=batch_id, facts=other)

    def test_a_commit_without_facts_is_not_compared(self) -> None:
        assert commit_decision([already(4, None)], batch_id=7) is None

    def test_a_user_may_have_it_not_checked(self) -> None:
        assert commit_decision([already(5, Contents(4))], batch_id=7, check_replay=False) is None

    def test_a_batch_write_without_rows_is_no_re_run_of_one_that_had_some(self) -> None:
        held = AlreadyCommitted(ATTEMPT, Contents(5, self.FACTS.stored()))
        with pytest.raises(NotAReplay, match=r"the committed write has 5 rows, and this write has 0 rows\."):
            commit_decision([EMPTY], begun=held, facts=facts_of_rows(["value"], []))

    @proves("SPF.27")
    def test_the_second_write_of_a_micro_batch_is_refused(self) -> None:
        """It would look like a replay of the first one. No option lets it pass."""
        facts = replace(self.FACTS, run=MicroBatch("q", "7", "48f69cd2-d387-4522-a678-ca482945e4de").run)
        held = already(4, Contents(4, facts.stored()))
        with pytest.raises(NotAReplay, match=r"another write of this micro-batch.*pyspark_minilog\.transaction"):
            commit_decision([held], facts=facts, check_replay=False)
        later = replace(facts, run=MicroBatch("q", "7", "4ac46c70-3197-4961-a99a-423ce3e641e4").run)
        assert later != facts
        assert commit_decision([held], facts=later) is None

    def test_facts_of_a_later_version_are_refused_and_not_guessed(self) -> None:
        for stored in (b"\x03" * 14, b"\x02\x03" + b"x" * 12, b"x" * 20):
            with pytest.raises(NotAReplay, match=r"by a newer version of minilog.*Upgrade pyspark-minilog"):
                commit_decision([already(4, Contents(4, stored))], batch_id=7, facts=Facts())


class TestOffsetsOfACheckpoint:
    """Spark's own file, with what is the same in a replay, and nothing else."""

    def write(self, folder: pathlib.Path, *lines: str, batch: int = 3) -> None:
        (folder / "offsets").mkdir(exist_ok=True)
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))

    def test_the_time_of_planning_is_none_and_any_offset_is(self, tmp_path: pathlib.Path) -> None:
        found = []
        for metadata, offset in (('{"batchTimestampMs":1}', "5"), ('{"batchTimestampMs":2}', "5"), ("", "6")):
            self.write(tmp_path, "v1", metadata, '{"a":{"0":1}}', f'{{"b":{{"0":{offset}}}}}')
            found.append(offsets_digest(str(tmp_path), 3))
        assert found[0] == found[1] != found[2]
        assert len(found[0]) == 32

    def test_a_folder_is_named_as_spark_takes_it(self, tmp_path: pathlib.Path) -> None:
        self.write(tmp_path, "v1", "{}", "{}")
        known = {offsets_digest(each, 3) for each in (str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}")}
        assert len(known) == 1
        assert known != {b""}

    def test_a_checkpoint_that_cannot_be_read_is_not_known(self, tmp_path: pathlib.Path) -> None:
        self.write(tmp_path, "v1", batch=4)
        for checkpoint, batch in ((None, 3), ("s3a://bucket/x", 3), (str(tmp_path), 3), (str(tmp_path), 4)):
            assert offsets_digest(checkpoint, batch) == b""


class TestTheQueryOfACheckpoint:
    def test_is_the_one_that_spark_wrote(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "metadata").write_text('{"id":"c0ffee"}')
        assert query_id(str(tmp_path)) == "c0ffee"

    @pytest.mark.parametrize("text", ["", "[1]", '{"id":1}', "{"])
    def test_a_checkpoint_that_cannot_be_read_is_not_known(self, tmp_path: pathlib.Path, text: str) -> None:
        assert query_id(str(tmp_path)) is None
        (tmp_path / "metadata").write_text(text)
        assert query_id(str(tmp_path)) is None
        assert query_id("s3a://bucket/x") is query_id(None) is None


class TestAbort:
    def test_the_attempt_is_named_by_any_task_that_reported(self) -> None:
        assert abort_decision([None, EMPTY, wrote(1)]) == Abort(ATTEMPT, 3)

    @proves("SPF.29", "SPS.20")
    def test_where_all_tasks_failed_there_is_nothing_to_name(self) -> None:
        assert abort_decision([None, None]) is None

    def test_a_commit_of_another_run_is_left_alone(self) -> None:
        assert abort_decision([ALREADY, None]) is None


class TestBatchWrites:
    BEGUN = enlistment(99, epoch=6)

    def test_the_driver_that_began_it_ends_it(self) -> None:
        decision = commit_decision([wrote(1)], begun=self.BEGUN)
        assert isinstance(decision, End)
        assert ([each.producer_id for each in decision.winners], decision.coordinator_epoch) == ([1], 6)

    def test_a_write_without_rows_is_left_open_for_nobody(self) -> None:
        assert commit_decision([EMPTY], begun=self.BEGUN) == Abort(ATTEMPT, 6)

    def test_so_is_one_whose_tasks_waited_for_rows_and_got_none(self) -> None:
        waited = TaskReport(0, enlistment(1), Winner(1, ()))
        assert commit_decision([waited, EMPTY]) == Abort(ATTEMPT, 3)
        assert commit_decision([waited, EMPTY], begun=self.BEGUN) == Abort(ATTEMPT, 6)
        assert isinstance(commit_decision([waited, wrote(2)]), End)

    def test_a_re_run_of_a_committed_one_does_nothing(self) -> None:
        assert commit_decision([ALREADY], begun=AlreadyCommitted(ATTEMPT, None)) is None
        assert abort_decision([None], begun=AlreadyCommitted(ATTEMPT, None)) is None

    def test_a_write_is_aborted_even_where_all_tasks_failed(self) -> None:
        assert abort_decision([None], begun=self.BEGUN) == Abort(ATTEMPT, 6)

    def test_a_task_of_another_attempt_is_refused(self) -> None:
        with pytest.raises(InconsistentWrite, match="different attempts"):
            commit_decision([wrote(1, replace(ATTEMPT, attempt_id=b"other"))], begun=self.BEGUN)
