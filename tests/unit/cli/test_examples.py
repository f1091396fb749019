"""Every command's help ends with examples, and each example is a valid command line."""

from __future__ import annotations

import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from minilog_tools.cli import app

_TREE: Any = typer.main.get_command(app.tree())


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if command.epilog:
        yield " ".join(path), command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*path, name))


_COMMANDS = dict(_commands(_TREE))


ASKING = [path for path, command in _COMMANDS.items() if "command_config" in {each.name for each in command.params}]


def _arguments(path: str, line: str) -> list[str]:
    """The arguments of an example, which may stand in a line of a shell."""
    command_line = re.split(r" \|\| | > ", line.rpartition(" | ")[2].rpartition("$(")[2])[0].rstrip(')"')
    words = shlex.split(command_line)
    start = ["minilog", *path.split()]
    assert words[: len(start)] == start
    return words[len(start) :]


@pytest.mark.parametrize("path", _COMMANDS)
def test_a_help_ends_with_examples_that_the_command_would_take(
    path: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = _COMMANDS[path]
    heading, *lines = command.epilog.split("\n\n")
    assert heading == "Examples:"
    assert len(lines) == len(set(lines)) >= 2
    for line in lines:
        command.make_context(path, _arguments(path, line))
    assert app.run([*path.split(), "--help"]) == 0
    assert f"minilog {path}" in " ".join(capsys.readouterr().out.split("Examples:")[1].split())


@pytest.mark.parametrize("path", ASKING)
def test_a_verb_that_asks_a_cluster_reads_its_file_of_settings_first(
    path: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = _COMMANDS[path].epilog.split("\n\n")[-1]
    assert app.run([*path.split(), *_arguments(path, example), "--command-config", "none"]) == 2
    assert "none cannot be read (No such file or directory)" in capsys.readouterr().err


def test_all_verbs_but_those_of_one_machine_ask_a_cluster() -> None:
    others = {"up", "broker", "check", "demo", "completion"} | {
        path for path in _COMMANDS if path.startswith("cert create ")
    }
    assert _COMMANDS.keys() - set(ASKING) == others
