"""Users are known, and rules and quotas come and go, while leaders change and brokers begin anew."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import of_brokers, weights
from tests.simulation.plan import Plan, with_users


def users(plan: Plan, chance: random.Random) -> Plan:
    """Brokers forget their sessions, hear of rules late or with a snapshot, and lead meanwhile."""
    plan = of_brokers(plan, chance.choice((3, 4)))
    plan = replace(
        plan,
        partitions=chance.choice((1, 2)),
        producers=2,
        consumers=1,
        writers=chance.choice((0, 1)),
        queries=chance.choice(((), ("q0",))),
        levels={},
        safety_s=12.0,
        fault_pause_s=chance.choice((0.3, 0.8)),
        faults=weights(
            chance,
            secure=(0.0, 0.5),
            kill=(0.3, 1.0),
            restart=(0.3, 1.0),
            kill_all=(0.0, 0.2),
            power=(0.0, 0.5),
            elect=(0.3, 1.0),
            isolate=(0.0, 0.5),
            isolate_leader=(0.0, 0.5),
            cut_one_way=(0.0, 0.3),
            stand_still=(0.0, 0.5),
            sick_peer=(0.0, 0.5),
            reset_all=(0.0, 0.3),
            reassign=(0.0, 0.3),
        ),
    )
    return with_users(plan, chance)


def quotas(plan: Plan, chance: random.Random) -> Plan:
    """One user takes what he gets by any number of connections, while brokers begin anew and leaders change."""
    plan = replace(users(of_brokers(plan, 3), chance), producers=1, writers=0, queries=(), glutton=True)
    faults = weights(
        chance, kill=(0.0, 0.3), restart=(0.3, 0.5), elect=(0.3, 1.0), isolate=(0.0, 0.3), access=(0.3, 0.5)
    )
    return replace(plan, faults=faults, fault_pause_s=chance.choice((1.0, 2.0)))


def cut_off(plan: Plan, chance: random.Random) -> Plan:
    """A broker hears of no rule, and the guest hears it alone: little else befalls. Not drawn."""
    plan = replace(
        users(of_brokers(plan, 3), chance), producers=1, writers=0, queries=(), safety_s=14.0, fault_pause_s=0.8
    )
    return replace(plan, faults={"access": 1.0, "cut_from_rules": 1.0})
