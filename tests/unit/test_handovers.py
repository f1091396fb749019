"""The sums of the benchmark T20-groups (benchmarks/handovers.py)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.handovers import (
    ROW,
    Rows,
    is_settled,
    longest_pauses_ms,
    moves,
    owners,
    twice_read_records,
    unread_records,
)

_MS = 1_000_000


def _rows(*rows: tuple[int, int, int, int, int]) -> Rows:
    """Member, partition, offset, sent and read in milliseconds."""
    return np.array([(member, at, offset, sent * _MS, read * _MS) for member, at, offset, sent, read in rows], ROW)


def test_the_last_reader_of_a_partition_is_its_owner() -> None:
    rows = _rows((1, 0, 5, 10, 11), (2, 0, 6, 20, 21), (1, 1, 5, 10, 12), (3, 1, 9, 90, 91))
    assert owners(rows, 0, 50 * _MS) == {0: 2, 1: 1}


def test_a_group_is_settled_when_each_partition_has_one_reader_and_members_have_equal_numbers_within_one() -> None:
    rows = _rows((1, 0, 0, 1, 2), (1, 1, 0, 1, 2), (2, 2, 0, 1, 2))
    assert is_settled(rows, 0, 5 * _MS, frozenset({1, 2}), 3)
    assert not is_settled(rows, 0, 5 * _MS, frozenset({1, 2, 3}), 3), "member 3 reads nothing"
    assert not is_settled(rows, 0, 5 * _MS, frozenset({1}), 3), "member 2 is to be gone"
    assert not is_settled(rows, 0, 5 * _MS, frozenset({1, 2}), 4), "nobody reads one partition"
    both = np.concatenate([rows, _rows((2, 1, 1, 3, 4))])
    assert not is_settled(both, 0, 5 * _MS, frozenset({1, 2}), 3), "partition 1 has two readers"


def test_members_that_are_more_than_partitions_read_one_or_none() -> None:
    assert is_settled(_rows((1, 0, 0, 1, 2)), 0, 5 * _MS, frozenset({1, 2}), 1)


def test_a_hand_over_lasts_from_the_event_to_the_first_record_of_the_new_owner() -> None:
    rows = _rows((1, 0, 0, 90, 95), (1, 0, 1, 190, 195), (2, 0, 2, 290, 310), (1, 1, 0, 150, 151), (1, 1, 1, 350, 391))
    result = moves(rows, 100 * _MS, 400 * _MS, {0: 1, 1: 1}, {0: 2, 1: 1}, interval_ms=0)
    assert result.handovers_s == [pytest.approx(0.21)]
    assert result.delay_ms == pytest.approx(41), "of the partition that did not move alone"
    assert result.pauses_ms == [pytest.approx(240)]
    assert result.details("join")["join_worst_s"] == pytest.approx(0.21)


def test_a_pause_is_what_the_longest_gap_is_longer_than_the_interval() -> None:
    rows = _rows((1, 0, 0, 10, 10), (1, 0, 1, 110, 160), (1, 0, 2, 210, 210), (1, 7, 0, 50, 50), (1, 7, 1, 150, 150))
    assert longest_pauses_ms(rows, 0, 250 * _MS, 100) == [pytest.approx(50), 0.0]


def test_records_that_nobody_read_are_counted_and_those_read_twice() -> None:
    rows = _rows((1, 0, 4, 1, 2), (1, 0, 5, 1, 2), (2, 0, 8, 1, 2), (2, 0, 5, 1, 3), (1, 1, 0, 1, 2))
    assert unread_records(rows) == 2
    assert twice_read_records(rows) == 1
