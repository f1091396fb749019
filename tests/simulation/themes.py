"""Half of the seeds have a theme: the plan as drawn, narrowed to the faults that meet in one kind of trouble.

What needs three rare things in a row is seldom met where twenty kinds of fault are drawn alike. A theme knows kinds of
trouble (disks, elections, memberships), never a wrong rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.plan import Plan


def members(plan: Plan, rng: random.Random) -> Plan:
    """Who is in sync changes all the time: followers fall behind and catch up, replicas are taken away and given back.

    Leaders mostly stay: a session with the controller outlasts most cuts, a lag does not.
    """
    return replace(
        plan,
        nodes=rng.choice((3, 4)),
        voters=rng.choice((1, 1, 3)),
        topic_count=1,
        partitions=1,
        replication_factor=3,
        min_in_sync=rng.choice((1, 2)),
        replica_lag_time_max_ms=rng.choice((300.0, 600.0, 1_200.0)),
        broker_session_timeout_ms=6_000.0,
        quiet_ms=1_500.0,
        safety_ms=12_000.0,
        write_pauses_ms=(30.0, 300.0, 1_000.0),
        load_pause_ms=100.0,
        links_of_nodes=True,
        faults=type(plan.faults)(
            kill=rng.choice((0.0, 0.2)),
            clean_restart=rng.choice((0.0, 0.4)),
            cut_one_way=rng.choice((0.3, 0.8)),
            cut_two_ways=rng.choice((0.3, 0.8)),
            isolate=rng.choice((0.0, 0.5)),
            slow_link=rng.choice((0.0, 1.0)),
            lossy_link=rng.choice((0.0, 0.5)),
            reset=rng.choice((0.0, 0.5)),
            slow_disk=rng.choice((0.4, 1.2)),
            disk_full=rng.choice((0.0, 0.5)),
        ),
        operations=type(plan.operations)(move_leader=rng.choice((0.0, 0.2)), reassign=rng.choice((0.0, 1.0, 4.0))),
    )


def stretched(plan: Plan, rng: random.Random) -> Plan:
    """Brokers are far from each other, clients are near, and write without a pause: a follower is always behind."""
    return replace(
        plan,
        nodes=3,
        voters=rng.choice((1, 3)),
        topic_count=1,
        partitions=1,
        replication_factor=rng.choice((2, 2, 3)),
        min_in_sync=1,
        latency_ms=(0.05, 0.5),
        between_nodes_ms=rng.choice((20.0, 40.0)),
        sync_ms=(0.05, 0.5),
        fetch_credit_bytes=1 << 20,  # what is under way on long lines
        quiet_ms=1_500.0,
        safety_ms=4_000.0,
        liveness_ms=10_000.0,
        producer_counts=(2, 3),
        write_pauses_ms=(8.0, 30.0),
        load_pause_ms=10.0,
        faults=type(plan.faults)(kill=0.4, clean_restart=0.3, pause=0.2, cut_two_ways=0.3, isolate=0.3, reset_all=0.3),
        operations=type(plan.operations)(move_leader=rng.choice((0.0, 0.3)), reassign=rng.choice((0.0, 0.3))),
    )


THEMES: dict[str, Callable[[Plan, random.Random], Plan]] = {"members": members, "stretched": stretched}
THEMED_SHARE = 0.5


def narrowed(plan: Plan, seed: int, name: str | None = None) -> Plan:
    """The plan of a seed under its theme, if it has one; under the theme `name` where that is asked for."""
    rng = random.Random(f"theme {seed}")
    if name is None and THEMES and rng.random() < THEMED_SHARE:
        name = rng.choice(list(THEMES))
    return plan if name is None else THEMES[name](plan, rng)
