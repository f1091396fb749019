"""Logins of browsers: their lifetime, their number, and the token of forms."""

from __future__ import annotations

from minilog_tools.console.sessions import IDLE_S, LONGEST_S, MOST, MOST_OF_USER, Sessions, form_token, is_form_token
from tests.rules import proves


def test_a_session_is_found_by_its_token_alone() -> None:
    sessions: Sessions[str] = Sessions()
    assert sessions.begin("t", "alice", "view", 0.0) == []
    session = sessions.use("t", 1.0)
    assert session is not None
    assert (session.name, session.view) == ("alice", "view")
    assert sessions.use("u", 1.0) is None
    assert sessions.use("", 1.0) is None


def test_a_session_that_nobody_uses_ends() -> None:
    sessions: Sessions[str] = Sessions()
    sessions.begin("t", "alice", "view", 0.0)
    assert sessions.use("t", IDLE_S - 1) is not None
    assert sessions.use("t", 2 * IDLE_S - 2) is not None, "each use begins the time anew"
    assert sessions.use("t", 4 * IDLE_S) is None
    assert sessions.expire(4 * IDLE_S) == ["view"]
    assert sessions.views() == []


def test_a_session_ends_after_a_day_however_much_it_is_used() -> None:
    sessions: Sessions[str] = Sessions()
    sessions.begin("t", "alice", "view", 0.0)
    at_s = 0.0
    while at_s < LONGEST_S - IDLE_S / 2:
        at_s += IDLE_S / 2
        if at_s < LONGEST_S:
            assert sessions.use("t", at_s) is not None
    assert sessions.use("t", LONGEST_S) is None


@proves("CON.8")
def test_a_user_with_too_many_sessions_loses_the_one_of_his_that_was_used_least_recently() -> None:
    sessions: Sessions[str] = Sessions()
    sessions.begin("b", "bob", "view of bob", 0.0)
    for number in range(MOST_OF_USER):
        assert sessions.begin(f"t{number}", "alice", f"view {number}", 0.0) == []
    assert sessions.use("t0", 1.0) is not None
    assert sessions.begin("more", "alice", "one more", 2.0) == ["view 1"]
    assert sessions.use("b", 3.0) is not None, "one user's logins end no session of another"
    assert sessions.use("t0", 3.0) is not None


@proves("CON.8")
def test_the_user_with_the_most_sessions_makes_room_where_there_are_too_many() -> None:
    sessions: Sessions[str] = Sessions()
    sessions.begin("a0", "alice", "view 0", 0.0)
    sessions.begin("a1", "alice", "view 1", 0.0)
    for number in range(MOST - 2):
        assert sessions.begin(f"t{number}", f"user {number}", "view", 1.0) == []
    assert sessions.begin("more", "bob", "view of bob", 2.0) == ["view 0"]
    assert len(sessions.views()) == MOST


def test_a_session_ends_once() -> None:
    sessions: Sessions[str] = Sessions()
    sessions.begin("t", "alice", "view", 0.0)
    assert sessions.end("t") == "view"
    assert sessions.end("t") is None


def test_the_token_of_a_form_is_of_one_cookie_and_one_key() -> None:
    token = form_token(b"key", "cookie")
    assert is_form_token(b"key", "cookie", token)
    assert not is_form_token(b"key", "another", token)
    assert not is_form_token(b"another", "cookie", token)
    assert not is_form_token(b"key", "cookie", "")
    assert not is_form_token(b"key", "cookie", "ü\udcff")
