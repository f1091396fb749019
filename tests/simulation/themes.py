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
    from tests.simulation.plan import FaultRates, Plan


def clients(plan: Plan, rng: random.Random) -> Plan:
    """Users are cut off for seconds while leaders come and go, and take up then what they had begun before."""
    faults = type(plan.faults)(
        isolate=rng.choice((0.0, 0.2)),
        isolate_leader=rng.choice((0.6, 0.9)),
        isolate_client=rng.choice((1.5, 2.5)),
        slow_link=rng.choice((0.0, 2.0)),
        reset=rng.choice((0.0, 1.0)),
        disk_full=rng.choice((0.2, 0.6)),
        kill=rng.choice((0.0, 0.1)),
    )
    return replace(
        _one_partition(plan, rng, faults=faults),
        replication_factor=rng.choice((1, 3, 3, 3)),
        broker_session_timeout_ms=600.0,
        heartbeat_interval_ms=150.0,
        longest_cut_ms=2_500.0,
        producer_counts=(2, 3),
        delivery_timeouts_ms=(12_000, 20_000),
        safety_ms=15_000.0,
    )


def readers(plan: Plan, rng: random.Random) -> Plan:
    """Readers in racks, each at the replica that is near; some replicas are told late what is committed."""
    faults = type(plan.faults)(
        isolate_leader=rng.choice((0.0, 0.2)),
        isolate_client=rng.choice((0.0, 0.3)),
        slow_link=rng.choice((2.0, 4.0)),
        reset=rng.choice((0.5, 2.0)),
        power_loss=rng.choice((0.0, 0.2)) if plan.flush_on_append else 0.0,
    )
    return replace(
        _one_partition(plan, rng, faults=faults),
        consumer_counts=(3, 4),
        consumer_racks=("r1", "r2"),
        take_over_share=0.3,
    )


def _one_partition(plan: Plan, rng: random.Random, faults: FaultRates) -> Plan:
    """Three nodes, one partition on all of them that is written much, and leaders that go home soon."""
    return replace(
        plan,
        nodes=3,
        voters=3,
        topic_count=1,
        partitions=1,
        replication_factor=3,
        min_in_sync=rng.choice((1, 2)),
        replica_lag_time_max_ms=600.0,
        session_keepalive_ms=100.0,
        write_pauses_ms=(8.0, 30.0, 100.0),
        faults=faults,
        operations=type(plan.operations)(move_leader=rng.choice((0.5, 1.0, 2.0))),
    )


THEMES: dict[str, Callable[[Plan, random.Random], Plan]] = {"clients": clients, "readers": readers}
THEMED_SHARE = 0.5


def narrowed(plan: Plan, seed: int, name: str | None = None) -> Plan:
    """The plan of a seed under its theme, if it has one; under the theme `name` where that is asked for."""
    rng = random.Random(f"theme {seed}")
    if name is None and THEMES and rng.random() < THEMED_SHARE:
        name = rng.choice(list(THEMES))
    return plan if name is None else THEMES[name](plan, rng)
