"""Failed logins slow down the address that they come from, and no other. Guesses at a name have a limit."""

from __future__ import annotations

from minilog_tools.console.attempts import (
    FIRST_S,
    FORGOTTEN_S,
    LONGEST_S,
    MOST_ADDRESSES,
    NAME_GUESSES,
    NAME_SLOTS,
    LoginAttempts,
)


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
    attempts.succeeded("a", "alice", 0.0)
    assert attempts.wait_s("a", 0.0) == 0.0
    attempts.failed("a", 0.0)
    attempts.failed("a", FORGOTTEN_S)
    assert attempts.wait_s("a", FORGOTTEN_S) == FIRST_S


def test_guesses_at_one_name_have_a_limit_however_many_come_at_once() -> None:
    attempts = LoginAttempts()
    assert [attempts.begin_guess("alice", 0.0) for _ in range(NAME_GUESSES)] == [0.0] * NAME_GUESSES
    assert attempts.begin_guess("alice", 0.0) == 60.0 / NAME_GUESSES
    assert attempts.begin_guess("alice", 60.0 / NAME_GUESSES) == 0.0, "one more place each few seconds"
    assert attempts.begin_guess("alice", 60.0 / NAME_GUESSES) > 0


def test_logins_under_other_names_lift_no_limit() -> None:
    """Only the success of an attempt gives its own place back."""
    attempts = LoginAttempts()
    others = [name for name in map(str, range(99)) if hash(name) % NAME_SLOTS != hash("alice") % NAME_SLOTS]
    for _ in range(NAME_GUESSES):
        attempts.begin_guess("alice", 0.0)
    for name in others * 50:
        attempts.begin_guess(name, 0.0)
        attempts.succeeded("a", name, 0.0)
    assert attempts.begin_guess("alice", 0.0) > 0
    for _ in range(99):
        assert attempts.begin_guess(others[0], 0.0) == 0.0
        attempts.succeeded("a", others[0], 0.0)


def test_addresses_that_are_made_up_take_bounded_memory() -> None:
    attempts = LoginAttempts()
    for number in range(2 * MOST_ADDRESSES):
        attempts.failed(str(number), 0.0)
    assert attempts.wait_s("0", 0.0) == 0.0
    assert sum(attempts.wait_s(str(number), 0.0) > 0 for number in range(2 * MOST_ADDRESSES)) == MOST_ADDRESSES
