"""What keeps an election from being won is said, and said once."""

from __future__ import annotations

from structlog.testing import capture_logs

from minilog.errors import InconsistentVoters
from minilog_broker.server.clients.quorum_peers import SILENT_VOTER_S, VoterNews


def words_of(news: VoterNews, asked_s: list[float]) -> list[str]:
    with capture_logs() as said:
        for now_s in asked_s:
            news.unanswered(3, "host:1", now_s)
    return [f"{each['voter']}: {each['event']}" for each in said]


def test_a_voter_that_is_silent_for_long_is_named_once() -> None:
    asked = [0.5 * number for number in range(100)]
    assert words_of(VoterNews(), asked) == [
        "3: a voter at host:1 does not answer: start it, or see whether it can be reached"
    ]


def test_a_short_silence_and_one_in_another_election_are_not_told() -> None:
    assert words_of(VoterNews(), [0.0, 1.0, 2.0, SILENT_VOTER_S - 0.1, 3600.0, 3601.0]) == []


def test_a_silence_after_an_answer_is_told_again() -> None:
    news = VoterNews()
    asked = [0.0, 2.0, 4.0, 6.0]
    assert len(words_of(news, asked)) == 1
    news.answered(3, None)
    assert len(words_of(news, [each + 10.0 for each in asked])) == 1


def test_a_refusal_is_told_once_with_its_words() -> None:
    news = VoterNews()
    with capture_logs() as said:
        for _ in range(3):
            news.answered(2, InconsistentVoters("started with voters [1, 2]"))
    assert [each["event"] for each in said] == ["a voter refuses this broker: started with voters [1, 2]"]
