"""Seeded random histories of three replicas: messages lost and late, crashes that lose what was not synced, elections.

After every event V1 to V10, V14, V17 and V18 hold; after the faults end, V19 does. The seed is in the failure's text:
`ReplicationHistory(seed).run()` is the same history again.
"""

from __future__ import annotations

import pytest

from tests.rules import mutated, proves
from tests.rules.table import HISTORIES
from tests.unit.replication.histories import ReplicationHistory

pytestmark = proves("V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "V9", "V10", "V14", "V17", "V18", "V19")

SEEDS = 60
SEEDS_PER_TEST = 20
READING_SEEDS = 4
ROTTING_SEEDS = 20
COLD_SEEDS = 8
SEEDS_TO_KILL_A_MUTANT = 60
LATE = {  # rare: the search begins where they are known to be found
    "4 ISR grows against a lagging high watermark": 58,
    "5 HW over the committed ISR while a growth is pending": 10,
    "24 progress before fsync": 52,
    "V10 a lost proposal is forgotten": 78,
    "a follower never answers": 9,
}

READING = (
    "11 a read ahead of a follower's HW answered as out of range",
    "a follower shows what is not committed",
    "a follower never answers",
)
"""Wrong rules that only a reader that goes anywhere sees."""
ROTTING = ("progress survives being put out",)
"""Wrong rules that only copies that rot show."""


@pytest.mark.parametrize("first_seed", range(0, SEEDS, SEEDS_PER_TEST))
def test_the_invariants_hold_after_every_event(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        try:
            ReplicationHistory(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("name", [name for name in HISTORIES if name not in READING + ROTTING])
def test_a_wrong_rule_is_found(name: str) -> None:
    first_seed = LATE.get(name, 0)
    with mutated(HISTORIES[name]):
        for seed in range(first_seed, first_seed + SEEDS_TO_KILL_A_MUTANT):
            try:
                ReplicationHistory(seed).run()
            except (AssertionError, ValueError):
                return
    pytest.fail(f"{name}: {SEEDS_TO_KILL_A_MUTANT} histories did not find it")


@proves("ISR.4")
@pytest.mark.parametrize("first_seed", range(0, ROTTING_SEEDS, SEEDS_PER_TEST))
def test_the_invariants_hold_where_copies_rot_and_are_cut_within_a_life(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        try:
            ReplicationHistory(seed, rots=True).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, with rot: {error}") from error


@pytest.mark.parametrize("name", ROTTING)
def test_a_wrong_rule_about_copies_that_are_cut_is_found(name: str) -> None:
    with mutated(HISTORIES[name]):
        for seed in range(SEEDS_TO_KILL_A_MUTANT):
            try:
                ReplicationHistory(seed, rots=True).run()
            except AssertionError:
                return
    pytest.fail(f"{name}: {SEEDS_TO_KILL_A_MUTANT} histories did not find it")


@pytest.mark.dear("it runs random histories")
@pytest.mark.parametrize("kind", [{}, {"reads_anywhere": True}, {"rots": True}])
def test_the_invariants_hold_where_all_that_is_sent_has_to_be_waited_for(kind: dict[str, bool]) -> None:
    for seed in range(COLD_SEEDS):
        try:
            ReplicationHistory(seed, is_cold=True, **kind).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, cold, {kind}: {error}") from error


def test_readers_anywhere_see_all_that_is_committed_once_and_nothing_else() -> None:
    for seed in range(READING_SEEDS):
        try:
            ReplicationHistory(seed, reads_anywhere=True).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, reading anywhere: {error}") from error


@pytest.mark.parametrize("name", READING)
def test_a_wrong_rule_for_reading_from_followers_is_found(name: str) -> None:
    first_seed = LATE.get(name, 0)
    with mutated(HISTORIES[name]):
        for seed in range(first_seed, first_seed + SEEDS_TO_KILL_A_MUTANT):
            try:
                ReplicationHistory(seed, reads_anywhere=True).run()
            except AssertionError:
                return
    pytest.fail(f"{name}: {SEEDS_TO_KILL_A_MUTANT} histories did not find it")
