"""The judge of transactions is judged: it finds what is there to find. And programs stop where their process does."""

from __future__ import annotations

from typing import cast

import pytest

from minilog.record_batch.header import Attributes
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.storage.log import Log
from tests.simulation.coroutines import Promise, sleep, spawn
from tests.simulation.events import Scheduler
from tests.simulation.invariants.mirror import Committed, Entry
from tests.simulation.invariants.transactions import TransactionTruth
from tests.simulation.invariants.violation import Violation
from tests.simulation.plan import Plan
from tests.simulation.process import Process
from tests.simulation.transaction_history import Copy, Generation, TransactionHistory

KEY = PartitionKey(bytes(16), 0)
BATCH = Generation("spark-q", 7)


@pytest.fixture
def history() -> TransactionHistory:
    made = TransactionHistory()
    made.planned(BATCH, 2)
    return made


class TestHistory:
    def test_a_row_is_seen_of_one_producer_at_one_place(self, history: TransactionHistory) -> None:
        history.read("c", Copy(BATCH, 0, 1), KEY, 5)
        history.read("d", Copy(BATCH, 0, 1), KEY, 5)
        with pytest.raises(Violation, match="V15"):
            history.read("c", Copy(BATCH, 0, 2), KEY, 6)

    def test_nothing_of_an_aborted_producer_is_seen(self, history: TransactionHistory) -> None:
        history.aborted(BATCH, [1], "aborted by its task")
        with pytest.raises(Violation, match="aborted by its task"):
            history.read("c", Copy(BATCH, 0, 1), KEY, 5)

    def test_nothing_of_who_was_not_named_is_seen_before_or_after(self, history: TransactionHistory) -> None:
        history.read("c", Copy(BATCH, 0, 1), KEY, 5)
        with pytest.raises(Violation, match="the winners are"):
            history.committed(BATCH, [2])

    def test_a_generation_is_committed_once(self, history: TransactionHistory) -> None:
        history.committed(BATCH, [1])
        history.committed(BATCH, None)
        with pytest.raises(Violation, match="and was with"):
            history.committed(BATCH, [2])

    def test_other_rows_are_no_replay(self, history: TransactionHistory) -> None:
        history.replayed(BATCH, 2)
        with pytest.raises(Violation, match=r"4 rows are taken for .* which has 2, and are never written"):
            history.replayed(BATCH, 4)

    def test_at_the_end_a_batch_is_there_whole_or_not_at_all(self, history: TransactionHistory) -> None:
        history.check_end([])
        history.read("c", Copy(BATCH, 0, 1), KEY, 5)
        with pytest.raises(Violation, match="seen in part"):
            history.check_end([])
        history.read("c", Copy(BATCH, 1, 1), KEY, 6)
        history.check_end([])

    def test_what_was_answered_as_committed_is_there_at_the_end(self, history: TransactionHistory) -> None:
        history.committed(BATCH, None)
        with pytest.raises(Violation, match="is committed, and rows"):
            history.check_end([])


NO_LOG = cast(Log, None)  # for no control batch is looked for


def _written(base_offset: int, producer_id: int) -> Entry:
    return Entry(base_offset, base_offset + 2, 1, base_offset, producer_id, 0, 0, int(Attributes.TRANSACTIONAL))


class TestLastStableOffset:
    def test_it_stays_in_front_of_an_open_transaction(self) -> None:
        truth = TransactionTruth(KEY, Committed([_written(0, 1), _written(2, 2)]))
        truth.advance(NO_LOG)
        truth.check_stable(1, 4, 0)
        with pytest.raises(Violation, match="open from 0 on"):
            truth.check_stable(1, 4, 2)

    def test_or_of_what_a_log_has_of_it_that_began_behind_its_first_records(self) -> None:
        plain = _written(2, 9)._replace(attributes=0)
        truth = TransactionTruth(KEY, Committed([_written(0, 1), plain, _written(4, 1)]))
        truth.advance(NO_LOG)
        truth.check_stable(1, 6, 4, 2)
        with pytest.raises(Violation, match="open from 4 on"):
            truth.check_stable(1, 6, 5, 2)
        truth.check_stable(2, 6, 6, 6)

    def test_it_is_never_above_the_high_watermark(self) -> None:
        with pytest.raises(Violation, match="V1"):
            TransactionTruth(KEY, Committed()).check_stable(1, 4, 5)

    def test_records_of_open_transactions_are_not_to_be_skipped_by_who_reads_all(self) -> None:
        truth = TransactionTruth(KEY, Committed([_written(0, 1)]))
        assert truth.why_not_skipped(0, 2, committed=False) is not None
        assert truth.why_not_skipped(0, 2, committed=True) is None


class TestCoroutines:
    def test_a_step_is_an_event_of_its_process(self) -> None:
        scheduler, seen = Scheduler(), []
        process = Process(scheduler, 1_000, 0.0)

        async def work() -> str:
            await sleep(process, 10.0)
            seen.append(scheduler.now_ms)
            return "done"

        done: Promise[str] = spawn(process, work())
        while scheduler.step():
            pass
        assert seen == [10.0]
        assert done.kept

    def test_of_a_killed_process_nothing_goes_on(self) -> None:
        scheduler, seen = Scheduler(), []
        process = Process(scheduler, 1_000, 0.0)

        async def work() -> None:
            await sleep(process, 10.0)
            seen.append(scheduler.now_ms)

        done = spawn(process, work())
        process.end()
        while scheduler.step():
            pass
        assert not seen
        assert not done.kept


def test_seeds_with_transactions_are_drawn_apart() -> None:
    with_transactions = [seed for seed in range(200) if Plan.draw(seed).transactions]
    assert 40 <= len(with_transactions) <= 80
    assert all(Plan.draw(seed, "transactions").transactions for seed in range(5))
