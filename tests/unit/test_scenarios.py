"""The interpreter of scenarios: a wrong trace fails, a rewritten one is stable, other text is an error."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import pytest

from minilog.errors import InvalidArgument
from tests.scenarios.collecting import WrongTrace, check
from tests.scenarios.text import TextError, read
from tests.scenarios.world import CommandError, Span, World, spans
from tests.scenarios.worlds import make_world

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = """\
# Counters.
world: counters
proves: A.1

=== a counter counts
proves: A.2 A.3
# By two.
add 2
add 3 times=2 to="the other one"
----
the one: 2
the other one: 6

refuse
why
----
refused: InvalidArgument
{sentence}

take 1-2,4
----
took 1-2 4

=== another counter begins at nothing
add 1
----
the one: 1
"""
RIGHT = TEXT.format(sentence="no more")


class Counters(World):
    """A world of counters."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}

    def add(self, number: int, *, times: int = 1, to: str = "the one") -> None:
        self._counts[to] = self._counts.get(to, 0) + number * times

    def take(self, which: tuple[Span, ...]) -> None:
        self.note(f"took {spans(n for each in which for n in range(each.first, each.last + 1))}")

    def refuse(self) -> None:
        raise InvalidArgument("no more")

    def observed(self) -> Mapping[str, str]:
        return {name: str(count) for name, count in self._counts.items()}


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "counters.txt"


def checked(path: pathlib.Path, text: str, *, rewrite: bool = False) -> str:
    """The text of a file after its scenarios were run."""
    path.write_text(text)
    file = read(path)
    for scenario in file.scenarios:
        check(file, scenario, Counters(), rewrite=rewrite)
    return path.read_text()


def test_a_file_has_its_rules_and_scenarios(path: pathlib.Path) -> None:
    assert checked(path, RIGHT) == RIGHT
    file = read(path)
    assert (file.world, file.proves, file.proves_line) == ("counters", ("A.1",), 3)
    assert [(each.title, each.line, each.proves) for each in file.scenarios] == [
        ("a counter counts", 5, ("A.2", "A.3")),
        ("another counter begins at nothing", 24, ()),
    ]


def test_a_wrong_trace_fails_with_its_place_and_the_difference(path: pathlib.Path) -> None:
    with pytest.raises(WrongTrace) as caught:
        checked(path, TEXT.format(sentence="one more"))
    assert str(caught.value).splitlines() == [
        f"{path}:14: the trace is not the one in the text",
        " refused: InvalidArgument",
        "-one more",
        "+no more",
    ]


def test_a_rewritten_file_has_the_traces_of_the_cores_and_all_else_as_it_was(path: pathlib.Path) -> None:
    rewritten = checked(path, TEXT.format(sentence="one more"), rewrite=True)
    assert rewritten == RIGHT
    assert checked(path, rewritten, rewrite=True) == rewritten


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("multiply 2", "there is no verb 'multiply'"),
        ("observed", "there is no verb 'observed'"),
        ("add", "add: missing a required argument: 'number'"),
        ("add 1 2", "add: too many positional arguments"),
        ("add 1 by=2", "add: got an unexpected keyword argument 'by'"),
        ("add two", "add: number=two is no int"),
        ("take 1-x", "take: which=1-x is no Span"),
    ],
)
def test_a_command_that_nobody_understands_is_an_error(path: pathlib.Path, command: str, words: str) -> None:
    text = f"world: counters\n\n=== one\n{command}\n----\n"
    with pytest.raises(CommandError, match=r"counters.txt:4: ") as caught:
        checked(path, text, rewrite=True)
    assert words in str(caught.value)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("=== one\n", 1, "a file begins with"),
        ("world: counters\nmore\n", 2, "a blank line ends the head"),
        ("world: counters\n\n", 2, "there is no scenario"),
        ("world: counters\n\nadd 1\n----\n", 3, "begins with its title"),
        ("world: counters\n\n=== one\n", 3, "has no command"),
        ("world: counters\n\n=== one\nadd 1\n", 5, "and the trace follow the commands"),
        ("world: counters\n\n=== one\n----\nx\n", 4, "a trace without a command"),
        ("world: counters\n\n=== one\nadd 1\n----\n\n\n=== two\nadd 1\n----\n", 7, "one blank line"),
        ("world: counters\n\n=== one\nadd 1\n----\n\n=== one\nadd 1\n----\n", 7, "two scenarios have the title"),
    ],
)
def test_a_text_that_is_no_scenario_is_an_error(path: pathlib.Path, text: str, line: int, words: str) -> None:
    path.write_text(text)
    with pytest.raises(TextError) as caught:
        read(path)
    assert f"counters.txt:{line}: " in str(caught.value)
    assert words in str(caught.value)


def test_a_world_that_is_not_there_is_an_error(path: pathlib.Path) -> None:
    path.write_text(RIGHT)
    with pytest.raises(TextError, match="there is no world 'counters'"):
        make_world(read(path))


def test_the_example_of_hacking_is_a_scenario() -> None:
    shown = (ROOT / "HACKING.md").read_text().partition("    === ")[2].partition("\n\n")[0]
    text = (ROOT / "tests/unit/coordinators/scenarios/queue_leases.txt").read_text()
    assert "=== " + shown.replace("\n    ", "\n") in text
