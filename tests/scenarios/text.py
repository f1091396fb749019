"""The text of scenarios: what is read, and what is written again.

    # What the file is about.
    world: queues
    proves: Q1

    === a lease ends at the last stable offset
    has 3
    lease 10
    ----
    w1 gets 0-2

The head names the world, and may name rules that the file proves. Each scenario has a title, may name rules of its own,
and has blocks: commands, `----`, and the trace of them all up to a blank line. Nothing else may stand in a file.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field

END_OF_COMMANDS = "----"
TITLE = "=== "
WORLD, PROVES = "world: ", "proves: "


class TextError(Exception):
    """A file of scenarios that cannot be read: `path:line: what is wrong`."""


@dataclass
class Block:
    """Commands, and the trace of them."""

    line: int
    """Of its first command in the file, from 1."""
    notes: list[str] = field(default_factory=list)
    """Comments before the commands."""
    commands: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    def render(self) -> list[str]:
        """Its lines."""
        return [*self.notes, *self.commands, END_OF_COMMANDS, *self.trace, ""]


@dataclass
class Scenario:
    """One test."""

    title: str
    line: int
    proves: tuple[str, ...] = ()
    blocks: list[Block] = field(default_factory=list)

    def render(self) -> list[str]:
        """Its lines."""
        return [f"{TITLE}{self.title}", *_rules(self.proves), *(line for each in self.blocks for line in each.render())]


@dataclass
class ScenarioFile:
    """A file of scenarios in one world."""

    path: pathlib.Path
    notes: list[str] = field(default_factory=list)
    world: str = ""
    proves: tuple[str, ...] = ()
    proves_line: int = 1
    scenarios: list[Scenario] = field(default_factory=list)

    def render(self) -> str:
        """The file's text: of a file that was read and not run, the text that was read."""
        lines = [*self.notes, f"{WORLD}{self.world}", *_rules(self.proves), ""]
        lines += [line for each in self.scenarios for line in each.render()]
        return "\n".join(lines).rstrip("\n") + "\n"


def _rules(proves: tuple[str, ...]) -> list[str]:
    return [PROVES + " ".join(proves)] if proves else []


def read(path: pathlib.Path) -> ScenarioFile:
    """The scenarios of a file."""
    found = _Reader(path).read()
    if found.render() != path.read_text():
        written, wanted = path.read_text().splitlines(), found.render().splitlines()
        pairs = zip(written, wanted, strict=False)
        number = next((n for n, (one, two) in enumerate(pairs, 1) if one != two), len(wanted) + 1)
        raise TextError(f"{path}:{number}: one blank line stands after each trace, and nowhere else but after the head")
    return found


class _Reader:
    """The lines of a file, one after another."""

    def __init__(self, path: pathlib.Path) -> None:
        self._found = ScenarioFile(path)
        self._lines = path.read_text().splitlines()
        self._at = 0

    def read(self) -> ScenarioFile:
        self._read_head()
        while self._at < len(self._lines):
            self._read_line()
        if not self._found.scenarios:
            raise self._error("there is no scenario")
        titles: set[str] = set()
        for scenario in self._found.scenarios:
            self._at = scenario.line
            if not scenario.blocks:
                raise self._error(f"the scenario {scenario.title!r} has no command")
            if scenario.title in titles:
                raise self._error(f"two scenarios have the title {scenario.title!r}")
            titles.add(scenario.title)
        return self._found

    def _error(self, words: str) -> TextError:
        return TextError(f"{self._found.path}:{max(1, self._at)}: {words}")

    def _next(self) -> str:
        line = self._lines[self._at] if self._at < len(self._lines) else ""
        self._at += 1
        return line

    def _read_head(self) -> None:
        while (line := self._next()).startswith("#"):
            self._found.notes.append(line)
        if not line.startswith(WORLD):
            raise self._error(f"after its comments a file begins with `{WORLD}NAME`")
        self._found.world = line.removeprefix(WORLD)
        line = self._next()
        if line.startswith(PROVES):
            self._found.proves, self._found.proves_line = tuple(line.split()[1:]), self._at
            line = self._next()
        if line:
            raise self._error("a blank line ends the head")

    def _read_line(self) -> None:
        line = self._next()
        if not line:
            return
        scenarios = self._found.scenarios
        if line.startswith(TITLE):
            scenarios.append(Scenario(line.removeprefix(TITLE), self._at))
        elif line.startswith(PROVES) and scenarios and not scenarios[-1].blocks:
            scenarios[-1].proves = tuple(line.split()[1:])
        elif not scenarios:
            raise self._error(f"a scenario begins with its title: {TITLE}...")
        else:
            scenarios[-1].blocks.append(self._read_block(line))

    def _read_block(self, line: str) -> Block:
        block = Block(self._at)
        while line.startswith("#"):
            block.notes.append(line)
            line = self._next()
        block.line = self._at
        while line != END_OF_COMMANDS:
            if not line or line.startswith("#"):
                raise self._error(f"`{END_OF_COMMANDS}` and the trace follow the commands")
            block.commands.append(line)
            line = self._next()
        if not block.commands:
            raise self._error("there is a trace without a command")
        while line := self._next():
            block.trace.append(line)
        return block
