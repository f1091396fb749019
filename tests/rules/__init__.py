"""The rules of minilog: each with its place in the specification, its wrong forms, and the tests that prove it.

A rule has an id (`HW.4`, `V6`), a sentence, and mutants: wrong rules in its place. Its tests carry `@proves("HW.4")`, a
module that proves it as a whole has `pytestmark = proves("HW.4")`, and a scenario `proves: HW.4`. The modules beside
this have the rules by area, and `tests.rules.table` has all of them. `python -m tools.rules HW.4` prints a rule with
all its proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

proves = pytest.mark.proves
"""The mark of a test that fails where one of these rules does not hold."""

Patches = list[tuple[Any, str, Any]]
"""What a wrong rule replaces: (class or module, attribute, replacement)."""


@dataclass(frozen=True)
class Mutant:
    """A wrong rule, as a switch in each world that looks for it."""

    name: str
    simulation: Callable[[], Patches] | None = None
    """Whole clusters on virtual time. The seed that finds it is in tests/simulation/pins.tsv."""
    histories: Callable[[], Patches] | None = None
    """Random histories of the cores of replication."""
    quorum: Callable[[], Patches] | None = None
    """Random histories and scenes of the cores of the quorum."""
    small_model: Callable[[], Patches] | None = None
    """All states of three replicas within bounds."""


@dataclass(frozen=True)
class Rule:
    """One sentence that holds, and the known ways to get it wrong."""

    id: str
    sentence: str
    wrong: tuple[Mutant, ...] = ()
    seldom: str = ""
    """Why only `make test-all` proves it."""


@dataclass(frozen=True)
class Section:
    """Rules that stand together in the specification."""

    title: str
    places: tuple[str, ...]
    """The documents, from the root, with their anchors."""
    rules: tuple[Rule, ...]


@contextmanager
def mutated(make: Callable[[], Patches] | None) -> Iterator[None]:
    """The wrong rule, for the length of the block; None: the true ones."""
    patches = [patch.object(*each) for each in (make() if make is not None else [])]
    _active.extend(patches)
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
            _active.remove(each)


_active: list[Any] = []  # the patches that are in force


@contextmanager
def unmutated() -> Iterator[None]:
    """The true rules again, for the length of a block within `mutated`."""
    for each in reversed(_active):
        each.stop()
    try:
        yield
    finally:
        for each in _active:
            each.start()
