"""The judge of Spark's sinks is judged: it finds what is there to find."""

from __future__ import annotations

import pytest

from minilog.partition_key import PartitionKey
from tests.judges.violation import Violation
from tests.simulation.clients.transaction_history import Copy, Generation, TransactionHistory

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
        history.check_end()
        history.read("c", Copy(BATCH, 0, 1), KEY, 5)
        with pytest.raises(Violation, match="seen in part"):
            history.check_end()
        history.read("c", Copy(BATCH, 1, 1), KEY, 6)
        history.check_end()

    def test_records_of_committed_transactions_are_there_at_the_end(self, history: TransactionHistory) -> None:
        history.committed(BATCH, None)
        with pytest.raises(Violation, match="is committed, and rows"):
            history.check_end()
