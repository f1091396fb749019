"""Each judge finds the fault that is planted in what a world shows it, and names the rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from minilog.partition_key import PartitionKey
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState
from tests.judges.partition import Known, Led, Log, Sequences, check_copy, check_led, judge
from tests.judges.quorum import (
    NOBODY,
    Holders,
    Leaders,
    OneLog,
    Stored,
    Votes,
    check_entered,
    check_heard,
    check_held,
    check_leader,
    check_not_deposed,
)
from tests.judges.states import check_state
from tests.judges.violation import Violation

A, B, C = (1, "a"), (1, "b"), (2, "c")
STATE = PartitionState(PartitionKey(bytes(16), 0), "topic", (1, 2, 3), (1, 2), (), (), 1, 2, 7, 11)
FORMER = replace(STATE, partition_epoch=6)
LED = Led(1, 11, STATE, 1, 2, frozenset({1, 2}), frozenset({1, 2, 3}), True)


@dataclass
class CopyAsGiven:
    log: Log = (A, B)
    ends: tuple[int, int, int, int] = (0, 1, 2, 2)
    epochs: tuple[tuple[int, int], ...] = ((1, 0),)

    def below(self, offset: int) -> Log:
        return self.log[:offset]


@dataclass
class PartitionAsGiven:
    """Three copies with two entries, one of them committed. Broker 1 leads."""

    copies: dict[int, CopyAsGiven] = field(default_factory=lambda: {number: CopyAsGiven() for number in (1, 2, 3)})
    led: Led = LED
    before: Led = LED
    state: PartitionState = STATE
    former: PartitionState = FORMER
    known: Known = field(default_factory=lambda: Known((A,), ((2, 1),)))

    def judged(self) -> Known:
        for number, copy in self.copies.items():
            check_copy(number, copy)
        check_led(self.before, self.led)
        check_state("topic-0", self.state, self.former)
        return judge(self.copies, [self.led], self.state, self.known)


def state(**changes: Any) -> Callable[[PartitionAsGiven], None]:
    return lambda given: setattr(given, "state", replace(STATE, **changes))


def led(**changes: Any) -> Callable[[PartitionAsGiven], None]:
    return lambda given: setattr(given, "led", LED._replace(**changes))


def copy(number: int, **changes: Any) -> Callable[[PartitionAsGiven], None]:
    return lambda given: given.copies.update({number: CopyAsGiven(**changes)})


def known(*committed: Any, answered: tuple[int, int] = (2, 1)) -> Callable[[PartitionAsGiven], None]:
    return lambda given: setattr(given, "known", Known(committed, (answered,)))


PLANTED: dict[str, tuple[Any, ...]] = {  # the rule, and what is planted
    "a high watermark above what is durable": ("V1", copy(3, ends=(0, 2, 1, 2))),
    "another entry is committed than before": ("V2", known(C), led(high_watermark=2)),
    "an epoch goes back along a log": ("V3", copy(3, log=(A, C, A), ends=(0, 1, 3, 3))),
    "an epoch begins where another began": ("V3", copy(3, epochs=((1, 0), (2, 0)))),
    "an empty ISR": ("V4", state(in_sync_replicas=(), leader_id=NO_LEADER)),
    "a leader beside its ISR": ("V4", state(in_sync_replicas=(2, 3))),
    "a member that is no replica": ("V4", state(in_sync_replicas=(1, 4))),
    "a leader that leaves itself out": ("V4", led(proposed=frozenset({2, 3}))),
    "a member without what is committed": ("V5", copy(2, log=(), ends=(0, 0, 0, 0))),
    "a member whose copy is not durable": ("V5", copy(2, ends=(0, 0, 0, 2))),
    "an eligible leader with another entry": ("V5", state(eligible_leaders=(3,)), copy(3, log=(C,), ends=(0, 0, 1, 1))),
    "a damaged leader": ("V5", state(in_sync_replicas=(1,), damaged_replicas=(1,))),
    "a damaged eligible leader": ("V6", state(eligible_leaders=(3,), damaged_replicas=(3,))),
    "a leader that was neither in sync nor eligible": (
        "V6",
        state(in_sync_replicas=(1,)),
        lambda given: setattr(given, "former", replace(FORMER, in_sync_replicas=(2, 3), leader_id=2, leader_epoch=1)),
    ),
    "a high watermark that goes back": ("V8", led(high_watermark=0)),
    "a latest offset below that of an earlier epoch": ("V8", known(A, answered=(1, 2))),
    "a copy that differs below its high watermark": ("V9", copy(3, log=(C, C))),
    "a leader that does not count a member": ("V10", led(counted=frozenset({1}))),
    "a partition epoch that stands still": ("V10", state(partition_epoch=6)),
    "a leader epoch of two lives": ("V17", state(leader_broker_epoch=12)),
    "a leader epoch of two brokers": ("V17", led(broker_id=2, state=replace(STATE, leader_id=2))),
    "a leader in another life": ("V17", led(life=12)),
    "a high watermark that moves below min": (
        "V18",
        led(state=replace(STATE, in_sync_replicas=(1,)), high_watermark=2),
    ),
}


def test_a_partition_that_keeps_the_rules_is_left_in_peace_and_what_is_committed_grows() -> None:
    given = PartitionAsGiven(led=LED._replace(high_watermark=2))
    assert given.judged() == Known((A, B), ((2, 2),))


@pytest.mark.parametrize("fault", PLANTED)
def test_a_judge_of_a_partition_finds_the_planted_fault(fault: str) -> None:
    rule, *planted = PLANTED[fault]
    given = PartitionAsGiven()
    for plant in planted:
        plant(given)
    with pytest.raises(Violation) as found:
        given.judged()
    assert found.value.rule == rule


def test_a_sequence_that_is_committed_twice_is_found() -> None:
    sequences = Sequences()
    sequences.committed((7, 0, 1), 5)
    sequences.committed((7, 0, 1), 5)
    with pytest.raises(Violation, match="V14"):
        sequences.committed((7, 0, 1), 6)


def test_a_voter_that_goes_back_or_votes_twice_in_an_epoch_is_found() -> None:
    votes = Votes()
    votes.epoch(1, "disk", 5)
    votes.vote(1, "disk", 5, NOBODY)
    votes.vote(1, "disk", 5, 2)
    votes.vote(1, "another disk", 5, 3)
    with pytest.raises(Violation, match="V11: b1 votes for b2 and for b3"):
        votes.vote(1, "disk", 5, 3)
    with pytest.raises(Violation, match="V11: b1 is in epoch 4"):
        votes.epoch(1, "disk", 4)


def test_answers_of_a_node_before_it_was_a_voter_count() -> None:
    votes = Votes()
    votes.epoch(1, "disk", 6, is_voter=False)
    votes.epoch(1, "disk", 5, is_voter=False)
    with pytest.raises(Violation, match="V11: b1 is in epoch 5, and was in 6"):
        votes.epoch(1, "disk", 5)


def leads_twice() -> None:
    leaders = Leaders()
    assert leaders.leads(1, 1, 5, 5)
    assert not leaders.leads(1, 1, 5, 5)
    leaders.leads(1, 2, 5, 5)


def told(number: int, end: int, lacks: int | None, *own: int) -> OneLog[int]:
    """A log whose entries are their ends, 1 and 2 of them committed."""
    log = OneLog[int](lambda entry: entry, (1, 2))
    assert list(log.told(number, end, lacks, own)) == list(own)
    return log


HEARD, NOT_HEARD = Holders((1, 2, 3), (1, 3)), Holders((1, 2, 3), (1,))
OF_THE_QUORUM: dict[str, tuple[str, Callable[[], object]]] = {
    "a leader in two lives": ("V11: life 2 of b1 leads", leads_twice),
    "a leader whose epoch is on no disk": ("V11", lambda: Leaders().leads(1, 1, 5, 4)),
    "an answer above what is stored": ("V11", lambda: Votes().answered(1, "disk", 5, Stored(4, NOBODY, 3))),
    "a vote that is not stored": ("V11", lambda: Votes().answered(1, "disk", 5, Stored(5, 3), granted_to=2)),
    "a log that differs": ("V12", lambda: told(1, 3, 1, 3)),
    "a log that is shorter than what it tells": ("V12", lambda: told(1, 4, None, 3)),
    "entries that no majority has": ("V12", lambda: check_held(2, [NOT_HEARD, Holders((1, 2), (2,))])),
    "a commit by counting": ("V12", lambda: check_entered(1, 2, 5, is_entered=False)),
    "a leader that lacks an entry": ("V12", lambda: check_leader(1, 5, 0)),
    "a leader that was heard and leads no more": ("V20", lambda: check_not_deposed(1, 5, HEARD, "b2 leads")),
    "a leader that hears nobody": ("V21", lambda: check_heard(1, 5, 2.1, 2.0)),
}


@pytest.mark.parametrize("fault", OF_THE_QUORUM)
def test_a_judge_of_the_quorum_finds_the_planted_fault(fault: str) -> None:
    rule, judged = OF_THE_QUORUM[fault]
    with pytest.raises(Violation, match=rule):
        judged()


def test_a_quorum_that_keeps_the_rules_is_left_in_peace() -> None:
    Votes().answered(1, "disk", 5, Stored(4, 3, 5))
    Votes().answered(1, "disk", 5, Stored(5, 2), granted_to=2)
    assert told(1, 3, None, 3).end == 3
    check_held(2, [NOT_HEARD, HEARD])
    check_entered(1, 2, 5, is_entered=True)
    check_leader(1, 5, None)
    check_not_deposed(1, 5, NOT_HEARD, "b2 leads")
    check_heard(1, 5, 2.0, 2.0)
