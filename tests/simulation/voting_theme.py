"""The theme of voters that come and go."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan


def voting(plan: Plan, chance: random.Random) -> Plan:
    """Voters are added, removed and recorded anew while they die, are cut off, and lose their disks."""
    voters = chance.choice((1, 3, 3))
    drawn = of_brokers(plan, 5)
    return replace(
        drawn,
        voters=voters,
        partitions=1,
        replication_factor=3,
        producers=1,
        consumers=1,
        write_pause_s=0.1,
        fault_pause_s=0.5,
        configs=configured(drawn, metadata_log_max_record_bytes_between_snapshots=chance.choice((2_000, 1 << 24))),
        faults=weights(
            chance,
            change_voters=(2.0, 4.0),
            topics=(0.5, 1.5),
            kill=(0.5, 1.5),
            power=(0.0, 0.7),
            restart=(0.0, 1.0),
            isolate=(0.0, 0.6),
            isolate_leader=(0.0, 0.7),
            cut=(0.0, 0.7),
            reset_all=(0.0, 0.3),
            slow_link=(0.0, 0.5),
            stand_still=(0.0, 0.5),
            wrong_voters=(0.0, 1.0),
            emptied_disk=(0.0, 0.3) if voters == 3 else (0.0, 0.0),
        ),
    )
