"""`minilog completion` prints a script by which a shell completes verbs and options. The script asks `minilog` for
them."""

from __future__ import annotations

import enum
import shlex
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

ASKED_VARIABLE = "_MINILOG_COMPLETE"
"""The shell sets it to the form of the answer that it wants. Another variable has the line so far."""


class Shell(enum.StrEnum):
    """The shells with a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script by which a shell completes verbs and options."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # typer has no other place for it

    script = get_completion_script(prog_name="minilog", complete_var=ASKED_VARIABLE, shell=shell.value)
    sys.stdout.write(script + "\n")


def words_to_complete(environment: Mapping[str, str]) -> list[str]:
    """The words behind the program's name in the line that a shell wants to complete. Empty where no shell asks."""
    if ASKED_VARIABLE not in environment:
        return []
    from typer.completion import completion_init  # type: ignore[attr-defined]  # nor for this

    completion_init()
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS", "")
    try:
        return shlex.split(line)[1:]
    except ValueError:  # a quote is open
        return line.split()[1:]
