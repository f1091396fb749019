"""Themes of disks that hold other bytes than were written there (themes.py)."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan

FORGING_SHARE = 0.5


def damaged(plan: Plan, chance: random.Random) -> Plan:
    """One machine's disk rots, under readers of its rack, while processes come and go."""
    plan = of_brokers(plan, chance.choice((3, 4)))
    return replace(
        plan,
        voters=3,
        partitions=chance.choice((1, 2)),
        racks={number: f"r{number % 2}" for number in plan.configs},
        consumers=3,
        consumer_racks=("r0", "r1"),
        configs=configured(plan, segment_bytes=chance.choice((4_096, 1 << 20))),
        fault_pause_s=chance.choice((0.5, 1.0)),
        faults=weights(
            chance,
            rot=(0.0, 1.0, 3.0),
            rot_of_header=(0.0, 1.0, 3.0),
            rot_of_index=(0.0, 0.5),
            rot_of_small_file=(0.0, 0.5),
            rot_of_metadata=(0.0, 0.3),
            kill=(0.0, 0.5),
            kill_all=(0.0, 0.1),
            restart=(0.0, 0.5),
            kill_client=(0.0, 1.0),
            cut=(0.0, 2.0),
            cut_one_way=(0.0, 1.0),
            slow_link=(0.0, 1.0),
            elect=(0.0, 1.0),
        ),
    )


def scrubbed(plan: Plan, chance: random.Random) -> Plan:
    """The same under a scrub that never rests, where leaders move and records are deleted while copies are compared. In
    half of the seeds records of one copy are forged, too."""
    drawn = damaged(plan, chance)
    drawn = replace(
        drawn,
        configs=configured(drawn, segment_bytes=4_096, log_scrub_interval_ms=chance.choice((200, 1_000))),
        consumers=chance.choice((0, 1)),
        faults={**drawn.faults, "rot": 1.0, "elect": 1.0, "trim": 0.5, "reassign": 0.5},
    )
    return _forging(drawn) if chance.random() < FORGING_SHARE else drawn


def _forging(plan: Plan) -> Plan:
    """Nobody reads before the end: checksums cannot tell a reader what a scrub has not found yet. No replica is copied
    to another broker, where it would be a second copy of the forged records. Two of three decide."""
    faults = {name: weight for name, weight in plan.faults.items() if name != "reassign"}
    return replace(
        plan, replication_factor=3, consumers=0, filtered=0, writers=0, queries=(), faults={**faults, "forge": 3.0}
    )


def unheard(plan: Plan, chance: random.Random) -> Plan:
    """The same where nothing is committed without all three: who is put out by a leader that does not hear it has all
    that is committed, and would be taken back for what it told before."""
    drawn = damaged(plan, chance)
    return replace(
        drawn,
        replication_factor=3,
        min_in_sync=3,
        topic_configs={"min.insync.replicas": "3"},
        configs=configured(drawn, replica_lag_time_max_ms=chance.choice((300, 1_000)), broker_session_timeout_ms=6_000),
        faults={**drawn.faults, "cut": 2.0, "rot": 2.0},
    )
