"""Seeded random histories of three replicas: messages lost and late, crashes that lose what was not synced, elections.

After every event V1 to V10, V14, V17 and V18 hold; after the faults end, V19 does. The seed is in the failure's name.
"""

from __future__ import annotations

import pytest

from tests.unit.replication.histories import History

SEEDS_PER_TEST = 25


@pytest.mark.parametrize("first_seed", range(0, 250, SEEDS_PER_TEST))
def test_the_invariants_hold_after_every_event(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_PER_TEST):
        try:
            History(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
