"""The small model, searched whole within small bounds; and each wrong rule found, by its shortest history.

Larger bounds by command: python -m tests.unit.replication.small_model --help
"""

from __future__ import annotations

import pytest

from tests.rules import mutated, proves
from tests.rules.table import SMALL_MODEL
from tests.unit.replication.small_model import search
from tests.unit.replication.small_model_mutants import BOUNDS
from tests.unit.replication.small_model_state import ReplicationBounds

pytestmark = proves("V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "V9", "V10", "V17", "V18")

# Bounds, and how many states there are within them: another number means that the rules or the model changed.
WHOLE = {
    "unsynced writes are lost, brokers restart": (ReplicationBounds(partition_epochs=1, restarts=1), 12_574),
    "two records, leaders cut off": (ReplicationBounds(partition_epochs=1, records=2), 23_882),
    "the ISR shrinks and grows at once": (ReplicationBounds(partition_epochs=3, unsynced=False, delayed=False), 27_607),
    "one is enough for the ISR": (ReplicationBounds(unsynced=False, min_in_sync=1), 16_489),
}


@pytest.mark.parametrize("name", WHOLE)
def test_all_states_within_the_bounds_hold(name: str) -> None:
    bounds, states = WHOLE[name]
    found = search(bounds)
    assert found.broken is None, "\n".join([found.broken, *found.history])
    assert found.complete
    assert found.states == states


@pytest.mark.parametrize("name", SMALL_MODEL)
def test_a_wrong_rule_is_found(name: str) -> None:
    with mutated(SMALL_MODEL[name]):
        found = search(BOUNDS[name])
    assert found.broken is not None, f"{found.states} states hold"
    assert found.history
