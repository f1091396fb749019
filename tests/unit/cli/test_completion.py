"""The answers to a shell that completes a line."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest

from minilog_tools.cli import app

_LINE = "minilog topic create --dd"
_BASH = """
eval "$(minilog completion bash)"
COMP_WORDS=(minilog topic create --dd) COMP_CWORD=3
_minilog_completion minilog
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        ({"_MINILOG_COMPLETE": "complete_bash", "COMP_WORDS": _LINE, "COMP_CWORD": "3"}, "--ddl\n"),
        ({"_MINILOG_COMPLETE": "complete_bash", "COMP_WORDS": "minilog prod", "COMP_CWORD": "1"}, "produce\n"),
        ({"_MINILOG_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": _LINE}, '"--ddl"'),
        (
            {
                "_MINILOG_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_ARGS": _LINE,
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
            "--ddl\t",
        ),
    ],
)
def test_verbs_and_options_are_completed(
    environment: Mapping[str, str], answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert app.run([]) == 0
    assert answer in capsys.readouterr().out


def test_bash_completes_a_line_by_the_script() -> None:
    bash = shutil.which("bash")
    assert bash is not None, "bash runs this test: install it"
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run([bash, "-c", _BASH], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "--ddl\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["completion", shell]) == 0
    assert f"complete_{shell}" in capsys.readouterr().out
