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


def disks(plan: Plan, rng: random.Random) -> Plan:
    """Few copies on slow disks, where either bits rot or crashes come in a row: a disk has less than was said of it."""
    rot = rng.random() < 0.4
    return replace(
        plan,
        nodes=3,
        voters=rng.choice((1, 3)),
        topic_count=1,
        partitions=rng.choice((1, 2, 3)),
        replication_factor=rng.choice((2, 2, 3) if rot else (1, 2)),
        min_in_sync=rng.choice((1, 1, 2)),
        flush_on_append=True,
        segment_bytes=rng.choice((4_096, 1 << 20, 1 << 20)),
        sync_ms=rng.choice(((1.0, 40.0), (20.0, 200.0), (50.0, 300.0))),
        fetch_credit_bytes=64_000,  # less does not keep up with the load of the liveness phase on such a disk
        replica_lag_time_max_ms=2_000.0,
        checkpoint_interval_ms=rng.choice((200.0, 1_000.0)),
        quiet_ms=1_000.0,
        safety_ms=12_000.0,
        operations=replace(plan.operations, create_topic=0.0, delete_topic=0.0, reassign=0.0),
        faults=type(plan.faults)(
            kill=rng.choice((0.3, 1.0) if rot else (1.0, 2.0)),
            kill_of_all=rng.choice((0.1, 0.3)),
            power_loss=rng.choice((0.0, 0.3)) if rot else 0.0,
            power_loss_early=0.0 if rot else 1.0,
            power_loss_of_all=rng.choice((0.1, 0.3)),
            crash_in_disk=rng.choice((0.0, 0.3)),
            bit_flip=3.0 if rot else 0.0,
        ),
    )


THEMES: dict[str, Callable[[Plan, random.Random], Plan]] = {"disks": disks}
THEMED_SHARE = 0.5


def narrowed(plan: Plan, seed: int, name: str | None = None) -> Plan:
    """The plan of a seed under its theme, if it has one; under the theme `name` where that is asked for."""
    rng = random.Random(f"theme {seed}")
    if name is None and THEMES and rng.random() < THEMED_SHARE:
        name = rng.choice(list(THEMES))
    return plan if name is None else THEMES[name](plan, rng)
