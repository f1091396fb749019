"""Which copy differs (docs/spec/replication.md § Scrub)."""

from __future__ import annotations

import pytest

from minilog_broker.replication.rules.scrub import Comparison, compare_copies
from tests.rules import proves

pytestmark = proves("DK.4")

NOTHING, UNDECIDED = Comparison(), Comparison(is_undecided=True)


@pytest.mark.parametrize(
    ("copies", "replicas", "expected"),
    [
        ("", 3, NOTHING),
        ("a", 3, NOTHING),
        ("aa", 3, NOTHING),
        ("aaa", 3, NOTHING),
        ("aab", 3, Comparison((3,))),
        ("baa", 3, Comparison((1,))),
        ("ab", 2, UNDECIDED),
        ("ab", 3, UNDECIDED),  # the third may decide when it is back
        ("abc", 3, UNDECIDED),
        ("aab", 4, UNDECIDED),  # two of four are no majority, whatever the fourth has
        ("aabb", 4, UNDECIDED),
        ("aaab", 4, Comparison((4,))),
        ("aabbb", 5, Comparison((1, 2))),
        ("aaabc", 5, Comparison((4, 5))),
        ("aab", 5, UNDECIDED),
    ],
)
def test_a_copy_is_set_aside_by_a_majority_of_all_replicas_alone(
    copies: str, replicas: int, expected: Comparison
) -> None:
    digests = {broker_id: copy.encode() for broker_id, copy in enumerate(copies, start=1)}
    assert compare_copies(digests, replicas) == expected


def test_a_majority_is_left_whatever_is_set_aside() -> None:
    for replicas in range(1, 6):
        for number in range(3**replicas):
            digests = {
                broker_id: bytes([number // 3**broker_id % 3])
                for broker_id in range(replicas)
                if number // 3**broker_id % 3
            }
            gone = compare_copies(digests, replicas).differing
            left = {digests[broker_id] for broker_id in digests.keys() - gone}
            assert not gone or (len(left) == 1 and 2 * len(digests.keys() - gone) > replicas)
