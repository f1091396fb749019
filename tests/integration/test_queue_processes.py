"""A queue of real worker processes through kills, stops and hangs of its own and of brokers (Q1, Q2, Q3).

A short version of `python -m tests.integration.kill_runs queues`; and what its judge calls wrong.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.integration.queue_history import MessageRow, QueueJudgement, WorkerEvent, WorkerStory, judge_queue
from tests.integration.queue_runs import QueueRunOptions, run_workers

LIMIT = 5


@pytest.mark.long
@pytest.mark.timeout(240)
def test_each_message_is_settled_once_whoever_is_killed_stopped_or_hangs(tmp_path: pathlib.Path) -> None:
    options = QueueRunOptions(20.0, workers=8, seed=7, partitions=4, worker_pause_s=0.7, broker_pause_s=6.0)
    outcome = run_workers(options, tmp_path)
    assert outcome.wrong == []
    assert outcome.acknowledged > 500
    assert outcome.judgement.verdicts["accept confirmed"] > 500
    assert outcome.faults["kill"] + outcome.faults["stop"] + outcome.faults["hang"] > 0
    assert outcome.faults["coordinator killed"] + outcome.faults["broker killed"] > 0


def event(kind: str, time_s: float, deliveries: int = 1, *, until_s: float, since_s: float = 0.0) -> WorkerEvent:
    return WorkerEvent(kind, time_s, since_s or time_s - 0.1, [MessageRow(0, 0, deliveries, until_s)])


def settled(verdict: str, time_s: float, outcome: str, deliveries: int = 1, *, until_s: float) -> list[WorkerEvent]:
    return [
        event(verdict, time_s, deliveries, until_s=until_s),
        event(outcome, time_s + 0.1, deliveries, until_s=until_s),
    ]


def story(name: str, *events: WorkerEvent) -> WorkerStory:
    return WorkerStory(name, list(events))


def judged(*stories: WorkerStory, letters: int = 0) -> QueueJudgement:
    of_record = {(0, 0): letters} if letters else {}
    return judge_queue(stories, {0: {0}}, of_record, delivery_count_limit=LIMIT)


ACCEPTED = story("b", event("handed", 20.0, 2, until_s=25.0), *settled("accept", 21.0, "confirmed", 2, until_s=25.0))


class TestTheJudge:
    def test_a_message_that_is_accepted_once_is_right(self) -> None:
        right = judged(story("a", event("handed", 1.0, until_s=6.0), *settled("accept", 2.0, "confirmed", until_s=6.0)))
        assert (right.wrong, right.handed, right.again, right.ends) == ([], 1, 0, {"accepted": 1})

    def test_messages_of_a_dead_worker_come_again_when_their_lock_has_ended(self) -> None:
        right = judged(story("a", event("handed", 1.0, until_s=6.0)), ACCEPTED)
        assert (right.wrong, right.again) == ([], 1)
        wrong = judged(story("a", event("handed", 16.0, until_s=21.0)), ACCEPTED)
        assert wrong.wrong == ["(0, 0), delivery 2 to b at 20.000: a had it until 21.000"]

    def test_a_released_message_may_come_again_at_once(self) -> None:
        first = [event("handed", 19.0, until_s=24.0), *settled("release", 19.5, "confirmed", until_s=24.0)]
        assert judged(story("a", *first), ACCEPTED).wrong == []

    def test_a_message_given_back_at_a_close_may_come_again_at_once(self) -> None:
        leaving = WorkerEvent("leaving", 19.5, 19.5)
        assert judged(story("a", event("handed", 19.0, until_s=24.0), leaving), ACCEPTED).wrong == []

    def test_a_renewed_lock_counts(self) -> None:
        first = [event("handed", 12.0, until_s=17.0), event("accept", 16.0, until_s=22.0)]
        assert "a had it until 22.000" in judged(story("a", *first), ACCEPTED).wrong[0]

    @pytest.mark.parametrize("verdict", ["accept", "reject"])
    def test_a_message_that_comes_again_after_its_confirmed_verdict_is_wrong(self, verdict: str) -> None:
        first = [event("handed", 1.0, until_s=6.0), *settled(verdict, 2.0, "confirmed", until_s=6.0)]
        assert "a had settled it, and that was confirmed" in judged(story("a", *first), ACCEPTED).wrong[0]

    def test_a_verdict_whose_outcome_is_unknown_may_have_settled_it_or_not(self) -> None:
        first = [event("handed", 1.0, until_s=6.0), *settled("accept", 2.0, "unsure", until_s=6.0)]
        assert judged(story("a", *first)).ends == {"accepted, perhaps": 1}
        assert judged(story("a", *first), ACCEPTED).wrong == []

    def test_a_delivery_to_two_workers_at_once_is_wrong(self) -> None:
        first = story("a", event("handed", 16.0, 2, until_s=21.0))
        assert judged(first, ACCEPTED).wrong == ["(0, 0), delivery 2 to b at 20.000: a had it until 21.000"]

    def test_a_lease_that_is_not_counted_gives_its_number_to_the_next(self) -> None:
        first = story("a", event("handed", 1.0, 2, until_s=6.0))
        assert judged(first, ACCEPTED).wrong == []

    def test_deliveries_that_are_numbered_backwards_are_wrong(self) -> None:
        first = story("a", event("handed", 30.0, 1, until_s=35.0))
        assert "a got the delivery before it later" in judged(first, ACCEPTED).wrong[0]

    def test_more_deliveries_than_the_limit_are_wrong(self) -> None:
        assert judged(story("a", event("handed", 1.0, LIMIT + 1, until_s=6.0))).wrong[0] == (
            "(0, 0) was delivered 6 times, and the limit is 5"
        )

    def test_a_hand_out_after_the_end_of_the_lock_is_wrong(self) -> None:
        late = event("handed", 21.0, 1, until_s=19.0, since_s=19.5)
        assert judged(story("a", late, *settled("accept", 21.0, "late", until_s=19.0))).wrong[0] == (
            "a got (0, 0) 0.500 s after the end of its lock, as delivery 1"
        )

    @pytest.mark.parametrize("outcome", ["late", "failed"])
    def test_a_lock_that_ends_early_is_wrong(self, outcome: str) -> None:
        early = story("a", event("handed", 1.0, until_s=6.0), *settled("accept", 4.9, outcome, until_s=0.0))
        assert judged(early, ACCEPTED).wrong == ["a lost (0, 0) 1.000 s before the end of its lock, as delivery 1"]
        in_time = story("a", event("handed", 1.0, until_s=6.0), *settled("accept", 6.5, outcome, until_s=0.0))
        assert judged(in_time, ACCEPTED).wrong == []

    def test_a_record_that_nobody_got_is_wrong(self) -> None:
        assert judged().wrong == ["the acknowledged record (0, 0) is handed to nobody"]

    @pytest.mark.parametrize(
        ("verdict", "outcome"), [("release", "confirmed"), ("accept", "late"), ("reject", "unsure")]
    )
    def test_a_record_that_is_not_accepted_is_lost_or_has_a_dead_letter(self, verdict: str, outcome: str) -> None:
        last = story("a", event("handed", 1.0, until_s=2.0), *settled(verdict, 2.0, outcome, until_s=2.0))
        assert judged(last).wrong == ["the acknowledged record (0, 0) is lost"]
        assert judged(last, letters=1).wrong == []
        assert judged(last, letters=2).wrong == ["(0, 0) has 2 dead letters"]

    def test_a_record_may_die_before_it_came_to_a_program(self) -> None:
        assert judged(letters=1).ends == {"dead": 1}

    def test_an_accepted_record_has_no_dead_letter(self) -> None:
        assert judged(ACCEPTED, letters=1).wrong == ["(0, 0) was settled by accept, and has 1 dead letters"]

    def test_a_rejected_record_has_a_dead_letter(self) -> None:
        rejected = [event("handed", 1.0, until_s=6.0), *settled("reject", 2.0, "confirmed", until_s=6.0)]
        assert judged(story("a", *rejected), letters=1).ends == {"rejected": 1}
        assert "was settled by reject, and has 0 dead letters" in judged(story("a", *rejected)).wrong[0]
