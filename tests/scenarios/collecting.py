"""Scenarios as tests of pytest: `tests/unit/*/scenarios/*.txt`.

Each scenario is a test by its title, with the mark of its rules.
"""

from __future__ import annotations

import difflib
import pathlib
from collections.abc import Iterable, Iterator

import pytest

from tests.scenarios.text import Scenario, ScenarioFile, TextError, read
from tests.scenarios.world import CommandError, World, run
from tests.scenarios.worlds import make_world

FOLDER = "scenarios"


class WrongTrace(AssertionError):
    """The cores did something else than the text says."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the traces of scenarios anew, as the cores give them"
    )


def pytest_collect_file(file_path: pathlib.Path, parent: pytest.Collector) -> pytest.File | None:
    """A text in a folder of scenarios is a module of tests."""
    if file_path.suffix == ".txt" and file_path.parent.name == FOLDER:
        return ScenarioModule.from_parent(parent, path=file_path)
    return None


class ScenarioModule(pytest.File):
    """A file of scenarios."""

    def collect(self) -> Iterator[pytest.Item]:
        file = read(self.path)
        for scenario in file.scenarios:
            item = ScenarioTest.from_parent(self, name=scenario.title)
            item.file, item.scenario = file, scenario
            item.add_marker(pytest.mark.proves(*file.proves, *scenario.proves))
            yield item

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.value) if isinstance(excinfo.value, TextError) else str(super().repr_failure(excinfo))


class ScenarioTest(pytest.Item):
    """One scenario."""

    file: ScenarioFile
    scenario: Scenario

    def runtest(self) -> None:
        check(self.file, self.scenario, make_world(self.file), rewrite=self.config.getoption("--rewrite"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        if isinstance(excinfo.value, WrongTrace | CommandError | TextError):
            return str(excinfo.value)
        return str(excinfo.getrepr(style="short", tbfilter=lambda found: found.traceback.cut(path=__file__)))

    def reportinfo(self) -> tuple[pathlib.Path, int, str]:
        return self.path, self.scenario.line - 1, self.name


def check(file: ScenarioFile, scenario: Scenario, world: World, *, rewrite: bool = False) -> None:
    """Run it. A trace that differs fails with the difference, or stands in the file from now on."""
    wrong: list[str] = []
    for block in scenario.blocks:
        try:
            found = run(world, block.commands)
        except CommandError as error:
            raise CommandError(f"{file.path}:{block.line}: {error}") from None
        if found != block.trace:
            wrong += [
                f"{file.path}:{block.line}: the trace is not the one in the text",
                *_difference(block.trace, found),
            ]
        block.trace = found if rewrite else block.trace
    if wrong and not rewrite:
        raise WrongTrace("\n".join(wrong))
    if wrong:
        file.path.write_text(file.render())


def _difference(wanted: list[str], found: list[str]) -> Iterable[str]:
    return list(difflib.unified_diff(wanted, found, "the text", "the cores", lineterm="", n=100))[3:]
