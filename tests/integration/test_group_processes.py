"""A group of real member processes through kills, stops and hangs of its own and of brokers (M1, M2, M5).

Short versions of `python -m tests.integration.kill_runs members`; and what their judge calls wrong.
"""

from __future__ import annotations

import math
import pathlib

import pytest

from tests.integration.member_history import MemberEvent, MemberJudgement, MemberStory, judge_members
from tests.integration.member_runs import MemberRunOptions, run_members
from tests.rules import proves

pytestmark = proves("M1", "M2", "M5")

UNTIL_S = 1000.0


@pytest.mark.long
@pytest.mark.timeout(240)
def test_each_record_has_one_member_at_a_time_whoever_is_killed_stopped_or_hangs(tmp_path: pathlib.Path) -> None:
    options = MemberRunOptions(15.0, members=8, seed=7, partitions=16, member_pause_s=0.7, broker_pause_s=6.0)
    outcome = run_members(options, tmp_path)
    assert outcome.wrong == []
    assert outcome.acknowledged > 500
    assert outcome.faults["kill"] + outcome.faults["stop"] + outcome.faults["hang"] > 0
    assert outcome.faults["coordinator killed"] + outcome.faults["broker killed"] > 0


@pytest.mark.long
@pytest.mark.timeout(240)
def test_no_record_comes_twice_while_members_only_come_and_leave(tmp_path: pathlib.Path) -> None:
    outcome = run_members(MemberRunOptions(15.0, members=8, seed=7, partitions=16, calm=True), tmp_path)
    assert outcome.wrong == []
    assert outcome.judgement.again == {}
    assert outcome.judgement.handed >= outcome.acknowledged > 500


def event(kind: str, time_s: float, first: int = 0, end: int = 0, *, until_s: float = UNTIL_S) -> MemberEvent:
    return MemberEvent(kind, time_s, until_s, time_s - 0.01, {0: (first, end)})


def story(name: str, *events: MemberEvent, **done: float) -> MemberStory:
    return MemberStory(name, list(events), died_s=done.get("died_s"))


def judged(*stories: MemberStory, acknowledged: int = 4, committed: int = 4) -> MemberJudgement:
    return judge_members(stories, {0: set(range(acknowledged))}, committed={0: committed}, quiet=(6.0, 6.5))


def commit(time_s: float, offset: int) -> list[MemberEvent]:
    return [event("commits", time_s, 0, offset), event("committed", time_s + 0.01, 0, offset)]


SECOND = [event("assigned", 4.0), event("handed", 5.0, 2, 4), *commit(5.1, 4), event("revoked", 7.0)]


class TestTheJudge:
    def test_a_member_that_is_fenced_while_it_gives_a_partition_back_held_it_until_then(self) -> None:
        refused = MemberEvent("refused", 4.5, UNTIL_S, 0.0, {0: (0, 2)}, "UnknownMemberId")
        begin = [event("assigned", 1.0), event("handed", 2.0, 0, 2), *commit(2.1, 2)]
        slow = [event("revoking", 3.0), event("commits", 3.1, 0, 2)]
        right = judged(story("a", *begin, *slow, refused, event("revoked", 4.6)), story("b", *SECOND))
        assert (right.wrong, right.overlaps) == ([], 0)
        greedy = judged(
            story("a", *begin, *slow, event("handed", 3.6, 2, 3), refused, event("revoked", 4.6)),
            story("b", *SECOND),
        )
        assert greedy.wrong, "it got a record after that"

    def test_a_partition_that_is_given_back_and_read_on_is_right(self) -> None:
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 2), *commit(2.1, 2), event("revoked", 3.0))
        found = judged(first, story("b", *SECOND))
        assert (found.wrong, found.handed, found.again, found.commits) == ([], 4, {}, 2)
        assert math.isclose(found.without_owner_s, 1.0)

    def test_two_owners_at_one_moment_are_wrong(self) -> None:
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 2), *commit(2.1, 2), event("revoked", 4.5))
        found = judged(first, story("b", *SECOND))
        assert found.overlaps == 1
        assert "b had it from 4.000, and a until 4.500" in found.wrong[0]

    def test_records_that_a_killed_member_had_not_committed_may_come_again(self) -> None:
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 3), *commit(2.1, 2), died_s=3.0)
        found = judged(first, story("b", *SECOND))
        assert (found.wrong, found.again) == ([], {"killed": 1})

    def test_a_committed_record_that_comes_again_is_wrong(self) -> None:
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 3), *commit(2.1, 3), event("revoked", 3.0))
        assert "got 2 again, and 3 was committed before" in judged(first, story("b", *SECOND)).wrong[0]

    def test_a_member_that_begins_behind_the_commits_has_skipped(self) -> None:
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 1), *commit(2.1, 1), event("revoked", 3.0))
        found = judged(first, story("b", *SECOND))
        assert any("began at 2, and nobody committed more than 1" in words for words in found.wrong)
        assert any("1 acknowledged records were handed to nobody, first 1" in words for words in found.wrong)

    def test_a_member_whose_session_was_over_holds_nothing(self) -> None:
        """It was stopped: its line comes late, and its own clock ended its time before."""
        lost = event("lost", 4.6, until_s=0.0)
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 2), *commit(2.1, 2), lost)
        for kept in first.events[:-1]:
            kept.until_s = 3.5
        assert judged(first, story("b", *SECOND)).wrong == []

    def test_a_member_that_is_fenced_between_two_samples_held_it_until_the_first_of_them(self) -> None:
        begin = [event("assigned", 1.0), event("handed", 2.0, 0, 2), *commit(2.1, 2)]
        for sample_s, overlaps in ((3.9, 0), (4.05, 1)):
            samples = [MemberEvent("sample", sample_s, UNTIL_S), MemberEvent("sample", 4.1, 0.0)]
            assert judged(story("a", *begin, *samples), story("b", *SECOND)).overlaps == overlaps

    def test_a_record_after_the_end_of_the_session_is_wrong(self) -> None:
        late = event("handed", 4.6, 2, 3, until_s=0.0)
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 2), *commit(2.1, 2), late)
        assert judged(first, story("b", *SECOND)).overlaps == 1

    def test_a_record_after_the_time_of_the_members_own_clock_is_wrong(self) -> None:
        late = event("handed", 2.0, 0, 4, until_s=1.5)
        first = story("a", event("assigned", 1.0), late, *commit(2.1, 4), event("revoked", 7.0))
        assert judged(first).wrong == ["a got records 0.490 s after its time by its own clock"]

    def test_a_partition_without_an_owner_in_the_quiet_time_is_wrong(self) -> None:
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 4), *commit(2.1, 4), event("revoked", 6.2))
        assert "had no owner 0.200 s into the quiet time" in judged(first).wrong[0]

    def test_a_commit_that_is_gone_is_wrong(self) -> None:
        first = story("a", event("assigned", 1.0), event("handed", 2.0, 0, 4), *commit(2.1, 4), event("revoked", 7.0))
        assert judged(first, committed=3).wrong == ["partition 0: a commit of 4 was acknowledged, and 3 stands"]
