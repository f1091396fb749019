"""The judges of fencing, of who wins and of what a disk keeps are judged: they find what is there, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from minilog_broker.coordinators.transactions.records import Fate, TransactionKey, TransactionProducer
from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.invariants.fencing import Fencing
from tests.simulation.invariants.mirror import Committed, Mirror
from tests.simulation.invariants.registrations import Registrations
from tests.simulation.invariants.violation import Violation
from tests.simulation.transaction_history import Generation, TransactionHistory

KEY = PartitionKey(bytes(16), 0)
TENURE = (1, 5)


@dataclass
class _Broker:
    broker_id: int
    broker_epoch: int
    fenced: bool


@dataclass
class _Image:
    brokers: dict[int, _Broker] = field(default_factory=dict)


class TestFencing:
    """Time-out 1,000 ms; broker 2 in life 7 is fenced after so much of silence."""

    def look(self, judge: Fencing, now_ms: float, *, fenced: bool = False) -> None:
        judge.check(TENURE, _Image({2: _Broker(2, 7, fenced)}), {2: 7}, now_ms)  # type: ignore[arg-type]

    def heard(self) -> Fencing:
        judge = Fencing(1_000.0)
        self.look(judge, 0.0)
        judge.heard(TENURE, 2, 7, 500.0)
        return judge

    def test_silence_of_a_time_out_fences(self) -> None:
        self.look(self.heard(), 1_500.0, fenced=True)

    def test_less_does_not(self) -> None:
        with pytest.raises(Violation, match="for 700 ms of silence"):
            self.look(self.heard(), 1_200.0, fenced=True)

    def test_nor_does_what_the_controller_stood_still_itself_however_long_that_is_ago(self) -> None:
        judge = self.heard()
        judge.saw(1, True, 600.0)
        judge.saw(1, False, 3_600.0)
        with pytest.raises(Violation, match="for 800 ms of silence"):
            self.look(judge, 4_300.0, fenced=True)
        self.look(self.heard(), 4_600.0, fenced=True)

    def test_a_new_controller_begins_anew(self) -> None:
        judge = self.heard()
        judge.check((1, 6), _Image({2: _Broker(2, 7, False)}), {2: 7}, 2_000.0)  # type: ignore[arg-type]
        with pytest.raises(Violation, match="for 500 ms of silence"):
            judge.check((1, 6), _Image({2: _Broker(2, 7, True)}), {2: 7}, 2_500.0)  # type: ignore[arg-type]

    def test_who_is_dead_or_lives_anew_is_fenced_at_once(self) -> None:
        for alive in ({2: 8}, {}):
            self.heard().check(TENURE, _Image({2: _Broker(2, 7, True)}), alive, 600.0)  # type: ignore[arg-type]


class TestWinners:
    def commit(self, judge: Registrations, *producers: int, end: int) -> None:
        state = {TransactionKey("q", each): TransactionProducer(3, b"a", 0, Fate.COMMITTING) for each in producers}
        judge.look(1, KEY, end, lambda: state)

    def test_all_who_win_were_named_by_one_request(self) -> None:
        history = TransactionHistory()
        judge = Registrations(history.may_win)
        history.asked(Generation("q", 3), [1, 2])
        history.asked(Generation("q", 3), [3])
        self.commit(judge, 1, end=1)
        self.commit(judge, 1, 2, end=2)
        with pytest.raises(Violation, match="no request named all"):
            self.commit(judge, 3, end=3)

    def test_nobody_wins_whom_nobody_named(self) -> None:
        history = TransactionHistory()
        history.asked(Generation("q", 2), [1])
        with pytest.raises(Violation, match="no request named all"):
            self.commit(Registrations(history.may_win), 1, end=1)


def test_a_disk_keeps_what_was_synced_whatever_the_policy_and_a_kernel_what_was_written() -> None:
    mirror = Mirror(1, KEY, Committed())
    mirror.durable_end, mirror.synced_end = 10, 6
    mirror.died()
    assert mirror.kept_end == 10
    mirror.died(power=True)
    assert mirror.kept_end == 6
