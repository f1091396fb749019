"""Which topics are read: names, assigned partitions, and Java's regular expressions."""

from __future__ import annotations

import re

import pytest

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.offsets import Partition
from pyspark_minilog.options.subscription import TopicFacts, exactly_one, python_pattern
from tests.rules import proves

pytestmark = proves("SPO.2")

FACTS = [
    TopicFacts("flights", "i1", 2),
    TopicFacts("flights-2024", "i2", 1),
    TopicFacts("weather", "i3", 3),
    TopicFacts("__transaction_state", "i4", 50, internal=True),
]


def test_subscribe_reads_all_partitions_of_the_named_topics() -> None:
    subscription = exactly_one({"subscribe": "weather, flights"})
    chosen = subscription.select(FACTS)
    assert list(chosen) == ["flights", "weather"]
    assert len(subscription.partitions(chosen)) == 5
    subscription.check_complete(chosen)


def test_a_named_topic_that_does_not_exist_is_refused() -> None:
    subscription = exactly_one({"subscribe": "flights,trains"})
    with pytest.raises(
        InvalidOption, match=r"option 'subscribe' is 'flights,trains': trains does not exist. Create it"
    ):
        subscription.check_complete(subscription.select(FACTS))


def test_assign_reads_the_named_partitions() -> None:
    subscription = exactly_one({"assign": '{"weather":[2,0]}'})
    chosen = subscription.select(FACTS)
    assert subscription.partitions(chosen) == [Partition("weather", 0), Partition("weather", 2)]
    subscription.check_complete(chosen)


def test_a_query_asks_for_what_its_options_name_whether_it_is_there_or_not() -> None:
    asked = {
        text: exactly_one({option: text}).asks_for(Partition("flights", 1))
        for option, text in (
            ("subscribe", "weather,flights"),
            ("subscribe", "weather"),
            ("assign", '{"flights":[1]}'),
            ("assign", '{"flights":[0]}'),
            ("subscribePattern", "fl.*"),
            ("subscribePattern", "fl"),
        )
    }
    assert list(asked.values()) == [True, False] * 3


def test_an_assigned_partition_that_does_not_exist_is_refused() -> None:
    subscription = exactly_one({"assign": '{"flights":[1,2]}'})
    with pytest.raises(InvalidOption, match="flights-2 does not exist"):
        subscription.check_complete(subscription.select(FACTS))


def test_a_pattern_matches_whole_names_and_never_internal_topics() -> None:
    assert list(exactly_one({"subscribePattern": "flights"}).select(FACTS)) == ["flights"]
    assert list(exactly_one({"subscribePattern": ".*"}).select(FACTS)) == ["flights", "flights-2024", "weather"]
    assert exactly_one({"subscribePattern": "trains"}).select(FACTS) == {}
    exactly_one({"subscribePattern": "trains"}).check_complete({})


@pytest.mark.parametrize(
    ("java", "matching", "other"),
    [
        (r"\Qa.b\E-\d+", "a.b-12", "axb-12"),
        (r"\Qa.b", "a.b", "axb"),
        (r"(?<name>ab)-\k<name>", "ab-ab", "ab-ba"),
        (r"(?<!x)a", "a", "b"),
        (r"\p{Alpha}+", "abC", "a1"),
        (r"\P{Alpha}+", "12", "a1"),
        (r"[\p{Lower}_]+", "a_b", "A_b"),
        (r"\pL\p{Digit}", "a1", "11"),
        (r"abc\z", "abc", "abcd"),
        (r"a++b", "aab", "ab+"),
        (r"[^]]a|[]b]", "xa", "a"),
        (r"[a\]]b", "]b", "b"),
        (r"(?i)FLIGHTS", "flights", "flight"),
    ],
)
def test_java_patterns_mean_what_they_mean_in_java(java: str, matching: str, other: str) -> None:
    pattern = re.compile(python_pattern(java), re.ASCII)
    assert pattern.fullmatch(matching)
    assert not pattern.fullmatch(other)


@pytest.mark.parametrize("java", ["[a-z&&[^b]]", "[a[bc]]", r"\p{InGreek}", r"[\P{Alpha}]", "(", "*a"])
def test_a_pattern_that_cannot_be_translated_is_refused_by_name(java: str) -> None:
    with pytest.raises(InvalidOption, match="option 'subscribePattern' is "):
        python_pattern(java)
