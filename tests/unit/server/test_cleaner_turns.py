"""Whose turn it is with the cleaner's thread (server/shells/cleaner_turns.py)."""

from __future__ import annotations

from minilog.partition_key import PartitionKey
from minilog_broker.server.shells.cleaner_turns import MOST_WAITING, CleanerTurns

INTERNAL, OTHERS = PartitionKey(b"__", 0), [PartitionKey(b"t", number) for number in range(5)]


def turns() -> CleanerTurns[str]:
    return CleanerTurns(lambda topic_id: topic_id == b"__")


def order(of: CleanerTurns[str]) -> list[PartitionKey]:
    return of.in_order([*OTHERS, INTERNAL], key=lambda key: key)


def test_topics_of_the_cluster_itself_go_first_and_the_others_stay_in_order() -> None:
    assert order(turns()) == [INTERNAL, *OTHERS]


def test_a_copy_whose_time_is_over_goes_behind_those_that_had_no_turn() -> None:
    some = turns()
    some.pause(OTHERS[1], "one", 5.0)
    some.pause(OTHERS[0], "zero", 9.0)
    assert order(some) == [INTERNAL, *OTHERS[2:], OTHERS[1], OTHERS[0]]


def test_a_copy_goes_on_with_its_work() -> None:
    some = turns()
    assert some.pause(OTHERS[0], "zero", 5.0)
    assert some.has_paused
    assert some.take(OTHERS[0]) == "zero"
    assert some.take(OTHERS[0]) is None
    assert not some.has_paused


def test_few_copies_keep_their_tables_and_the_next_one_does_when_one_is_done() -> None:
    some = turns()
    kept = [some.pause(key, "work", 1.0) for key in OTHERS]
    assert kept == [True] * MOST_WAITING + [False] * (len(OTHERS) - MOST_WAITING)
    assert some.take(OTHERS[4]) is None  # it begins anew
    assert some.take(OTHERS[0]) == "work"  # it goes on, and is done
    assert some.pause(OTHERS[4], "work", 2.0)


def test_the_work_of_a_copy_that_is_not_due_any_more_is_given_up() -> None:
    some = turns()
    some.pause(OTHERS[0], "zero", 1.0)
    some.pause(OTHERS[1], "one", 1.0)
    assert some.forget_all_but([OTHERS[1]]) == ["zero"]
    assert some.take(OTHERS[1]) == "one"
