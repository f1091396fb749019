"""The theme of groups with members."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.clients.sharing import HEARTBEAT_INTERVAL_S, SESSION_TIMEOUT_S
from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan

DEPOSED_SHARE = 0.3  # of the seeds: nothing but a coordinator that goes on for those who reach it


def sharing(plan: Plan, chance: random.Random) -> Plan:
    """Members come, go, hang and are killed while their coordinator moves, is cut off, or dies between decisions."""
    plan = of_brokers(plan, 3)
    return replace(
        plan,
        sharing=chance.choice((2, 3, 4)),
        levels={},
        partitions=2,
        producers=1,
        consumers=0,
        writers=0,
        queries=(),
        configs=configured(
            plan,
            group_consumer_session_timeout_ms=int(1000 * SESSION_TIMEOUT_S),
            group_consumer_heartbeat_interval_ms=int(1000 * HEARTBEAT_INTERVAL_S),
            group_consumer_assignors=chance.choice(("uniform", "uniform", "range")),
        ),
        fault_pause_s=0.6,
        faults={"depose": 1.0, "elect": 0.3}
        if chance.random() < DEPOSED_SHARE
        else weights(
            chance,
            elect=(1.0, 2.0),
            kill=(0.5, 1.5),
            restart=(0.0, 0.5),
            death_in_effects=(0.0, 1.0),
            stand_still=(0.0, 0.7),
            isolate=(0.0, 0.7),
            isolate_leader=(0.0, 0.5),
            depose=(0.0, 1.0),
            death_of_coordinator=(0.0, 1.0),
            isolate_client=(0.0, 1.0),
            cut=(0.0, 1.0),
            cut_one_way=(0.0, 1.0),
            slow_link=(0.0, 1.0),
            reset_all=(0.0, 0.5),
            lossy_link=(0.0, 0.5),
        ),
    )
