"""V12: committed entries are on a majority of voters' disks, and an entry of the leader's own epoch is among them."""

from __future__ import annotations

import itertools

import pytest

from minilog_broker.quorum.commit import committed_end, majority_commit
from tests.rules import proves

pytestmark = proves("MD.5")


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_the_commit_end_is_the_largest_that_a_majority_has(voters: int) -> None:
    for ends in itertools.product(range(4), repeat=voters):
        end = majority_commit(ends)
        assert sum(each >= end for each in ends) > voters // 2
        assert sum(each > end for each in ends) <= voters // 2


def test_a_single_voter_is_its_own_majority() -> None:
    assert majority_commit([7]) == 7


def test_no_voter_is_no_quorum() -> None:
    with pytest.raises(ValueError, match="at least one voter"):
        majority_commit([])


def test_nothing_is_committed_by_counting_before_an_entry_of_the_own_epoch_is() -> None:
    assert committed_end([[10, 10, 4]], epoch_start_offset=10, committed=3) == 3
    assert committed_end([[11, 11, 4]], epoch_start_offset=10, committed=3) == 11


def test_the_commit_end_never_goes_back() -> None:
    assert committed_end([[12, 0, 0]], epoch_start_offset=10, committed=11) == 11


def test_while_a_voter_is_replaced_both_sets_need_their_majority() -> None:
    assert committed_end([[12, 12, 0], [11, 12, 0]], epoch_start_offset=10, committed=3) == 11
    assert committed_end([[12, 12, 0], [12, 0, 0]], epoch_start_offset=10, committed=3) == 3
