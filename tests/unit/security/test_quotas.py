"""Quotas on a simulated clock: who stays below is never late, and who does not gets his rate."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog_broker.security.quotas import WINDOW_S, QuotaBucket, Quotas

RATE = 1_000.0
BURST = int(RATE * WINDOW_S)
BYTES, READ_BYTES = "producer_byte_rate", "consumer_byte_rate"


def owed_after(quota: QuotaBucket, amount: float, now_ms: float) -> int:
    quota.charge(amount, now_ms)
    return quota.owed_ms(now_ms)


def test_a_burst_of_a_window_passes_at_once_and_a_byte_more_is_owed() -> None:
    quota = QuotaBucket(RATE, 0)
    assert owed_after(quota, BURST, 0) == 0
    assert owed_after(quota, 1, 0) == 1


def test_a_debt_is_the_time_until_it_is_paid() -> None:
    quota = QuotaBucket(RATE, 0)
    assert owed_after(quota, BURST + 2_000, 0) == 2_000
    assert quota.owed_ms(500) == 1_500
    assert quota.owed_ms(2_000) == 0
    assert owed_after(quota, 1, 2_000) == 1


def test_a_bucket_fills_up_to_the_burst_and_no_further() -> None:
    quota = QuotaBucket(RATE, 0)
    quota.charge(BURST, 0)
    assert owed_after(quota, BURST + 1, 3_600_000) == 1


def test_a_given_back_amount_ends_the_debt_and_makes_no_larger_burst() -> None:
    quota = QuotaBucket(RATE, 0)
    quota.charge(BURST + 2_000, 0)
    quota.give_back(1_500)
    assert quota.owed_ms(0) == 500
    quota.give_back(10 * BURST)
    assert owed_after(quota, BURST + 1, 0) == 1


def test_a_caller_below_the_rate_is_never_late() -> None:
    quota = QuotaBucket(RATE, 0)
    assert sum(owed_after(quota, 100, at_ms) for at_ms in range(0, 600_000, 100)) == 0


def test_a_caller_that_waits_as_asked_gets_the_rate() -> None:
    quota, now_ms, sent = QuotaBucket(RATE, 0), 0, 0
    while now_ms < 600_000:
        sent += 700
        now_ms += owed_after(quota, 700, now_ms)
    assert sent <= BURST + RATE * now_ms / 1_000 + 700
    assert sent >= BURST + RATE * (now_ms - 2_000) / 1_000


def test_nothing_of_what_is_owed_is_given_away() -> None:
    """Once: a delay had a bound of ten seconds, whatever was owed."""
    quota = QuotaBucket(RATE, 0)
    assert owed_after(quota, BURST + 60_000, 0) == 60_000
    assert quota.owed_ms(55_000) == 5_000
    assert quota.owed_ms(60_000) == 0


def test_a_clock_that_is_set_back_gives_nothing_and_takes_nothing() -> None:
    quota = QuotaBucket(RATE, 100_000)
    quota.charge(BURST, 100_000)
    assert owed_after(quota, 100, 0) == 100
    assert quota.owed_ms(100_000) == 100
    assert quota.owed_ms(100_100) == 0


def test_requests_below_one_a_second_have_a_quota_too() -> None:
    quota = QuotaBucket(0.5, 0)
    assert [owed_after(quota, 1, 0) for _ in range(6)] == [0, 0, 0, 0, 0, 2_000]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="a second"):
        QuotaBucket(rate, 0)
    with pytest.raises(ValueError, match="window"):
        QuotaBucket(RATE, 0, rate if rate <= 0 else math.nan)


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf])
def test_an_amount_that_is_none_is_refused(amount: float) -> None:
    with pytest.raises(ValueError, match="cannot be charged"):
        QuotaBucket(RATE, 0).charge(amount, 0)


CHARGES = st.lists(st.tuples(st.integers(0, 20_000), st.integers(-50, 5_000)), max_size=40)


@settings(deadline=None)
@given(CHARGES, st.floats(0.5, 1e7))
def test_no_more_passes_than_burst_and_rate_allow(charges: list[tuple[int, int]], rate: float) -> None:
    """Whoever waits as told: what has passed by the time that he may go on is never above the line."""
    quota, now_ms, passed = QuotaBucket(rate, 0), 0, 0
    for amount, pause_ms in charges:
        passed += amount
        now_ms += owed_after(quota, amount, now_ms)
        assert passed <= rate * (WINDOW_S + now_ms / 1_000) * (1 + 1e-9) + 1e-6
        now_ms += max(0, pause_ms)


def owed(quotas: Quotas, principal: str, key: str, rate: float | None, amount: float) -> int:
    quotas.charge(principal, key, rate, amount, 0)
    return quotas.owed_ms(principal, key, rate, 0)


def test_principals_and_keys_have_buckets_of_their_own() -> None:
    quotas = Quotas()
    assert owed(quotas, "User:alice", BYTES, RATE, BURST + 10) == 10
    assert owed(quotas, "User:bob", BYTES, RATE, BURST) == 0
    assert owed(quotas, "User:alice", READ_BYTES, RATE, BURST) == 0
    assert owed(quotas, "User:alice", BYTES, RATE, 10) == 20


def test_without_a_rate_nothing_waits_and_nothing_is_kept() -> None:
    quotas = Quotas()
    assert owed(quotas, "User:alice", BYTES, None, 1e12) == 0
    assert len(quotas) == 0
    quotas.charge("User:alice", BYTES, RATE, 5 * BURST, 0)
    assert owed(quotas, "User:alice", BYTES, None, 1) == 0
    assert len(quotas) == 0


def test_a_rate_that_changes_counts_at_once_and_forgives_nothing() -> None:
    quotas = Quotas()
    assert owed(quotas, "User:alice", BYTES, RATE, BURST + 1_000) == 1_000
    assert owed(quotas, "User:alice", BYTES, 2 * RATE, 0) == 500
    fresh = Quotas()
    fresh.charge("User:alice", BYTES, RATE, 0, 0)
    assert owed(fresh, "User:alice", BYTES, RATE / 10, BURST / 10 + 1) == 10


def test_how_many_buckets_are_kept_is_bounded_and_who_asks_stays() -> None:
    quotas = Quotas(max_buckets=3)
    quotas.charge("User:alice", BYTES, RATE, BURST + 50, 0)
    for number in range(100):
        quotas.charge(f"User:{number}", BYTES, RATE, 1, 0)
        assert owed(quotas, "User:alice", BYTES, RATE, 0) == 50
        assert len(quotas) <= 3
    with pytest.raises(ValueError, match="too few"):
        Quotas(max_buckets=0)
