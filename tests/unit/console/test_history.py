"""Numbers over time: a rate counts the partitions that both looks have."""

from __future__ import annotations

from minilog_tools.console.history import MOST_POINTS, MOST_SERIES, History
from tests.rules import proves


def test_a_rate_is_what_was_written_between_two_looks() -> None:
    history = History()
    history.add_ends("flights", 100.0, {("id", 0): 10, ("id", 1): 20})
    assert history.series("flights").values == []
    history.add_ends("flights", 102.0, {("id", 0): 30, ("id", 1): 20})
    assert history.series("flights").values == [10.0]
    assert history.series("flights").times_s == [102.0]


def test_a_partition_that_is_new_or_was_made_again_counts_from_the_next_look() -> None:
    history = History()
    history.add_ends("flights", 0.0, {("id", 0): 1000})
    history.add_ends("flights", 1.0, {("another", 0): 5000, ("id", 0): 10})
    history.add_ends("flights", 2.0, {("another", 0): 5007, ("id", 0): 11})
    assert history.series("flights").values == [0.0, 8.0]


def test_a_clock_that_goes_back_makes_no_rate() -> None:
    history = History()
    history.add_ends("flights", 10.0, {("id", 0): 1})
    history.add_ends("flights", 9.0, {("id", 0): 5})
    assert history.series("flights").values == []


@proves("CON.8")
def test_a_history_has_a_bound_in_length_and_number() -> None:
    history = History()
    for number in range(2 * MOST_POINTS):
        history.add("report", float(number), number)
    assert len(history.series("report").values) == MOST_POINTS
    assert history.series("report").last == 2 * MOST_POINTS - 1
    for number in range(MOST_SERIES):
        history.add(number, 0.0, 1.0)
    assert history.series("report").last is None
    assert history.series(0).last == 1.0
