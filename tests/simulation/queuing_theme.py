"""The themes of queues."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan

DEPOSED_SHARE = 0.3  # of the seeds: nothing but a coordinator that goes on for those who reach it


def queuing(plan: Plan, chance: random.Random) -> Plan:
    """Workers take messages, hang, stand still and are killed while the coordinator of their queue moves, is cut off,
    or dies between decisions. Records are deleted that no worker has settled."""
    plan = of_brokers(plan, 3)
    return replace(
        plan,
        queuing=chance.choice((2, 3, 4)),
        levels={},
        voters=3,  # of one voter's cluster the coordinator's log has one copy, and nobody tells what is committed of it
        clock_rates={},
        partitions=chance.choice((1, 2)),
        producers=1,
        consumers=0,
        writers=chance.choice((0, 1, 2)),
        queries=(),
        write_pause_s=chance.choice((0.03, 0.1)),
        configs=configured(
            plan,
            segment_bytes=chance.choice((1_024, 65_536)),
            broker_session_timeout_ms=chance.choice((900, 1_500, 3_000)),
        ),
        fault_pause_s=0.6,
        faults={"depose": 1.0, "elect": 0.3}
        if chance.random() < DEPOSED_SHARE
        else weights(
            chance,
            elect=(0.5, 1.5),
            kill=(0.5, 1.5),
            power=(0.0, 0.5),
            restart=(0.0, 0.5),
            death_in_effects=(0.0, 1.0),
            death_in_disk=(0.0, 0.5),
            stand_still=(0.0, 0.7),
            slow_disk=(0.0, 0.5),
            hanging_disk=(0.0, 0.3),
            isolate=(0.0, 0.7),
            isolate_leader=(0.0, 0.5),
            depose=(0.0, 1.0),
            death_of_coordinator=(0.0, 1.0),
            isolate_client=(0.5, 1.5),
            cut=(0.0, 1.0),
            cut_one_way=(0.0, 1.0),
            slow_link=(0.0, 1.0),
            reset_all=(0.0, 0.5),
            lossy_link=(0.0, 0.5),
            trim=(0.0, 0.5),
            retain=(0.0, 0.3),
        ),
    )


def shrinking(plan: Plan, chance: random.Random) -> Plan:
    """The same, where operators and retention delete records all the time: most of them while workers hold them."""
    plan = queuing(plan, chance)
    kept = {name: weight for name, weight in plan.faults.items() if name in ("kill", "elect", "depose", "slow_disk")}
    faults = {**kept, **weights(chance, trim=(2.0, 4.0), retain=(1.0, 2.0))}
    return replace(plan, configs=configured(plan, segment_bytes=1_024), faults=faults, fault_pause_s=0.3)


def redriving(plan: Plan, chance: random.Random) -> Plan:
    """The same, while the dead letters of the queue are redriven again and again. Nothing deletes records: each letter
    makes its old record ready."""
    plan = queuing(plan, chance)
    kept = {name: weight for name, weight in plan.faults.items() if name not in ("trim", "retain")}
    return replace(plan, redriving=True, faults=kept)
