"""The judge of a member that leaves a group, on made-up readers of partitions: M4."""

from __future__ import annotations

import pytest

from tests.judges.groups import check_moved
from tests.judges.violation import Violation
from tests.rules import proves

pytestmark = proves("M4")

BEFORE = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}


def test_what_the_leaver_had_may_go_to_anybody() -> None:
    check_moved(BEFORE, BEFORE | {4: "a", 5: "b"}, "c")


def test_one_partition_of_each_other_member_may_move_too() -> None:
    check_moved(BEFORE, {0: "b", 1: "a", 2: "a", 3: "b", 4: "a", 5: "b"}, "c")


def test_two_partitions_of_a_member_that_stays_may_not() -> None:
    with pytest.raises(Violation, match=r"M4.*c left, and a lost partitions \[0, 1\]"):
        check_moved(BEFORE, {0: "b", 1: "b", 2: "b", 3: "a", 4: "a", 5: "a"}, "c")
