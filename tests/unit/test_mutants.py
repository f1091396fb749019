"""A mutant is called as the rule that it stands for: one that takes other arguments raises TypeError, and a search that
ends so has shown nothing of the rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.rules.table import HISTORIES, QUORUM, SIMULATION, SMALL_MODEL

_P = inspect.Parameter
ALL = {
    f"{where}: {name}": make
    for where, table in (
        ("simulation", SIMULATION),
        ("quorum", QUORUM),
        ("replication", HISTORIES),
        ("small model", SMALL_MODEL),
    )
    for name, make in table.items()
}


@pytest.mark.parametrize("name", ALL)
def test_a_mutant_takes_every_call_of_what_it_replaces(name: str) -> None:
    for target, attribute, *given in ALL[name]():
        true = inspect.getattr_static(target, attribute)
        assert _refused_call(true, *given) is None, f"{attribute} of {target.__name__}"


def _refused_call(true: Any, mutant: Any) -> str | None:
    """The first call of `true` that `mutant` does not take. What is no function is called by nobody."""
    true, mutant = _function(true), _function(mutant)
    if not callable(true) or isinstance(true, type):
        return None
    taken = inspect.signature(mutant)
    for places, names in _calls(inspect.signature(true)):
        try:
            taken.bind(*places, **names)
        except TypeError as error:
            return f"a call with {places} and {sorted(names)}: {error}"
    return None


def _calls(signature: inspect.Signature) -> Iterator[tuple[list[str], dict[str, str]]]:
    """With all arguments, with those alone that must be given, and with all that may be left out by their names."""
    parameters = list(signature.parameters.values())
    places = [each for each in parameters if each.kind in (_P.POSITIONAL_ONLY, _P.POSITIONAL_OR_KEYWORD)]
    names = [each for each in parameters if each.kind is _P.KEYWORD_ONLY]
    needed_places, needed_names = ([each for each in part if each.default is _P.empty] for part in (places, names))
    others = [each for each in places if each.default is not _P.empty and each.kind is _P.POSITIONAL_OR_KEYWORD]
    for at, by_name in ((places, names), (needed_places, needed_names), (needed_places, [*names, *others])):
        yield [each.name for each in at], {each.name: each.name for each in by_name}


def _function(found: Any) -> Any:
    return found.__func__ if isinstance(found, classmethod | staticmethod) else found


def _truth(one: int, two: int = 0, *, three: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("mutant", "is_taken"),
    [
        (lambda one, two=0, *, three=0: None, True),
        (lambda *given, **named: None, True),
        (lambda one, two=0: None, False),
        (lambda one, other=0, *, three=0: None, False),
        (lambda one, two, *, three=0: None, False),
        (lambda two=0, *, three=0: None, False),
    ],
)
def test_a_mutant_that_takes_other_arguments_is_found(mutant: Callable[..., None], is_taken: bool) -> None:
    assert (_refused_call(_truth, mutant) is None) is is_taken
