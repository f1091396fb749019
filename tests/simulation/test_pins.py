"""Each pinned mutant of the whole brokers is found by its seed. One that is not was broken by a change of the code:
`python -m tests.simulation --hunt "NAME" --seeds 100 --write-pins` searches anew.
"""

from __future__ import annotations

import ast
import inspect
import pathlib
from types import ModuleType

import pytest

import minilog_broker
from tests.rules import mutated
from tests.rules.table import SIMULATION
from tests.simulation import hunt
from tests.simulation.run import run_many

ROWS = hunt.load()
LIGHT_CPU_S = 1.0  # heavier ones run in `make test-all`
PINNED = [
    pytest.param(name, marks=() if pin.cpu_s < LIGHT_CPU_S else pytest.mark.long)
    for name, pin in ROWS.items()
    if pin.seed is not None
]


@pytest.mark.dear("it runs whole clusters")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PINNED)
def test_a_wrong_rule_is_found(name: str) -> None:
    pin = ROWS[name]
    assert pin.seed is not None
    (result,) = run_many((pin.seed,), 1, name, pin.theme)
    assert hunt.rule_of(result) is not None, f"seed {pin.seed} finds {name} no more ({result.failure}): search anew"


@pytest.mark.parametrize("name", SIMULATION)
def test_a_wrong_rule_stands_in_the_place_of_one_that_is_there(name: str) -> None:
    for target, attribute, *_ in SIMULATION[name]():
        if isinstance(target, ModuleType):
            assert _is_used(target, attribute), f"nobody finds {attribute} in {target.__name__}: nothing is changed"
    with mutated(SIMULATION[name]):
        pass


def _is_used(module: ModuleType, name: str) -> bool:
    """By the module itself, or by others as its attribute. Who imports it by name has it already, and keeps it."""
    own = ast.walk(ast.parse(inspect.getsource(module)))
    if any(isinstance(node, ast.Name) and node.id == name for node in own):
        return True
    reference = f"{module.__name__.rpartition('.')[2]}.{name}"
    sources = pathlib.Path(inspect.getsourcefile(minilog_broker) or "").parent.rglob("*.py")
    return any(reference in path.read_text() for path in sources)


def test_every_mutant_has_a_row() -> None:
    """A row without a seed is a mutant that is wanted: it says how many seeds it lived through."""
    assert ROWS.keys() == SIMULATION.keys()
