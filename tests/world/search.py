"""A search, breadth first, of all states that a model reaches from its first one. Small models are searched so.

States are told apart by a hash of 64 bits (as SPIN's hash compaction: with a million states, one in 37 million such
searches confuses two). A broken invariant ends the search with the shortest history that leads to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from tests.judges.violation import Violation

State = TypeVar("State", bound=Hashable)
Step = TypeVar("Step")


@dataclass
class Search:
    """The result: how many states and steps there are, how deep, and the history to what is broken, if anything."""

    states: int = 1
    steps: int = 0
    depth: int = 0
    broken: str | None = None
    history: list[str] = field(default_factory=list)
    complete: bool = False  # all states within the bounds were visited


def search(
    first: State,
    next_states: Callable[[State], Iterable[tuple[Step, State]]],
    judged: Callable[[State, State], State],
    told: Callable[[Step], str],
    max_states: int | None = None,
) -> Search:
    """Visit all states, at most `max_states`, in the order of their distance from the first. `judged` checks a step,
    and gives the state back with what the judges remember."""
    parents: dict[int, tuple[int, Step] | None] = {hash(first): None}
    frontier, found = [first], Search()
    while frontier:
        found.depth += 1
        reached: list[State] = []
        for state in frontier:
            step: Step | None = None
            try:
                for step, after in next_states(state):
                    found.steps += 1
                    after = judged(state, after)
                    if (name := hash(after)) not in parents:
                        parents[name] = (hash(state), step)
                        reached.append(after)
                    step = None  # whatever is broken now is so in the next step, before it is named
            except Violation as error:
                found.states, found.broken = len(parents), str(error)
                steps = [*_history(parents, hash(state)), *(() if step is None else (step,))]
                found.history = [told(each) for each in steps]
                return found
            if max_states is not None and len(parents) >= max_states:
                found.states = len(parents)
                return found
        frontier = reached
        found.states = len(parents)
    found.complete = True
    return found


def _history(parents: dict[int, tuple[int, Step] | None], name: int) -> Iterator[Step]:
    steps = []
    while (parent := parents[name]) is not None:
        name, step = parent
        steps.append(step)
    return reversed(steps)
