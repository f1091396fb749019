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
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, child in command.commands.items():
        yield from _commands(child, (*path, name))


_COMMANDS = dict(_commands(_TREE))


@pytest.mark.parametrize("path", _COMMANDS)
def test_each_example_of_a_command_would_be_taken(
    path: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = _COMMANDS[path]
    heading, *lines = command.epilog.split("\n\n")
    assert heading == "Examples:"
    assert len(lines) == len(set(lines)) >= 2
    for line in lines:
        command_line = re.split(r" \|\| | > ", line.rpartition(" | ")[2].rpartition("$(")[2])[0].rstrip(')"')
        words = shlex.split(command_line)
        start = ["minilog", *path.split()]
        assert words[: len(start)] == start
        command.make_context(path, words[len(start) :])
