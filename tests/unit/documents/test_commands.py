"""The commands in documents exist, with their options and arguments, and the settings in documents exist."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import typer

from minilog_broker.server.config_layers import load_config
from minilog_tools.cli.app import tree
from tests import documents
from tests.documents import ROOT, Block
from tests.rules import proves

pytestmark = proves("DOC.9")

TREE = typer.main.get_command(tree())
SHOWN = [(f"{name}:{line}", words) for name in documents.READ_BY_USERS for line, words in documents.commands(name)]
IN_SENTENCES = re.compile(r"`minilog ((?:[a-z][a-z-]*)(?: [^`]*)?)`")
TOML = documents.all_blocks("toml")


def verb(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words name, and what is left of them; a group, where no verb of it is named."""
    command: Any = TREE
    while words and words[0] in verbs_of(command):
        command, words = verbs_of(command)[words[0]], words[1:]
    return command, words


def verbs_of(command: Any) -> dict[str, Any]:
    """Of a group; a verb has none."""
    return getattr(command, "commands", {})


def test_there_are_as_many_commands_as_one_would_think() -> None:
    assert len(SHOWN) > 75
    assert len({place.partition(":")[0] for place, _ in SHOWN}) > 10


@pytest.mark.parametrize(("place", "words"), SHOWN, ids=[f"{place} {' '.join(words)[:40]}" for place, words in SHOWN])
def test_a_command_that_a_document_shows_is_understood(place: str, words: list[str]) -> None:
    """Its options and arguments are parsed as they are where it is run, and nothing is run."""
    command, arguments = verb(words)
    assert getattr(command, "invoke_without_command", True), f"{place}: `minilog {' '.join(words)}` names no verb"
    if arguments != ["..."]:
        try:
            command.make_context(" ".join(words), list(arguments))
        except typer.exceptions.TyperException as error:
            pytest.fail(f"{place}: minilog {' '.join(words)}: {error}")


def test_a_command_in_a_sentence_has_its_verb_and_its_options() -> None:
    wrong = []
    for document in documents.READ_BY_USERS:
        for words in IN_SENTENCES.findall((ROOT / document).read_text().replace(documents.PRINTED, "")):
            command, arguments = verb(words.replace(",", " ").split())
            options = {option for parameter in command.params for option in parameter.opts} | {"--help", "--version"}
            given = [word.partition("=")[0] for word in arguments if re.fullmatch(r"-[a-z]|--[a-z-]+(=.*)?", word)]
            wrong += [f"{document}: minilog {words}: {option}" for option in given if option not in options]
            if verbs_of(command) and arguments and arguments[0] not in options | {"..."}:
                wrong.append(f"{document}: minilog {words} is no command")
    assert not wrong


@pytest.mark.parametrize("block", TOML, ids=lambda block: block.place)
def test_a_file_of_settings_that_a_document_shows_is_understood(block: Block, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(block.code)
    shown = re.findall(r'^([\w.]+) = "(.*)"$', block.code, re.MULTILINE)
    config = load_config(file)
    assert shown
    assert [(name, value) for name, value in shown if str(getattr(config, name.replace(".", "_"))) != value] == []
