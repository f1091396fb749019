"""Failed logins slow down the address that they come from, and no other."""

from __future__ import annotations

from minilog_broker.console.attempts import FIRST_S, FORGOTTEN_S, LONGEST_S, MOST_ADDRESSES, LoginAttempts


def test_each_failure_doubles_the_wait_up_to_a_bound() -> None:
    attempts = LoginAttempts()
    waits = []
    for _ in range(10):
        attempts.failed("a", 0.0)
        waits.append(attempts.wait_s("a", 0.0))
    assert waits[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert waits[-1] == LONGEST_S
    assert attempts.wait_s("b", 0.0) == 0.0


def test_an_address_may_try_again_when_it_has_waited() -> None:
    attempts = LoginAttempts()
    attempts.failed("a", 0.0)
    assert attempts.wait_s("a", FIRST_S / 2) == FIRST_S / 2
    assert attempts.wait_s("a", FIRST_S) == 0.0


def test_a_login_that_succeeds_and_time_forgive() -> None:
    attempts = LoginAttempts()
    attempts.failed("a", 0.0)
    attempts.succeeded("a")
    assert attempts.wait_s("a", 0.0) == 0.0
    attempts.failed("a", 0.0)
    attempts.failed("a", FORGOTTEN_S)
    assert attempts.wait_s("a", FORGOTTEN_S) == FIRST_S


def test_addresses_that_are_made_up_take_bounded_memory() -> None:
    attempts = LoginAttempts()
    for number in range(2 * MOST_ADDRESSES):
        attempts.failed(str(number), 0.0)
    assert attempts.wait_s("0", 0.0) == 0.0
    assert sum(attempts.wait_s(str(number), 0.0) > 0 for number in range(2 * MOST_ADDRESSES)) == MOST_ADDRESSES
