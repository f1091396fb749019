"""The judge of deleted records is judged: it finds what is there to find, and nothing else."""

from __future__ import annotations

import pytest

from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.history import History, Outcome, Write
from tests.simulation.invariants.trims import TrimTruth
from tests.simulation.invariants.violation import Violation
from tests.simulation.plan import Plan
from tests.simulation.transaction_history import Copy, Generation, TransactionHistory

KEY = PartitionKey(bytes(16), 0)
BATCH = Generation("spark-q", 7)


@pytest.fixture
def truth() -> TrimTruth:
    made = TrimTruth(KEY)
    assert made.asked(10, 20)
    return made


class TestTruth:
    def test_nothing_is_lost_but_below_what_was_granted(self, truth: TrimTruth) -> None:
        assert not truth.asked(21, 20)
        truth.check_start(1, 10)
        with pytest.raises(Violation, match="below 10 only"):
            truth.check_start(1, 11)

    def test_an_answer_says_no_less_than_was_asked_for_and_no_more_than_was_granted(self, truth: TrimTruth) -> None:
        truth.say(1, 10, 10)
        for low_watermark in (9, 11):
            with pytest.raises(Violation, match="KIP-107"):
                truth.say(1, 10, low_watermark)

    def test_what_was_answered_is_gone_wherever_a_leader_could_come_from(self, truth: TrimTruth) -> None:
        truth.check_electable(2, 0, "of the ISR")
        truth.say(1, 10, 10)
        truth.check_electable(2, 10, "of the ISR")
        with pytest.raises(Violation, match="log start at 9"):
            truth.check_electable(2, 9, "of the ISR")

    def test_no_reader_is_sent_what_was_answered_to_be_gone(self, truth: TrimTruth) -> None:
        truth.check_sent(2, 10)
        truth.say(1, 10, 10)
        truth.check_sent(2, 11)  # a batch that was cut: its rest is there
        with pytest.raises(Violation, match="sends records below 10"):
            truth.check_sent(2, 10)


class TestReaders:
    def test_who_is_below_the_log_start_goes_on_where_it_is_told(self) -> None:
        history = History()
        history.may_be_deleted = lambda key: 10
        history.placed("c", KEY, 3)
        history.jumped("c", KEY, 10, 40)
        assert history.known_position("c", KEY) == 40

    def test_who_is_not_has_no_reason_to(self) -> None:
        history = History()
        history.may_be_deleted = lambda key: 10
        history.placed("c", KEY, 12)
        history.jumped("c", KEY, 10, 40)
        assert history.known_position("c", KEY) == 12

    def test_a_log_start_above_what_was_granted_is_a_loss(self) -> None:
        history = History()
        history.placed("c", KEY, 3)
        with pytest.raises(Violation, match="V14"):
            history.jumped("c", KEY, 10, 10)


class TestRows:
    def test_a_row_whose_copy_was_deleted_is_not_missed(self) -> None:
        history = History()
        history.transactions.planned(BATCH, 2)
        for row, offset in ((0, 4), (1, 5)):
            value = b"%d" % row
            history.began(Write(value, KEY, "w", True, 0, 0.0, transaction=Copy(BATCH, row, 1)))
            history.ended(value, Outcome.OK, 1.0, offset=offset)
        history.transactions.committed(BATCH, [1])
        history.placed("last", KEY, 6)
        history.check_end("last", {KEY: (6, 6)})
        with pytest.raises(Violation, match=r"rows \[1\]"):
            history.check_end("last", {KEY: (5, 6)})

    def test_but_for_a_copy_of_one_who_did_not_win(self) -> None:
        history = TransactionHistory()
        history.planned(BATCH, 1)
        history.committed(BATCH, [1])
        with pytest.raises(Violation, match=r"rows \[0\]"):
            history.check_end([], [Copy(BATCH, 0, 2)])


def test_seeds_that_trim_are_drawn_apart() -> None:
    assert 40 <= sum(Plan.draw(seed).trims_per_s > 0 for seed in range(200)) <= 80
