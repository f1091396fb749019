"""The schema of a topic evolves while it is written and read, by rows and by some of its columns."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan


def typed(plan: Plan, chance: random.Random) -> Plan:
    """Brokers hear late of another version, or with a snapshot; leaders change, and replicas are read that lag."""
    plan = of_brokers(plan, chance.choice((3, 4)))
    return replace(
        plan,
        typed=True,
        filtered=chance.choice((2, 3)),
        partitions=chance.choice((1, 2)),
        racks={number: f"r{number % 2}" for number in plan.configs},
        consumers=2,
        consumer_racks=("", "r0", "r1"),
        producers=2,
        writers=0,
        queries=(),
        configs=configured(
            plan,
            metadata_log_max_record_bytes_between_snapshots=chance.choice((2_000, 16_777_216)),
            segment_bytes=chance.choice((4_096, 1 << 20)),
        ),
        write_pause_s=chance.choice((0.03, 0.06)),
        safety_s=8.0,
        fault_pause_s=chance.choice((0.3, 0.6)),
        faults=weights(
            chance,
            evolve=(3.0, 6.0),
            lie=(0.0, 0.3),
            kill=(0.0, 1.0),
            power=(0.0, 0.5),
            restart=(0.0, 0.5),
            cut=(0.0, 1.0),
            cut_one_way=(0.0, 1.0),
            isolate=(0.0, 0.5),
            isolate_leader=(0.0, 0.5),
            isolate_client=(0.0, 0.5),
            lossy_link=(0.0, 0.5),
            reset_all=(0.0, 0.5),
            stand_still=(0.0, 0.5),
            kill_client=(0.0, 1.0),
            stalled_reader=(0.0, 0.3),
            elect=(0.0, 1.0),
            reassign=(0.0, 0.5),
            trim=(0.0, 0.3),
            rot=(0.0, 0.0, 0.5),
        ),
    )
