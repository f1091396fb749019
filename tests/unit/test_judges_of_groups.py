"""The judges of groups and queues find the fault that is planted in what a world shows them: M1 to M5, Q1 to Q8."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from minilog.partition_key import PartitionKey
from minilog.queues.message import Verdict
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog.v1 import queue_pb2
from tests.judges import groups, queues
from tests.judges.queue_log import QueuePartition, QueueRange
from tests.judges.violation import Violation
from tests.rules import proves

READY, LEASED = queue_pb2.RANGE_STATE_READY, queue_pb2.RANGE_STATE_LEASED
SETTLING, DEAD = queue_pb2.RANGE_STATE_SETTLING, queue_pb2.RANGE_STATE_DEAD
HELD = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
AT = (PartitionKey(b"t" * 16, 0), 7)
Judging = Callable[[], object]


@proves("M4")
@pytest.mark.parametrize(
    ("rule", "judged"),
    [
        ("M1", lambda: groups.holders_of([("a", {1, 2}), ("b", {2})])),
        ("M2", lambda: groups.check_owned(range(7), HELD, "5 s")),
        ("M3", lambda: groups.check_committer("a", 2, 9, HELD)),
        ("M3", lambda: groups.check_read("a", 0, 8, 9)),
        ("M4", lambda: groups.check_moved(HELD, {0: "b", 1: "b", 2: "b", 3: "a", 4: "a", 5: "a"}, "c")),
        ("M5", lambda: groups.check_handed({(0, 7)})),
        ("M5", lambda: groups.check_next("a", 0, 6, 6, [])),
        ("M5", lambda: groups.check_next("a", 0, 6, 9, [8])),
    ],
)
def test_a_fault_of_a_group_is_found(rule: str, judged: Judging) -> None:
    with pytest.raises(Violation, match=rule):
        judged()


@proves("M4")
def test_a_group_without_a_fault_is_found_right() -> None:
    assert groups.holders_of([("a", {1, 2}), ("b", {3})]) == {1: "a", 2: "a", 3: "b"}
    groups.check_owned(range(6), HELD, "5 s")
    groups.check_committer("a", 0, 9, HELD)
    groups.check_read("a", 0, 9, 9)
    groups.check_moved(HELD, HELD | {4: "a", 5: "b"}, "c")
    groups.check_moved(HELD, {0: "b", 1: "a", 2: "a", 3: "b", 4: "a", 5: "b"}, "c")
    groups.check_handed(())
    groups.check_next("a", 0, 6, 9, [])  # nobody was told that there are records between


# -- what workers are handed: one message, at 1 s first


class Handing:
    """`locks`: the workers whose locks last."""

    def __init__(self, limit: int = 9) -> None:
        self.deliveries = queues.Deliveries(limit)
        self.locks: set[str] = set()
        self.first = self.hand("a", 1.0)

    def hand(self, worker: str, now_s: float) -> queues.Delivery:
        delivery = queues.Delivery(worker, ("t0", 0, 7), now_s, lambda: worker in self.locks)
        self.deliveries.began(delivery)
        self.locks.add(worker)
        return delivery

    def settle(self, verdict: Verdict, delay_s: float = 0.0, *, is_confirmed: bool = True) -> None:
        self.deliveries.settled(self.first, verdict, delay_s, 2.0)
        if is_confirmed:
            self.deliveries.confirmed(self.first)


def test_a_message_comes_again_when_its_lock_has_ended_and_never_before() -> None:
    handing = Handing()
    with pytest.raises(Violation, match=r"Q1.*handed to b .* a .* has its lock"):
        handing.hand("b", 2.0)
    handing.locks.clear()
    handing.hand("b", 4.0)
    with pytest.raises(Violation, match=r"Q1.*a .* settles .* handed to b"):
        handing.settle(Verdict.ACCEPT)


@pytest.mark.parametrize("verdict", [Verdict.ACCEPT, Verdict.REJECT])
def test_a_message_comes_again_until_its_verdict_is_confirmed_and_never_after(verdict: Verdict) -> None:
    handing = Handing()
    handing.settle(verdict, is_confirmed=False)
    handing.hand("b", 3.0)
    with pytest.raises(Violation, match=r"Q2.*ed .* for sure, and handed to b"):
        handing.deliveries.confirmed(handing.first)
    handing = Handing()
    handing.settle(verdict)
    with pytest.raises(Violation, match="Q2"):
        handing.hand("a", 30.0)


def test_a_message_comes_after_its_delay_and_within_its_limit() -> None:
    handing = Handing(limit=2)
    handing.settle(Verdict.RELEASE, 1.5)
    with pytest.raises(Violation, match=r"Q3.*with a delay of 1.5 s"):
        handing.hand("b", 3.4)
    for now_s in (3.5, 5.0):
        handing.hand("c", now_s)
        handing.locks.clear()
    handing.deliveries.check_limit(lambda place: 1)
    with pytest.raises(Violation, match=r"Q3.*3 times, and the limit is 2"):
        handing.deliveries.check_limit(lambda place: 0)


def test_a_message_that_is_redriven_has_another_life() -> None:
    handing = Handing(limit=1)
    handing.settle(Verdict.REJECT)
    handing.deliveries.lives = lambda place: 1
    handing.hand("b", 3.0)
    handing.deliveries.check_limit(lambda place: 0)
    handing.deliveries.lives = lambda place: 0
    with pytest.raises(Violation, match="Q3"):
        handing.deliveries.check_limit(lambda place: 0)


# -- the coordinator's log


def state(next_offset: int, *ranges: tuple[int, int, int, int, int], epoch: int = 1) -> QueuePartition:
    """Ranges: first and last offset, state, lease, delivery count."""
    parts = [QueueRange(first, last, kind, count, lease_id) for first, last, kind, lease_id, count in ranges]
    return QueuePartition(next_offset, epoch, parts)


def dead(kind: queue_pb2.RangeState.ValueType, lease_id: int = 0, *, is_dead: bool = True) -> QueuePartition:
    return QueuePartition(1, 0, [QueueRange(0, 0, kind, 2, lease_id, b"bad" if is_dead else None)])


RIGHT: list[tuple[QueuePartition, QueuePartition, list[int]]] = [
    (state(0), state(3, (0, 2, LEASED, 5, 1)), []),
    (state(3, (0, 2, LEASED, 5, 1)), state(3, (2, 2, LEASED, 5, 1)), [0, 1]),
    (state(3, (0, 2, LEASED, 5, 1)), state(3, (0, 2, READY, 0, 1)), []),
    (state(3, (0, 2, READY, 0, 1)), state(4, (0, 1, LEASED, 6, 2), (2, 2, READY, 0, 1), (3, 3, LEASED, 6, 1)), []),
    (state(9, (2, 8, LEASED, 5, 1)), state(6, (2, 5, LEASED, 5, 1), epoch=2), []),
    (dead(DEAD), dead(LEASED, 3), []),
    (dead(LEASED, 3), dead(SETTLING, 3), []),
    (dead(SETTLING, 3), QueuePartition(1), [0]),
    (state(9), state(9, (4, 4, READY, 0, 0)), []),  # 4 is redriven
]
WRONG = [
    (state(3, (0, 2, LEASED, 5, 1)), state(3, (0, 2, LEASED, 6, 2)), "Q1.*from lease 5 to lease 6 at once"),
    (dead(SETTLING, 3), dead(LEASED, 4), "Q1"),
    (state(4, (0, 0, READY, 0, 1)), state(4, (0, 0, READY, 0, 1), (2, 2, READY, 0, 1)), "Q2.*offset 2 was settled"),
    (state(9), state(9, (4, 4, READY, 0, 3)), "Q2"),
    (state(3, (0, 2, LEASED, 5, 2)), state(3, (0, 2, READY, 0, 1)), "Q3.*not counted"),
    (state(3, (0, 2, READY, 0, 2)), state(3, (0, 2, LEASED, 6, 2)), "Q3.*not counted"),
    (state(3), state(4, (3, 3, LEASED, 6, 2)), "Q3.*not counted"),
    (state(3, (2, 2, LEASED, 5, 1)), state(3, (1, 2, LEASED, 5, 1)), "Q6"),
    (state(9, (2, 8, LEASED, 5, 1)), state(6, (2, 5, LEASED, 5, 1)), "Q6"),
    (state(9), state(9, (3, 3, READY, 0, 0)), "Q6"),
    (dead(LEASED, 3), dead(READY, is_dead=False), "Q7.*lives again"),
]


@pytest.mark.parametrize(("before", "after", "gone"), RIGHT)
def test_a_record_goes_from_lease_to_verdict_or_back(
    before: QueuePartition, after: QueuePartition, gone: list[int]
) -> None:
    found = queues.check_change(before, after, may_be_cut=True, again={4})
    assert [(each.offset, each.before) for each in found] == [(at, queues.held_in(before)[at]) for at in gone]


@pytest.mark.parametrize(("before", "after", "rule"), WRONG)
def test_a_record_goes_no_other_way(before: QueuePartition, after: QueuePartition, rule: str) -> None:
    with pytest.raises(Violation, match=rule):
        queues.check_change(before, after, may_be_cut=True, again={4})


def test_a_log_that_was_not_cut_does_not_cut_its_queue() -> None:
    with pytest.raises(Violation, match="Q6"):
        queues.check_change(state(9, (2, 8, LEASED, 5, 1)), state(6, epoch=2), may_be_cut=False)


# -- dead letters and redrives


def place_of(next_offset: int) -> tuple[records_pb2.QueueLogKey, bytes]:
    key = records_pb2.QueueLogKey(queue="jobs")
    key.letters_partition_id.topic_id = b"d" * 16
    return key, records_pb2.QueueRedriveRecord(next_offset=next_offset).SerializeToString()


def gone_back() -> None:
    redrives = queues.Redrives(lambda key, first, end: (), "jobs")
    for next_offset in (3, 3, 5, 4):
        assert redrives.passed([place_of(next_offset)]) == Counter()


def redriven(passed: int, ready: int) -> Counter[queues.RecordPlace]:
    redrives = queues.Redrives(lambda key, first, end: (), "jobs")
    redrives.check(Counter({AT: passed}), Counter({AT: ready}))
    return redrives.again


@pytest.mark.parametrize(
    ("rule", "judged"),
    [
        ("Q5.*more than one letter", lambda: queues.compare_letters([AT, AT], Counter([AT]))),
        ("Q5.*without a letter", lambda: queues.compare_letters([], Counter([AT]))),
        ("Q5.*are not settled", lambda: queues.compare_letters([AT], Counter())),
        ("Q5.*without a letter", lambda: queues.check_bare({AT}, {AT})),
        ("Q8.*were redriven to 5, and are to 4", gone_back),
        ("Q8.*no letter of it is redriven", lambda: redriven(0, 1)),
        ("Q8.*passed over, and the record stays settled", lambda: redriven(1, 0)),
    ],
)
def test_a_fault_of_dead_letters_is_found(rule: str, judged: Judging) -> None:
    with pytest.raises(Violation, match=rule):
        judged()


def test_dead_letters_without_a_fault_are_found_right() -> None:
    queues.compare_letters([AT], Counter([AT]))
    queues.check_bare({AT}, {(AT[0], 8)})  # a marker, say
    assert redriven(1, 1)[AT] == 1
