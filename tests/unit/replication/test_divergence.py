"""Whether a follower's log is a prefix of the leader's, and where it is cut: the seven shapes of divergence."""

from __future__ import annotations

import pytest

from minilog_broker.replication.rules.divergence import (
    Accepted,
    BelowLogStart,
    Diverged,
    LeaderEpochs,
    StartAnewAt,
    TruncateTo,
    compare_position,
    truncation,
)
from minilog_broker.storage.epoch_cache import EpochCache
from tests.rules import proves

Shape = list[tuple[int, int]]  # (epoch, records), from offset 0


def log(shape: Shape) -> list[int]:
    """The epoch of each record."""
    return [epoch for epoch, records in shape for _ in range(records)]


def cache(epochs: list[int]) -> EpochCache:
    starts = [(epoch, offset) for offset, epoch in enumerate(epochs) if offset == 0 or epochs[offset - 1] != epoch]
    return EpochCache(starts)


def converge(leader: list[int], follower: list[int]) -> tuple[list[int], int]:
    """Ask and truncate until accepted: (what is left of the follower, rounds)."""
    for rounds in range(1, 20):
        last_epoch = follower[-1] if follower else None
        verdict = compare_position(
            cache(leader), log_start=0, log_end=len(leader), fetch_offset=len(follower), last_fetched_epoch=last_epoch
        )
        if verdict == Accepted():
            return follower, rounds
        assert isinstance(verdict, Diverged)
        what = truncation(cache(follower), log_start=0, log_end=len(follower), diverged=verdict, leader_log_start=0)
        match what:
            case TruncateTo(end_offset=end):
                assert end < len(follower), "a round that cuts nothing"
                follower = follower[:end]
            case StartAnewAt():
                follower = []
    raise AssertionError("never accepted")


SHAPES: dict[str, tuple[Shape, Shape, int]] = {
    "behind in the same epoch": ([(1, 5)], [(1, 3)], 3),
    "behind in a later one": ([(1, 3), (2, 4)], [(1, 3)], 3),
    "ahead in the same": ([(1, 3)], [(1, 5)], 3),
    "ahead in a higher one": ([(1, 3)], [(1, 3), (2, 2)], 3),
    "forked on both sides": ([(1, 3), (3, 4)], [(1, 4), (2, 2)], 3),
    "forked where the leader extends an old epoch": ([(1, 6), (4, 1)], [(1, 3), (2, 2), (3, 1)], 3),
    "no common epoch": ([(5, 4)], [(1, 2), (3, 3)], 0),
}


@proves("SE.11")
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_ends_as_a_prefix_of_the_leader(name: str) -> None:
    leader, follower, common = SHAPES[name]
    left, _ = converge(log(leader), log(follower))
    assert left == log(leader)[: len(left)]
    assert len(left) == common


@proves("SE.11")
def test_any_two_logs_converge_within_a_round_per_epoch() -> None:
    import random

    rng = random.Random(7)
    for _ in range(3_000):
        history: list[list[int]] = [[], [], []]
        for epoch in range(6):  # an epoch has one leader, which extends its own log; others copy a prefix of it
            leads = rng.randrange(3)
            history[leads] = history[leads] + [epoch] * rng.randrange(4)
            for other in range(3):
                if other != leads and rng.random() < 0.5:
                    left, _ = converge(history[leads], history[other])
                    copied = rng.randrange(len(left), len(history[leads]) + 1)
                    history[other] = history[leads][:copied]
        left, rounds = converge(history[0], history[1])
        assert left == history[0][: len(left)]
        assert rounds <= len(set(history[1])) + 1


@proves("SE.7")
def test_an_offset_above_the_leaders_end_is_a_divergence() -> None:
    verdict = compare_position(cache([1, 1]), log_start=0, log_end=2, fetch_offset=3, last_fetched_epoch=1)
    assert verdict == Diverged(1, 2)


@proves("SE.6")
def test_a_position_below_the_log_start_starts_anew_there() -> None:
    verdict = compare_position(cache([1] * 9), log_start=4, log_end=9, fetch_offset=3, last_fetched_epoch=1)
    assert verdict == BelowLogStart(4)


def test_an_epoch_below_all_of_the_leaders_has_nothing_in_common_even_at_its_log_start() -> None:
    epochs = EpochCache([(5, 10)])
    verdict = compare_position(epochs, log_start=10, log_end=12, fetch_offset=10, last_fetched_epoch=3)
    assert verdict == Diverged(-1, 10)


def test_an_empty_log_is_a_prefix_of_any() -> None:
    assert compare_position(cache([1]), log_start=0, log_end=1, fetch_offset=0, last_fetched_epoch=None) == Accepted()


def test_an_empty_log_that_starts_above_the_leaders_end_starts_anew() -> None:
    verdict = compare_position(cache([1]), log_start=0, log_end=1, fetch_offset=7, last_fetched_epoch=None)
    assert verdict == Diverged(-1, 0)


def test_a_leaders_own_epoch_is_known_before_the_disk_has_recorded_it() -> None:
    epochs = LeaderEpochs(cache([1, 1, 1]), leader_epoch=4, start_offset=3)
    assert epochs.end_offset_for(4, 5) == (4, 5)
    assert epochs.end_offset_for(9, 5) == (4, 5)
    assert epochs.end_offset_for(3, 5) == (1, 3), "an older epoch ends where ours starts, whatever was appended since"


@proves("SE.9")
def test_truncation_is_the_minimum_of_the_three_ends() -> None:
    follower = cache([1, 1, 1, 2, 2])
    for told, end in ((Diverged(1, 2), 2), (Diverged(1, 9), 3), (Diverged(2, 9), 5)):
        what = truncation(follower, log_start=0, log_end=5, diverged=told, leader_log_start=0)
        assert what == TruncateTo(end)


@proves("SE.9")
def test_lacking_the_epoch_it_truncates_to_the_end_of_the_one_below() -> None:
    what = truncation(cache([1, 1, 3, 3]), log_start=0, log_end=4, diverged=Diverged(2, 9), leader_log_start=0)
    assert what == TruncateTo(2)


@proves("SE.10")
def test_a_follower_with_later_epochs_alone_keeps_its_log_start() -> None:
    """Its retention has deleted what it has in common with the leader (found by the simulator, seed 43000138)."""
    epochs = EpochCache([(4, 362), (6, 483)])
    what = truncation(epochs, log_start=362, log_end=549, diverged=Diverged(3, 458), leader_log_start=0)
    assert what == TruncateTo(362)


@proves("SE.10")
def test_a_follower_that_has_deleted_more_than_its_leader_has_starts_anew() -> None:
    """An unclean election: records below the follower's log start were committed, and the leader lacks them."""
    for log_start, epochs in ((362, EpochCache([(4, 362)])), (362, EpochCache([(3, 362), (4, 400)]))):
        what = truncation(epochs, log_start=log_start, log_end=549, diverged=Diverged(3, 361), leader_log_start=7)
        assert what == StartAnewAt(7)
