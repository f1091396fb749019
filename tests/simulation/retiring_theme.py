"""The theme of brokers that go."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import of_brokers, weights
from tests.simulation.plan import Plan


def retiring(plan: Plan, chance: random.Random) -> Plan:
    """Brokers are cordoned, decommissioned and forgotten while others die and are cut off."""
    return replace(
        of_brokers(plan, 5),
        voters=3,
        topics=2,
        partitions=3,
        replication_factor=chance.choice((2, 3)),
        writers=1,
        silent_partitions=40,  # more of one broker than may move at once
        fault_pause_s=0.6,
        faults=weights(
            chance,
            decommission=(2.0, 4.0),
            cordon=(0.5, 1.5),
            forget=(0.3, 1.0),
            topics=(0.5, 1.0),
            kill=(0.5, 1.5),
            power=(0.0, 0.5),
            restart=(0.0, 1.0),
            isolate_leader=(0.0, 0.7),
            cut=(0.0, 0.7),
            slow_disk=(0.0, 0.5),
            reassign=(0.0, 1.0),
        ),
    )
