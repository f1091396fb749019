"""The judge of queues, on made-up deliveries and records: Q1, Q2, Q3, Q6, Q7, Q8."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from minilog.partition_key import PartitionKey
from minilog.queues.message import Verdict
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog.v1 import queue_pb2
from tests.judges.queue_log import QueuePartition, QueueRange
from tests.judges.queues import (
    Deliveries,
    Delivery,
    Gone,
    Held,
    Redrives,
    check_bare,
    check_change,
    compare_letters,
    revived,
    settled_to,
)
from tests.judges.violation import Violation

PLACE = ("t0", 0, 7)
READY, LEASED = queue_pb2.RANGE_STATE_READY, queue_pb2.RANGE_STATE_LEASED
SETTLING, DEAD = queue_pb2.RANGE_STATE_SETTLING, queue_pb2.RANGE_STATE_DEAD


class Handing:
    """One message that is handed out at times. `locks`: the workers whose locks last."""

    def __init__(self, limit: int = 9) -> None:
        self.deliveries = Deliveries(limit)
        self.locks: set[str] = set()

    def hand(self, worker: str, now_s: float) -> Delivery:
        delivery = Delivery(worker, PLACE, now_s, lambda: worker in self.locks)
        self.deliveries.began(delivery)
        self.locks.add(worker)
        return delivery

    def settle(self, delivery: Delivery, verdict: Verdict, now_s: float, delay_s: float = 0.0) -> None:
        self.deliveries.settled(delivery, verdict, delay_s, now_s)


def test_a_message_may_be_handed_out_again_when_its_lock_has_ended() -> None:
    handing = Handing()
    handing.hand("a", 1.0)
    handing.locks.clear()
    handing.hand("b", 4.0)


def test_and_not_before() -> None:
    handing = Handing()
    handing.hand("a", 1.0)
    with pytest.raises(Violation, match=r"Q1.*handed to b .* a .* has its lock"):
        handing.hand("b", 2.0)


def test_a_lock_that_lasts_longer_than_it_seemed_is_found_at_the_verdict() -> None:
    handing = Handing()
    first = handing.hand("a", 1.0)
    handing.locks.clear()
    handing.hand("b", 2.0)
    with pytest.raises(Violation, match=r"Q1.*a .* settles .* handed to b"):
        handing.settle(first, Verdict.ACCEPT, 3.0)


def test_what_is_accepted_may_come_again_until_that_is_confirmed() -> None:
    handing = Handing()
    first = handing.hand("a", 1.0)
    handing.settle(first, Verdict.ACCEPT, 2.0)
    handing.hand("b", 3.0)
    with pytest.raises(Violation, match=r"Q2.*accepted .* for sure, and handed to b"):
        handing.deliveries.confirmed(first)


@pytest.mark.parametrize("verdict", [Verdict.ACCEPT, Verdict.REJECT])
def test_and_never_after(verdict: Verdict) -> None:
    handing = Handing()
    first = handing.hand("a", 1.0)
    handing.settle(first, verdict, 2.0)
    handing.deliveries.confirmed(first)
    with pytest.raises(Violation, match="Q2"):
        handing.hand("a", 30.0)


def test_what_is_released_comes_again_after_its_delay() -> None:
    handing = Handing()
    first = handing.hand("a", 1.0)
    handing.settle(first, Verdict.RELEASE, 2.0, delay_s=1.5)
    handing.deliveries.confirmed(first)
    with pytest.raises(Violation, match=r"Q3.*with a delay of 1.5 s"):
        handing.hand("b", 3.4)
    handing.hand("c", 3.5)


def test_no_message_is_handed_out_more_often_than_the_limit_says() -> None:
    handing = Handing(limit=2)
    for now_s in (1.0, 2.0, 3.0):
        handing.hand("a", now_s)
        handing.locks.clear()
    handing.deliveries.check_limit(lambda place: 1)
    with pytest.raises(Violation, match=r"Q3.*3 times, and the limit is 2"):
        handing.deliveries.check_limit(lambda place: 0)


# -- records


def state(next_offset: int, *ranges: tuple[int, int, int, int, int], epoch: int = 1) -> QueuePartition:
    """Ranges: first and last offset, state, lease, delivery count."""
    parts = [QueueRange(first, last, kind, count, lease_id) for first, last, kind, lease_id, count in ranges]
    return QueuePartition(next_offset, epoch, parts)


def test_all_below_the_first_range_is_settled() -> None:
    assert settled_to(state(9)) == 9
    assert settled_to(state(9, (4, 4, READY, 0, 1))) == 4


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        (state(0), state(3, (0, 2, LEASED, 5, 1)), []),
        (state(3, (0, 2, LEASED, 5, 1)), state(3, (2, 2, LEASED, 5, 1)), [0, 1]),
        (state(3, (0, 2, LEASED, 5, 1)), state(3, (0, 2, READY, 0, 1)), []),
        (state(3, (0, 2, READY, 0, 1)), state(4, (0, 1, LEASED, 6, 2), (2, 2, READY, 0, 1), (3, 3, LEASED, 6, 1)), []),
        (state(9, (2, 8, LEASED, 5, 1)), state(6, (2, 5, LEASED, 5, 1), epoch=2), []),
    ],
)
def test_a_record_goes_from_lease_to_verdict_or_back(
    before: QueuePartition, after: QueuePartition, gone: list[int]
) -> None:
    assert [each.offset for each in check_change(before, after, may_be_cut=True)] == gone


def test_what_is_gone_is_told_with_what_it_was() -> None:
    gone = check_change(state(1, (0, 0, LEASED, 5, 3)), state(1), may_be_cut=False)
    assert gone == [Gone(0, Held(LEASED, 5, 3))]


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        (state(3, (0, 2, LEASED, 5, 1)), state(3, (0, 2, LEASED, 6, 2)), "Q1.*from lease 5 to lease 6 at once"),
        (state(3, (2, 2, LEASED, 5, 1)), state(3, (1, 2, LEASED, 5, 1)), "Q6"),
        (state(4, (0, 0, READY, 0, 1)), state(4, (0, 0, READY, 0, 1), (2, 2, READY, 0, 1)), "Q2.*offset 2 was settled"),
        (state(3, (0, 2, LEASED, 5, 2)), state(3, (0, 2, READY, 0, 1)), "Q3.*not counted"),
        (state(3, (0, 2, READY, 0, 2)), state(3, (0, 2, LEASED, 6, 2)), "Q3.*not counted"),
        (state(3), state(4, (3, 3, LEASED, 6, 2)), "Q3.*not counted"),
        (state(9, (2, 8, LEASED, 5, 1)), state(6, (2, 5, LEASED, 5, 1)), "Q6"),
    ],
)
def test_and_no_other_way(before: QueuePartition, after: QueuePartition, rule: str) -> None:
    with pytest.raises(Violation, match=rule):
        check_change(before, after, may_be_cut=True)


def test_a_log_that_was_not_cut_does_not_cut_its_queue() -> None:
    with pytest.raises(Violation, match="Q6"):
        check_change(state(9, (2, 8, LEASED, 5, 1)), state(6, (2, 5, LEASED, 5, 1), epoch=2), may_be_cut=False)


def dead_record(state: queue_pb2.RangeState.ValueType, *, is_dead: bool = True, lease_id: int = 0) -> QueuePartition:
    return QueuePartition(1, 0, [QueueRange(0, 0, state, 2, lease_id, b"bad" if is_dead else None)])


def test_a_dead_record_is_leased_to_a_carrier_settling_and_gone() -> None:
    states = [dead_record(DEAD), dead_record(LEASED, lease_id=3), dead_record(SETTLING, lease_id=3)]
    for before, after in itertools.pairwise(states):
        assert check_change(before, after, may_be_cut=False) == []
    gone = check_change(states[-1], QueuePartition(1), may_be_cut=False)
    assert gone == [Gone(0, Held(SETTLING, 3, 2, True))]


def test_the_dead_do_not_live_again() -> None:
    with pytest.raises(Violation, match=r"Q7.*lives again"):
        check_change(dead_record(LEASED, lease_id=3), dead_record(READY, is_dead=False), may_be_cut=False)


def test_a_settling_record_goes_to_no_other_lease() -> None:
    with pytest.raises(Violation, match=r"Q1"):
        check_change(dead_record(SETTLING, lease_id=3), dead_record(LEASED, lease_id=4), may_be_cut=False)


@pytest.mark.parametrize(
    ("letters", "carried", "fault"),
    [([1, 1], [1], "more than one letter"), ([1], [1, 2], "without a letter"), ([1, 2], [1], "are not settled")],
)
def test_letters_and_what_was_carried_are_compared(letters: list[int], carried: list[int], fault: str) -> None:
    key = PartitionKey(b"t" * 16, 0)
    compare_letters([(key, offset) for offset in carried], Counter((key, offset) for offset in carried))
    with pytest.raises(Violation, match=f"Q5.*{fault}"):
        compare_letters([(key, offset) for offset in letters], Counter((key, offset) for offset in carried))


def test_a_dead_record_is_not_accepted_without_a_letter() -> None:
    key = PartitionKey(b"t" * 16, 0)
    check_bare({(key, 1)}, {(key, 2)})  # a marker, say
    with pytest.raises(Violation, match=r"Q5.*without a letter"):
        check_bare({(key, 1), (key, 2)}, {(key, 2)})


# -- redrives


def test_a_settled_offset_is_ready_again_by_a_redrive_alone() -> None:
    before, after = state(9), state(9, (4, 4, READY, 0, 0))
    assert check_change(before, after, may_be_cut=False, again={4}) == []
    assert revived(before, after) == [4]
    with pytest.raises(Violation, match="Q6"):
        check_change(before, after, may_be_cut=False)
    with pytest.raises(Violation, match="Q6"):
        check_change(before, state(9, (3, 4, READY, 0, 0)), may_be_cut=False, again={4})
    below = state(9, (1, 1, READY, 0, 1))
    with pytest.raises(Violation, match="Q2"):
        check_change(below, state(9, (1, 1, READY, 0, 1), (4, 4, READY, 0, 0)), may_be_cut=False)


def test_and_then_its_deliveries_count_from_none() -> None:
    with pytest.raises(Violation, match="Q2"):
        check_change(state(9), state(9, (4, 4, READY, 0, 3)), may_be_cut=False, again={4})


def place_of(next_offset: int) -> tuple[records_pb2.QueueLogKey, bytes]:
    key = records_pb2.QueueLogKey(queue="jobs")
    key.letters_partition_id.topic_id = b"d" * 16
    return key, records_pb2.QueueRedriveRecord(next_offset=next_offset).SerializeToString()


def redrives() -> Redrives:
    """Without a dead-letter topic."""
    return Redrives(lambda key, first, end: (), "jobs")


def test_a_place_never_goes_back() -> None:
    judged = redrives()
    for next_offset in (3, 3, 5):
        assert judged.passed([place_of(next_offset)]) == Counter()
    with pytest.raises(Violation, match=r"Q8.*were redriven to 5, and are to 4"):
        judged.passed([place_of(4)])


def test_a_letter_makes_its_record_ready_once() -> None:
    judged, place = redrives(), (PartitionKey(b"t" * 16, 0), 7)
    judged.check(Counter([place]), Counter([place]))
    assert judged.again[place] == 1
    with pytest.raises(Violation, match=r"Q8.*no letter of it is redriven"):
        judged.check(Counter(), Counter([place]))
    with pytest.raises(Violation, match=r"Q8.*passed over, and the record stays settled"):
        judged.check(Counter([place]), Counter())


def test_a_message_that_is_redriven_has_another_life() -> None:
    handing = Handing(limit=1)
    first = handing.hand("a", 1.0)
    handing.settle(first, Verdict.REJECT, 2.0)
    handing.deliveries.confirmed(first)
    handing.deliveries.lives = lambda place: 1
    handing.hand("b", 3.0)
    handing.deliveries.check_limit(lambda place: 0)
    handing.deliveries.lives = lambda place: 0
    with pytest.raises(Violation, match="Q3"):
        handing.deliveries.check_limit(lambda place: 0)
