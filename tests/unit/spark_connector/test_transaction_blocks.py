"""What a transaction block decides, and its folder: docs/spec/connector.md § 6.7."""

from __future__ import annotations

import pathlib
import pickle
import tempfile
from dataclasses import replace

import pytest

from minilog.errors import InvalidTxnState
from minilog.transactions import AlreadyCommitted, Contents, Enlistment, Winner, WrittenPartition
from pyspark_minilog.errors import InconsistentWrite, InvalidOption, NotAReplay
from pyspark_minilog.options.table import parse_sink_options, parse_stream_sink_options
from pyspark_minilog.transaction_block import TransactionBlock
from pyspark_minilog.writing.block_folder import BlockFolder
from pyspark_minilog.writing.block_protocol import (
    BegunBlock,
    HandOver,
    block_attempt,
    check_replayed_block,
    hand_over,
    joint_end,
)
from pyspark_minilog.writing.replay_facts import Facts, facts_of_rows
from pyspark_minilog.writing.sink_protocol import End, TaskReport
from tests.rules import proves

pytestmark = proves("SPS.27")

ATTEMPT = block_attempt("orders", 7, "run", b"attempt")
BLOCK = BegunBlock(ATTEMPT, False, ("127.0.0.1:9092",))
COMMITTED = replace(BLOCK, is_committed=True)
ALREADY = AlreadyCommitted(ATTEMPT, None)
EMPTY = TaskReport(0)
D = facts_of_rows(["value"], [b"t" * 16])
OPTIONS = {"bootstrap.servers": "127.0.0.1:9092", "transaction": "/tmp/block"}


def winner(producer_id: int) -> Winner:
    return Winner(producer_id, (WrittenPartition(b"t" * 16, 3, 9),))


def wrote(producer_id: int, epoch: int = 3) -> TaskReport:
    return TaskReport(10, Enlistment(ATTEMPT, producer_id, 0, epoch, 60_000), winner(producer_id))


def write_of(*producer_ids: int, facts: Facts = D, epoch: int = 3) -> HandOver:
    return HandOver(10 * len(producer_ids), facts, tuple(map(winner, producer_ids)), epoch)


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> BlockFolder:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return BlockFolder.create()


class TestHandOver:
    def test_a_write_hands_over_the_winners_of_its_tasks(self) -> None:
        result = hand_over([wrote(1), EMPTY, wrote(2, epoch=5)], BLOCK, D)
        assert result == HandOver(20, D, (winner(1), winner(2)), 5)

    def test_a_write_without_rows_hands_over_no_winner(self) -> None:
        assert hand_over([EMPTY, EMPTY], BLOCK, D) == HandOver(0, D)
        early = TaskReport(0, Enlistment(ATTEMPT, 1, 0, 3, 60_000), Winner(1, ()))
        assert hand_over([early], BLOCK, D) == HandOver(0, D)

    def test_in_a_committed_block_it_hands_over_its_rows_alone(self) -> None:
        reports = [TaskReport(4, ALREADY), TaskReport(3, ALREADY)]
        assert hand_over(reports, COMMITTED, D) == HandOver(7, D)

    def test_rows_of_another_attempt_are_refused(self) -> None:
        other = replace(BLOCK, attempt=replace(ATTEMPT, attempt_id=b"other"))
        with pytest.raises(InconsistentWrite, match="different attempts"):
            hand_over([wrote(1)], other, D)

    def test_a_block_that_another_run_has_committed_meanwhile_is_refused(self) -> None:
        with pytest.raises(InconsistentWrite, match="another run has committed generation 7"):
            hand_over([TaskReport(4, ALREADY)], BLOCK, D)

    def test_a_task_that_has_not_reported_is_refused(self) -> None:
        with pytest.raises(InconsistentWrite, match="1 of 2 tasks"):
            hand_over([wrote(1), None], BLOCK, D)


class TestTheEnd:
    def test_the_winners_of_all_writes_are_committed_by_one_request(self) -> None:
        end, facts = joint_end(ATTEMPT, 2, {0: write_of(1, 2), 1: write_of(3, epoch=6)}, [])
        assert end == End(ATTEMPT, (winner(1), winner(2), winner(3)), end.contents, 6)
        assert end.contents == Contents(30, facts.stored())

    def test_nothing_is_committed_without_the_hand_over_of_each_write_that_began(self) -> None:
        with pytest.raises(InconsistentWrite, match="has 3 writes, and number 1, 3 of them failed, or is not over"):
            joint_end(ATTEMPT, 3, {1: write_of(1)}, [])

    def test_a_block_without_writes_has_no_rows(self) -> None:
        end, _ = joint_end(ATTEMPT, 0, {}, [("group", "topic", 0, 5)])
        assert (end.winners, end.contents.rows) == ((), 0)

    def test_a_write_without_rows_does_not_count(self) -> None:
        writes = {0: write_of(1), 1: HandOver(0, facts_of_rows(["value"], []))}
        assert joint_end(ATTEMPT, 2, writes, [])[1] == joint_end(ATTEMPT, 1, {0: write_of(1)}, [])[1]

    @proves("SPS.26")
    def test_a_replay_has_the_same_content_and_anything_else_is_refused(self) -> None:
        before = AlreadyCommitted(ATTEMPT, Contents(30, D.stored()))
        check_replayed_block(before, D, 30)
        with pytest.raises(NotAReplay, match=r"30 rows, and this write has 31 rows.*another block of"):
            check_replayed_block(before, D, 31)
        with pytest.raises(NotAReplay, match="the 30 committed rows went to other topics"):
            check_replayed_block(before, facts_of_rows(["value"], [b"u" * 16]), 30)

    def test_a_generation_of_a_program_that_is_no_block_is_no_replay(self) -> None:
        with pytest.raises(NotAReplay, match="by a program that is no block"):
            check_replayed_block(AlreadyCommitted(ATTEMPT, None), D, None)


class TestTheFolder:
    def test_writes_get_numbers_and_hand_their_results_over(self, folder: BlockFolder) -> None:
        folder.open(BLOCK)
        as_sent = pickle.loads(pickle.dumps(BlockFolder(folder.path)))
        assert [as_sent.begin(), as_sent.begin()] == [(0, BLOCK), (1, BLOCK)]
        as_sent.hand_over(1, write_of(4))
        as_sent.hand_over(0, write_of(1, 2))
        assert folder.close() == (2, {0: write_of(1, 2), 1: write_of(4)})

    def test_a_write_that_is_not_over_or_was_given_up_has_no_result(self, folder: BlockFolder) -> None:
        folder.open(BLOCK)
        for _ in range(3):
            folder.begin()
        folder.hand_over(0, write_of(1))
        folder.hand_over(2, write_of(2))
        folder.take_back(2)
        assert folder.close() == (3, {0: write_of(1)})

    def test_no_write_begins_behind_the_end(self, folder: BlockFolder) -> None:
        folder.open(BLOCK)
        folder.close()
        with pytest.raises(InvalidOption, match=r"no block of pyspark_minilog\.transaction is open there"):
            folder.begin()

    def test_a_write_whose_folder_is_gone_is_refused(self, folder: BlockFolder) -> None:
        folder.open(BLOCK)
        folder.begin()
        folder.remove()
        assert not pathlib.Path(folder.path).exists()
        with pytest.raises(InvalidOption, match="has ended while this write ran"):
            folder.hand_over(0, write_of(1))
        with pytest.raises(InvalidOption, match="as with a client of Spark Connect"):
            folder.begin()
        folder.take_back(0)

    def test_only_its_user_can_open_it(self, folder: BlockFolder) -> None:
        assert pathlib.Path(folder.path).stat().st_mode & 0o777 == 0o700

    def test_a_block_has_a_bounded_number_of_writes(self, folder: BlockFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark_minilog.writing.block_folder.MAX_WRITES", 2)
        folder.open(BLOCK)
        folder.begin()
        folder.begin()
        with pytest.raises(InvalidOption, match="at most 2 writes"):
            folder.begin()


class TestOptions:
    @pytest.mark.parametrize(
        ("option", "value"), [("exactlyOnce", "false"), ("checkReplay", "false"), ("transactionalId", "mine")]
    )
    def test_a_write_of_a_block_has_no_option_that_the_block_decides(self, option: str, value: str) -> None:
        with pytest.raises(InvalidOption, match=f"option '{option}' is '{value}': the block of"):
            parse_sink_options({**OPTIONS, option: value})

    def test_a_stream_cannot_be_a_part_of_one(self) -> None:
        assert parse_sink_options(OPTIONS).transaction == "/tmp/block"
        with pytest.raises(InvalidOption, match="a stream is a transaction of its own"):
            parse_stream_sink_options(OPTIONS)


class TestTheBlock:
    @pytest.mark.parametrize(("name", "batch_id"), [("", 0), (" ", 0), (7, 0), ("orders", -1), ("orders", "1")])
    def test_its_name_is_text_and_its_number_a_whole_one(self, name: str, batch_id: int) -> None:
        with pytest.raises(InvalidOption, match=r"a block of pyspark_minilog\.transaction needs a"):
            TransactionBlock(None, name, batch_id, {})  # type: ignore[arg-type]

    def test_before_its_begin_it_has_no_options(self) -> None:
        block = TransactionBlock(None, "orders", 7, {})  # type: ignore[arg-type]
        with pytest.raises(InvalidTxnState, match="the block has not begun"):
            assert block.options

    def test_an_option_that_no_write_may_have_is_refused_at_its_begin(self) -> None:
        options = {"bootstrap.servers": "127.0.0.1:9092", "transactionalId": "mine"}
        with pytest.raises(InvalidOption, match="option 'transactionalId' is 'mine': the block of"):
            TransactionBlock(None, "orders", 7, options).__enter__()  # type: ignore[arg-type]
