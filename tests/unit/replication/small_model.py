"""A small model of replication, searched breadth first: every state within the bounds is reached and judged.

    python -m tests.unit.replication.small_model --epochs 4 --records 3 --restarts 2
    python -m tests.unit.replication.small_model --mutant "6 HW moves below min"      within the mutant's own bounds

States are told apart by a hash of 64 bits (as SPIN's hash compaction: with a million states, one in 37 million such
searches confuses two). A broken invariant ends the search with the shortest history that leads to it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.rules import mutated
from tests.rules.table import SMALL_MODEL
from tests.unit.replication.small_model_judge import InvariantBroken, SmallModelJudge
from tests.unit.replication.small_model_mutants import BOUNDS
from tests.unit.replication.small_model_rules import Rules, Step
from tests.unit.replication.small_model_state import Partitions, ReplicationBounds, ReplicationModelState, first_state

_NAMES = {
    "append": "leader {0} appends a record",
    "flush": "broker {0} syncs its log",
    "learn": "broker {0} sees the committed metadata",
    "power": "broker {0} loses power, and what it had not synced",
    "restart": "broker {0} starts as a new life",
    "damaged": "broker {0} starts as a new life with one synced record less: damaged",
    "again": "leader {0} sends its proposal again",
    "drop": "leader {0} proposes the ISR without {1}",
    "join": "leader {0} proposes {1} for the ISR",
    "fetch": "broker {0} fetches from leader {1}",
    "fence": "the controller fences broker {0}",
    "unfence": "the controller unfences broker {0}",
    "judge": "the controller judges the proposal of broker {0}",
}


@dataclass
class ReplicationSearch:
    """The result: how many states and steps there are, how deep, and the history to what is broken, if anything."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    broken: str | None = None
    history: list[str] = field(default_factory=list)
    complete: bool = False  # all states within the bounds were visited


def search(bounds: ReplicationBounds, *, max_states: int | None = None) -> ReplicationSearch:
    """Visit all states within `bounds`, at most `max_states`, in the order of their distance from the first."""
    partitions = Partitions()
    rules, judge = Rules(bounds, partitions), SmallModelJudge(partitions, bounds.min_in_sync)
    first = first_state(partitions)
    parents: dict[int, tuple[int, Step] | None] = {hash(first): None}
    frontier, found = [first], ReplicationSearch(states=1)
    while frontier:
        found.depth += 1
        reached: list[ReplicationModelState] = []
        for state in frontier:
            step: Step | None = None
            try:
                for step, after in rules.next_states(state):
                    found.steps += 1
                    judged = judge.judged(state, after)
                    if (name := hash(judged)) not in parents:
                        parents[name] = (hash(state), step)
                        reached.append(judged)
                    step = None  # whatever is broken now is so in the next step, before it is named
            except InvariantBroken as error:
                found.states, found.broken = len(parents), str(error)
                found.history = [*_history(parents, hash(state)), *([_told(step)] if step else [])]
                return found
            if max_states is not None and len(parents) >= max_states:
                found.states = len(parents)
                return found
        frontier = reached
        found.states = len(parents)
    found.complete = True
    return found


def _told(step: Step) -> str:
    return _NAMES[step[0]].format(*step[1])


def _history(parents: dict[int, tuple[int, Step] | None], name: int) -> Iterator[str]:
    steps = []
    while (parent := parents[name]) is not None:
        name, step = parent
        steps.append(_told(step))
    return reversed(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description="Search the small model of replication.")
    defaults = ReplicationBounds()
    parser.add_argument("--epochs", type=int, default=defaults.leader_epochs)
    parser.add_argument("--partition-epochs", type=int, default=defaults.partition_epochs)
    parser.add_argument("--records", type=int, default=defaults.records)
    parser.add_argument("--restarts", type=int, default=defaults.restarts)
    parser.add_argument("--damages", type=int, default=defaults.damages)
    parser.add_argument("--min-in-sync", type=int, default=defaults.min_in_sync)
    parser.add_argument("--synced", action="store_true", help="every write is synced at once: far fewer states")
    parser.add_argument("--at-once", action="store_true", help="a proposal is judged when it is made: the same")
    parser.add_argument("--max-states", type=int, default=None)
    parser.add_argument("--mutant", choices=sorted(BOUNDS), default=None)
    given = parser.parse_args()
    bounds = ReplicationBounds(
        leader_epochs=given.epochs,
        partition_epochs=given.partition_epochs,
        records=given.records,
        restarts=given.restarts,
        damages=given.damages,
        min_in_sync=given.min_in_sync,
        unsynced=not given.synced,
        delayed=not given.at_once,
    )
    if given.mutant:
        bounds = BOUNDS[given.mutant]
    started = time.monotonic()
    with mutated(SMALL_MODEL[given.mutant] if given.mutant else None):
        found = search(bounds, max_states=given.max_states)
    seconds = time.monotonic() - started
    print(f"{bounds}\n{found.states:,} states, {found.steps:,} steps, {found.depth} deep, {seconds:.1f} s")
    if found.broken:
        print(f"broken: {found.broken}")
        print("\n".join(f"  {number:2} {told}" for number, told in enumerate(found.history, 1)))
        raise SystemExit(1)
    print("all states within the bounds hold" if found.complete else "cut short: the states visited hold")


if __name__ == "__main__":
    main()
