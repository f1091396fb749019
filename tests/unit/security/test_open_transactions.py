"""Whose transactions are open, how many, and how old they are together."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from minilog_broker.security.open_transactions import OpenTransactions, excess

names = st.sampled_from([f"t{number}" for number in range(6)])
principals = st.sampled_from(["User:a", "User:b", "User:c"])


def test_ended_transactions_count_for_nobody() -> None:
    here = OpenTransactions()
    ages = {"one": 10.0, "two": 5.0}
    for name in ages:
        here.heard("User:a", name)
    assert here.ages_ms("User:a", ages.get) == ages
    del ages["one"]
    assert here.ages_ms("User:a", ages.get) == {"two": 5.0}
    assert len(here) == 1
    assert here.ages_ms("User:b", ages.get) == {}


def test_a_transaction_is_of_whoever_called_last() -> None:
    here = OpenTransactions()
    here.heard("User:a", "one")
    here.heard("User:b", "one")
    assert here.ages_ms("User:a", {"one": 1.0}.get) == {}
    assert here.ages_ms("User:b", {"one": 1.0}.get) == {"one": 1.0}


def test_the_one_heard_of_longest_ago_is_forgotten_first() -> None:
    here = OpenTransactions(max_owners=2)
    for name in ("one", "two", "one", "three"):
        here.heard("User:a", name)
    assert list(here.ages_ms("User:a", lambda name: 1.0)) == ["one", "three"]


def test_a_transaction_above_the_limit_is_refused() -> None:
    ages = {"one": 600.0, "two": 400.0}
    assert excess(ages, "three", None, None) is None
    assert excess(ages, "three", 3, 1001) is None
    assert excess(ages, "two", 2, 1) is None, "it is open already"
    assert "2 transactions are open, and 2 are allowed" in str(excess(ages, "three", 2, None))
    assert "1000 ms old together, and 1000 ms are allowed" in str(excess(ages, "three", None, 1000))
    assert excess({}, "one", None, 1) is None
    assert "and 0 are allowed" in str(excess({}, "one", 0, None)), "nothing at a time is a ban"


@given(st.lists(st.tuples(principals, names)), st.sets(names))
def test_counts_are_those_of_a_map_of_last_callers(calls: list[tuple[str, str]], still_open: set[str]) -> None:
    here, owners = OpenTransactions(), dict[str, str]()
    for principal, name in calls:
        here.heard(principal, name)
        owners[name] = principal
    for principal in ("User:a", "User:b", "User:c"):
        found = here.ages_ms(principal, lambda name: 1.0 if name in still_open else None)
        assert set(found) == {name for name, owner in owners.items() if owner == principal and name in still_open}
    assert len(here) == len(set(owners) & still_open)
