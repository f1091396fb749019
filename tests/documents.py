"""The code in documents, as tests run it: fenced blocks, and the commands in indented ones.

A fenced block that no test can run says so in the line before it, with the reason:

    <!-- not run: it is Kafka's client, and the tests start no Kafka -->
"""

from __future__ import annotations

import pathlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
_FOLDERS = ("docs/guides", "docs/operating", "docs/reference")
READ_BY_USERS = (
    "README.md",
    "docs/start.md",
    *sorted(str(file.relative_to(ROOT)) for folder in _FOLDERS for file in (ROOT / folder).glob("*.md")),
)
"""The documents whose code must run. Documents of the inside (spec, internals) show pieces of code, and tests name
them."""

PRINTED = "minilog is ready"
"""No command: a line that `minilog up` prints."""

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S
)
_ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "<"}


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `reason`: why no test runs it, empty where a test does."""

    document: str
    line: int
    language: str
    code: str
    reason: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(document: str) -> list[Block]:
    """The fenced blocks of a document, in its order."""
    text = (ROOT / document).read_text()
    return [
        Block(
            document,
            text.count("\n", 0, match.start("code")) + 1,
            match["language"],
            match["code"],
            match["reason"] or "",
        )
        for match in _BLOCK.finditer(text)
    ]


def all_blocks(language: str) -> list[Block]:
    return [block for document in READ_BY_USERS for block in blocks(document) if block.language == language]


@dataclass(frozen=True, slots=True)
class Step:
    """A command that a document shows behind `$ `, and the lines that are shown below it."""

    words: list[str]
    stdin: str
    shown: list[str]


def steps(document: str) -> list[Step]:
    """The steps of `minilog` in a document, in its order. What `printf` or `echo` pipes into one is its stdin."""
    steps: list[Step] = []
    is_shown = False
    for line in (ROOT / document).read_text().splitlines():
        code = line.removeprefix("    ")
        if line.startswith("    $ "):
            before, _, command = code[2:].rpartition(" | ")
            if is_shown := command.startswith("minilog "):
                steps.append(Step(shlex.split(command)[1:], _written(shlex.split(before)), []))
        elif not line.startswith("    "):
            is_shown = False
        elif is_shown:
            steps[-1].shown.append(code)
    return steps


def _written(words: list[str]) -> str:
    """The output of `printf TEXT` or `echo TEXT`."""
    match words:
        case ["printf", text]:
            return text.replace("\\n", "\n")
        case ["echo", text]:
            return text + "\n"
    return ""


@dataclass(frozen=True, slots=True)
class Piped:
    """One `minilog ...` of a document. `stdin`: what `printf` or `echo` before it writes."""

    line: int
    words: list[str]
    stdin: str


def commands(document: str) -> Iterator[tuple[int, list[str]]]:
    """(line, words) of each `minilog ...` of a document."""
    return ((piped.line, piped.words) for piped in piped_commands(document))


def piped_commands(document: str) -> Iterator[Piped]:
    """Each `minilog ...` of a line that is code: indented, or in a fenced block."""
    lines = (ROOT / document).read_text().splitlines()
    is_fenced = False
    for number, line in enumerate(lines, start=1):
        is_fenced ^= line.startswith("```")
        if not (line.startswith("    ") or is_fenced) or PRINTED in line:
            continue
        whole = line
        for further in lines[number:]:
            if not whole.endswith("\\"):
                break
            whole = whole[:-1] + further
        before: list[str] = []
        for words in _simple_commands(whole.strip().removeprefix("$ ").removeprefix("ExecStart=/opt/minilog/bin/")):
            if words[:1] == ["minilog"]:
                yield Piped(number, words[1:], _written(before))
            before = words


def _simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line, without its redirections. Empty where the line is not for a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote of an output
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if word in _ENDS:
            yield command
            command = []
        elif command or "=" not in word or word.startswith("-"):  # not a variable of its environment
            command.append(word)
