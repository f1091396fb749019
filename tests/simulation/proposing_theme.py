"""The theme of programs whose writes bring new columns: versions of a schema that are pending, and go with a write."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan


def proposing(plan: Plan, chance: random.Random) -> Plan:
    """Two or three programs propose, commit, abort and die while controllers and coordinators change. Not drawn."""
    plan = of_brokers(plan, 3)
    return replace(
        plan,
        proposing=chance.choice((1, 2, 3)),
        typed=False,
        levels={},
        partitions=chance.choice((1, 2)),
        producers=1,
        consumers=1,
        writers=0,
        queries=(),
        configs=configured(plan, metadata_log_max_record_bytes_between_snapshots=chance.choice((2_000, 16_777_216))),
        write_pause_s=0.1,
        safety_s=6.0,
        fault_pause_s=chance.choice((0.5, 1.0)),
        faults=weights(
            chance,
            elect=(0.0, 0.5),
            kill=(0.3, 1.0),
            power=(0.0, 0.3),
            restart=(0.0, 0.5),
            isolate=(0.0, 0.5),
            isolate_leader=(0.0, 0.7),
            isolate_client=(0.0, 0.5),
            cut=(0.0, 0.5),
            reset_all=(0.0, 0.5),
            stand_still=(0.0, 0.5),
        ),
    )
