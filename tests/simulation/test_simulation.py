"""The simulator's part of `make test`: some seeds of the true code, five of each theme that is asked for, and each
mutant's pin.

A pin that no longer kills was broken by a change of the code: `python -m tests.simulation --pin` searches anew. For
more seeds there is `make simulate`.
"""

from __future__ import annotations

import pytest

from tests.simulation import pins
from tests.simulation.mutants import MUTANTS
from tests.simulation.report import reproduce
from tests.simulation.run import run_seed
from tests.simulation.themes import ASKED_FOR

SEEDS = range(5, 20)
SEEDS_PER_TEST = 5
PINS = pins.load()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", SEEDS[::SEEDS_PER_TEST])
def test_the_invariants_hold(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        failure = run_seed(seed).failure
        assert failure is None, f"seed {seed}: {failure.message}; {reproduce(seed)}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", ASKED_FOR)
def test_the_invariants_hold_where_no_seed_goes_by_itself(theme: str) -> None:
    for seed in range(SEEDS_PER_TEST):
        failure = run_seed(seed, theme=theme).failure
        assert failure is None, f"seed {seed}: {failure.message}; {reproduce(seed, theme=theme)}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PINS)
def test_a_wrong_rule_is_found(name: str) -> None:
    assert pins.kills(name, PINS[name]), f"seed {PINS[name].seed} finds {name} no more: search anew, --pin"


def test_every_mutant_has_a_pin() -> None:
    assert PINS.keys() == MUTANTS.keys()


def test_the_same_seed_is_the_same_run() -> None:
    once, again = run_seed(7), run_seed(7, trace=True)
    assert (once.events, once.virtual_ms, once.states) == (again.events, again.virtual_ms, again.states)
    assert once.outcomes == again.outcomes


def test_a_commit_that_is_refused_at_once_until_its_time_is_over_ends() -> None:
    """The seed ran for ever: on virtual time who asks again without a wait asks at the same moment."""
    assert run_seed(500_925, max_events=100_000).failure is None
