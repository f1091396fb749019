"""The audit log: what a line says, that nothing in it can break it, and how much is written."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog_broker.security.audit import (
    LINES_PER_METHOD,
    LINES_PER_SOURCE,
    MAX_KEYS,
    MAX_LINES,
    MAX_NAMES_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    WINDOW_MS,
    AuditEvent,
    AuditLog,
    Decision,
    to_structlog,
)

NOW_MS = 1_900_000_000_000
DENIED = AuditEvent("User:alice", "10.0.0.1", "Produce", "write", "topic:flights", Decision.DENIED, "no rule allows it")
LOGIN = AuditEvent("User:alice", "10.0.0.1", "Authenticate", "", "", Decision.ALLOWED, "the mechanism proves it")


class Lines:
    """What was written, and the log that writes it."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.decisions: list[Decision] = []
        self.log = AuditLog(self._write)

    def _write(self, decision: Decision, line: str) -> None:
        self.written.append(line)
        self.decisions.append(decision)

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.written]

    def record(self, times: int, now_ms: int = NOW_MS, event: AuditEvent = DENIED) -> None:
        for _ in range(times):
            self.log.record(event, now_ms)


def named(number: int) -> AuditEvent:
    return dataclasses.replace(DENIED, principal=f"User:{number}")


def test_a_line_says_who_what_and_why() -> None:
    lines = Lines()
    lines.record(1)
    assert lines.decisions == [Decision.DENIED]
    assert lines.documents == [
        {
            "time_ms": NOW_MS,
            "principal": "User:alice",
            "host": "10.0.0.1",
            "method": "Produce",
            "operation": "write",
            "resource": "topic:flights",
            "decision": "denied",
            "reason": "no rule allows it",
        }
    ]


@settings(deadline=None)
@given(st.text(alphabet=st.characters()), st.text(alphabet=st.characters()))
def test_nothing_breaks_a_line_or_steers_a_terminal(name: str, reason: str) -> None:
    lines = Lines()
    lines.record(1, event=dataclasses.replace(DENIED, principal=name, resource=name, reason=reason))
    assert lines.written[0].isascii()
    assert lines.written[0].isprintable()
    told = lines.documents[0]
    assert (told["principal"], told["reason"]) == (name[:MAX_TEXT_CHARACTERS], reason[:MAX_TEXT_CHARACTERS])


def test_controls_are_shown_as_escapes() -> None:
    lines = Lines()
    lines.record(1, event=dataclasses.replace(DENIED, principal="a\n\x1b[2J\x7f\u2028\x9b"))
    assert r"a\n\u001b[2J\u007f\u2028\u009b" in lines.written[0]


def test_long_texts_are_cut() -> None:
    lines = Lines()
    lines.record(1, event=dataclasses.replace(DENIED, resource="x" * 10_000))
    assert lines.documents[0]["resource"] == "x" * MAX_TEXT_CHARACTERS + "..."


def test_repeated_events_are_counted_in_the_next_line() -> None:
    lines = Lines()
    lines.record(LINES_PER_METHOD + 7)
    assert len(lines.written) == LINES_PER_METHOD
    lines.record(2, NOW_MS + WINDOW_MS)
    assert [each.get("left_out") for each in lines.documents[LINES_PER_METHOD:]] == [7, None]


def test_other_principals_hosts_methods_and_decisions_are_counted_by_themselves() -> None:
    lines = Lines()
    lines.record(LINES_PER_METHOD + 1)
    for changed in (
        {"principal": "User:bob"},
        {"host": "10.0.0.2"},
        {"method": "Fetch"},
        {"decision": Decision.ALLOWED},
    ):
        lines.record(1, event=dataclasses.replace(DENIED, **changed))
    assert len(lines.written) == LINES_PER_METHOD + 4
    lines.record(1, event=dataclasses.replace(DENIED, resource="topic:other"))
    assert len(lines.written) == LINES_PER_METHOD + 4


def test_a_flush_tells_what_no_next_line_has_told() -> None:
    lines = Lines()
    lines.record(LINES_PER_METHOD + 7)
    lines.log.flush(NOW_MS + WINDOW_MS - 1)
    assert len(lines.written) == LINES_PER_METHOD
    for _ in range(2):
        lines.log.flush(NOW_MS + WINDOW_MS)
    assert lines.documents[LINES_PER_METHOD:] == [
        {
            "time_ms": NOW_MS + WINDOW_MS,
            "principal": "User:alice",
            "host": "10.0.0.1",
            "method": "Produce",
            "decision": "denied",
            "left_out": 7,
        }
    ]


def test_a_guesser_with_a_new_name_each_time_is_bounded_too() -> None:
    lines = Lines()
    for number in range(3 * MAX_LINES):
        lines.record(1, event=named(number))
    assert len(lines.written) == MAX_LINES
    lines.log.flush(NOW_MS + WINDOW_MS)
    assert lines.documents[-1]["left_out"] == 2 * MAX_LINES
    assert len(lines.written) == MAX_LINES + 1


def test_a_clock_that_is_set_back_begins_a_new_window() -> None:
    lines = Lines()
    lines.record(LINES_PER_METHOD + 1)
    lines.record(1, NOW_MS - 1)
    assert lines.documents[-1]["left_out"] == 1


STEPS = st.lists(
    st.tuples(
        st.integers(0, 5), st.integers(1, 3 * LINES_PER_METHOD), st.sampled_from([-5, 0, 1, WINDOW_MS, 3 * WINDOW_MS])
    ),
    max_size=20,
)


@settings(deadline=None)
@given(STEPS)
def test_every_event_is_written_or_counted_once(steps: list[tuple[int, int, int]]) -> None:
    lines, now_ms, events = Lines(), NOW_MS, 0
    for number, times, passed_ms in steps:
        lines.record(times, now_ms, named(number))
        events += times
        now_ms += passed_ms
        if passed_ms == WINDOW_MS:
            lines.log.flush(now_ms)
    lines.log.close(now_ms)
    written = sum("resource" in each for each in lines.documents)
    assert written + sum(each.get("left_out", 0) for each in lines.documents) == events


def test_keys_that_are_forgotten_take_no_count_with_them() -> None:
    lines = Lines()
    lines.record(LINES_PER_METHOD + 7)
    for number in range(MAX_KEYS):
        lines.record(1, event=named(number))
    lines.log.flush(NOW_MS + WINDOW_MS)
    assert sum("resource" in each for each in lines.documents) == MAX_LINES
    told = sum(each.get("left_out", 0) for each in lines.documents)
    assert told + MAX_LINES == LINES_PER_METHOD + 7 + MAX_KEYS


def deletion(number: int) -> AuditEvent:
    return AuditEvent(
        "User:alice", "10.0.0.1", "DeleteTopics", "delete", f"topic:t{number}", Decision.ALLOWED, "a rule allows it"
    )


def stranger(host: str, method: str = "GetMetadata") -> AuditEvent:
    return AuditEvent("User:ANONYMOUS", host, method, "", "", Decision.DENIED, "the call has no session")


class TestNobodyBlindsIt:
    """What one does uses up no line of what another does, nor of what was altered."""

    def test_events_that_alter_something_are_never_left_out(self) -> None:
        lines = Lines()
        for number in range(2 * MAX_LINES):
            lines.record(1, event=deletion(number))
        told = [each["resource"] for each in lines.documents]
        assert told == [f"topic:t{number}" for number in range(2 * MAX_LINES)]

    def test_refusals_hide_no_deletion(self) -> None:
        """Strangers, and a user without rights, refused as often as they like; then 14 real deletions."""
        lines = Lines()
        for number in range(MAX_LINES):
            lines.record(20, event=stranger(f"10.1.{number // 250}.{number % 250}"))
        for number in range(100):
            lines.record(20, event=dataclasses.replace(DENIED, principal=f"User:{number}"))
        for number in range(14):
            lines.record(1, event=deletion(number))
        assert [each["resource"] for each in lines.documents[-14:]] == [f"topic:t{number}" for number in range(14)]

    def test_strangers_use_up_no_line_of_a_user_nor_of_a_login(self) -> None:
        lines = Lines()
        for number in range(2 * MAX_LINES):
            lines.record(1, event=stranger(f"10.1.{number // 250}.{number % 250}"))
        assert len(lines.written) == MAX_LINES
        lines.record(1)
        lines.record(1, event=LOGIN)
        assert len(lines.written) == MAX_LINES + 2

    def test_a_stranger_uses_up_no_line_of_another(self) -> None:
        lines = Lines()
        for number in range(100):
            lines.record(LINES_PER_METHOD, event=stranger("10.0.0.1", f"Call{number}"))
        assert len(lines.written) == LINES_PER_SOURCE < MAX_LINES
        lines.record(1, event=stranger("10.0.0.2"))
        assert lines.documents[-1]["host"] == "10.0.0.2"

    def test_a_user_uses_up_no_line_of_another_from_however_many_hosts(self) -> None:
        lines = Lines()
        for number in range(2 * MAX_LINES):
            lines.record(1, event=dataclasses.replace(DENIED, host=f"2001:db8::{number:x}"))
        assert len(lines.written) == LINES_PER_SOURCE
        lines.record(1, event=named(7))
        assert lines.documents[-1]["principal"] == "User:7"

    def test_lines_left_out_of_a_stranger_are_reported_under_its_host_while_it_goes_on(self) -> None:
        lines, times = Lines(), 3 * LINES_PER_SOURCE
        for number in range(times):
            lines.record(1, event=stranger("10.0.0.1", f"Call{number}"))
        lines.record(1, NOW_MS + WINDOW_MS, stranger("10.0.0.1", "Another"))  # his next window begins before the flush
        lines.log.flush(NOW_MS + WINDOW_MS + 1)
        assert lines.documents[-1] == {
            "time_ms": NOW_MS + WINDOW_MS + 1,
            "principal": "User:ANONYMOUS",
            "host": "10.0.0.1",
            "method": "*",
            "decision": "denied",
            "left_out": times - LINES_PER_SOURCE,
        }


class TestManyNames:
    """One request may name thousands."""

    def test_a_refusal_is_one_line_that_counts_them(self) -> None:
        lines = Lines()
        others = tuple(f"topic:dummy{number}" for number in range(1, 5_000))
        lines.record(1, event=dataclasses.replace(DENIED, resource="topic:salaries", others=others))
        (told,) = lines.documents
        assert (told["resource"], told["names"]) == ("topic:salaries", 5_000)
        assert told["others"] == list(others[: len(told["others"])])
        assert sum(map(len, told["others"])) <= MAX_NAMES_CHARACTERS

    def test_alterations_are_audited_to_the_last_name(self) -> None:
        lines = Lines()
        others = tuple(f"topic:{number}-{'x' * 200}" for number in range(1, 1_000))
        lines.record(1, event=dataclasses.replace(deletion(0), others=others))
        told = [name for each in lines.documents for name in (each["resource"], *each.get("others", ()))]
        assert told == ["topic:t0", *others]
        assert {each["names"] for each in lines.documents} == {1_000}
        assert all(sum(map(len, each.get("others", ()))) <= MAX_NAMES_CHARACTERS for each in lines.documents)

    def test_a_single_name_stays_as_it_is(self) -> None:
        lines = Lines()
        lines.record(1)
        assert "names" not in lines.documents[0]
        assert "others" not in lines.documents[0]


def test_the_brokers_log_has_it_under_its_own_name() -> None:
    with structlog.testing.capture_logs() as logged:
        log = AuditLog(to_structlog())
        log.record(DENIED, NOW_MS)
        log.record(dataclasses.replace(DENIED, decision=Decision.ALLOWED), NOW_MS)
    assert [(each["logger"], each["log_level"]) for each in logged] == [
        ("minilog.audit", "warning"),
        ("minilog.audit", "info"),
    ]
    assert json.loads(logged[0]["event"])["principal"] == "User:alice"
