"""The theme of programs that count records by the headers of batches."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import of_brokers, weights
from tests.simulation.plan import Plan


def counting(plan: Plan, chance: random.Random) -> Plan:
    """Transactions commit and abort, leaders change, and records are deleted, while a program counts. Not drawn."""
    return replace(
        of_brokers(plan, 3),
        counting=True,
        typed=False,
        levels={},
        partitions=chance.choice((1, 2)),
        producers=1,
        consumers=1,
        writers=chance.choice((1, 2)),
        queries=(),
        quiet_s=1.0,
        safety_s=3.0,
        fault_pause_s=1.0,
        faults=weights(
            chance, elect=(0.5, 1.0), kill=(0.0, 0.5), restart=(0.0, 0.3), kill_client=(0.3, 1.0), trim=(0.0, 0.3)
        ),
    )
