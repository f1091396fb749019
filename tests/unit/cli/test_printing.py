"""What people are shown is text: no name, whoever chose it, steers their terminal or the program that prints it."""

from __future__ import annotations

import io
import sys

import pytest

from minilog_broker.failure import CommandFailed
from minilog_broker.printable import printable
from minilog_tools.cli import app
from minilog_tools.cli.common import print_table, say
from minilog_tools.cli.record_text import line

EVIL = "\x1b[2J\x1b]0;owned\x07[/x][bold]\r\n\x9b31m\u202e"


@pytest.mark.parametrize("name", ["[/x]", "[bold]b", "[link=http://x]", ":smile:", "plain"])
def test_markup_in_a_name_is_its_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Once: a group named [/x] ended `minilog group list` with MarkupError."""
    print_table(("group", "partitions"), [(name, 1)], title=name)
    assert capsys.readouterr().out.count(name) == 2


def test_control_characters_never_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("group",), [(EVIL,)], title=EVIL)
    say(EVIL)
    say(EVIL, error=True)
    found = capsys.readouterr()
    for text in (found.out, found.err):
        assert all(each.isprintable() for each in text.replace("\n", ""))
    assert "\\x1b[2J" in found.out


def test_an_error_message_is_shown_the_same_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CommandFailed(f"there is no group {EVIL}")

    monkeypatch.setattr(app, "tree", lambda loaded: fail)
    assert app.run([]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_printable_text_stays_as_it_is() -> None:
    assert printable("Zürich – 東京 🙂 [x]") == "Zürich – 東京 🙂 [x]"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_value_is_escaped_on_a_terminal_and_exact_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    value = b"\x1b[2Jtext\xff\n"
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert line(value) == value + b"\n"
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert line(value) == b"\\x1b[2Jtext\\xff\\n\n"
