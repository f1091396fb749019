"""The worlds that scenarios drive: a class each, whose public methods are the verbs of its commands.

    lease 10 worker=w2      calls lease(10, worker="w2")
    fail-over               calls fail_over()

Words become values of the types that the method declares. `note` adds a line to the trace for the reviewer, and the
world traces the state that `observed` gives where a command has changed it.
"""

from __future__ import annotations

import inspect
import re
import shlex
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from minilog.errors import MinilogError


class CommandError(Exception):
    """A command that no world has, or whose arguments are wrong."""


class Span(NamedTuple):
    """Offsets from the first to the last: `3-7`, or `3` alone."""

    first: int
    last: int

    @classmethod
    def of(cls, word: str) -> Span:
        first, _, last = word.partition("-")
        return cls(int(first), int(last or first))

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def spans(numbers: Iterable[int]) -> str:
    """The numbers in short: `0-3 7`."""
    found: list[Span] = []
    for number in sorted(numbers):
        if found and found[-1].last == number - 1:
            found[-1] = Span(found[-1].first, number)
        else:
            found.append(Span(number, number))
    return " ".join(map(str, found)) or "nothing"


class World:
    """Verbs and a trace: public methods are the commands of a scenario, and `observed` gives the state to show."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.refusal: MinilogError | None = None
        self._seen: Mapping[str, str] = {}

    def note(self, line: str) -> None:
        """Something happened: a line of the trace."""
        self.lines.append(line)

    def outcome(self, who: str, error: MinilogError | None, done: str = "ok") -> None:
        """How a call ended."""
        if error is None:
            self.note(f"{who}: {done}")
        else:
            self.refusal = error
            self.note(f"{who}: {type(error).__name__}")

    def observed(self) -> Mapping[str, str]:
        """The state that a reviewer needs, by what it is of."""
        return {}

    def settle_down(self) -> None:
        """What follows a command by itself."""

    def why(self) -> None:
        """The sentence of the last refusal."""
        self.note(str(self.refusal))


def run(world: World, commands: Iterable[str]) -> list[str]:
    """The trace of commands."""
    for command in commands:
        call = _call(world, command)
        try:
            call()
            world.settle_down()
        except MinilogError as error:
            world.outcome("refused", error)
        _trace_changes(world)
    lines, world.lines = world.lines, []
    return lines


def _trace_changes(world: World) -> None:
    now, before = dict(world.observed()), world._seen
    world._seen = now
    for name in [*now, *(each for each in before if each not in now)]:
        if now.get(name) != before.get(name):
            world.note(f"{name}: {now.get(name, 'gone')}")


def verbs(kind: type[World]) -> dict[str, Callable[..., None]]:
    """The verbs of a world, by their names in a command."""
    own = [name for name, found in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    inherited = {name for name in vars(World) if name != World.why.__name__}
    return {name.replace("_", "-"): getattr(kind, name) for name in own if name not in inherited}


def _call(world: World, command: str) -> Callable[[], None]:
    verb, *words = shlex.split(command, comments=True)
    known = verbs(type(world))
    if verb not in known:
        raise CommandError(f"there is no verb {verb!r}: {', '.join(known)}")
    method = known[verb]
    kinds = typing.get_type_hints(method)
    signature = inspect.signature(method)
    places: list[str] = []
    named: dict[str, str] = {}
    for word in words:
        match = re.fullmatch(r"([a-z][\w.-]*)=(.*)", word)
        if match is None:
            places.append(word)
        else:
            name = match[1].replace("-", "_")
            named[name if name in signature.parameters else match[1]] = match[2]
    try:
        bound = signature.bind(world, *places, **named)
    except TypeError as error:
        raise CommandError(f"{verb}: {error}") from None
    for name, parameter in signature.parameters.items():
        if name not in bound.arguments or name == "self":
            continue
        given, kind = bound.arguments[name], kinds[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(_value(verb, name, kind, each) for each in given)
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: _value(verb, key, kind, each) for key, each in given.items()}
        else:
            bound.arguments[name] = _value(verb, name, kind, given)
    return lambda: method(*bound.args, **bound.kwargs)


def _value(verb: str, name: str, kind: Any, word: str) -> object:
    """The word as what the annotation says."""
    if isinstance(kind, types.UnionType):
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    try:
        if kind is bool:
            return {"yes": True, "no": False}[word]
        if kind is Span:
            return Span.of(word)
        if typing.get_origin(kind) is tuple:
            (element, *_) = typing.get_args(kind)
            return tuple(_value(verb, name, element, each) for each in word.split(",") if each)
        return kind(word)
    except (KeyError, ValueError):
        raise CommandError(f"{verb}: {name}={word} is no {getattr(kind, '__name__', kind)}") from None
