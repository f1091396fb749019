"""Half of the seeds have a theme: the plan as drawn, narrowed to the faults that meet in one kind of trouble.

What needs three rare things in a row is seldom met where twenty kinds of fault are drawn alike. A theme knows kinds of
trouble (disks, elections, memberships), never a wrong rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.plan import Plan

THEMES: dict[str, Callable[[Plan, random.Random], Plan]] = {}
THEMED_SHARE = 0.5


def narrowed(plan: Plan, seed: int, name: str | None = None) -> Plan:
    """The plan of a seed under its theme, if it has one; under the theme `name` where that is asked for."""
    rng = random.Random(f"theme {seed}")
    if name is None and THEMES and rng.random() < THEMED_SHARE:
        name = rng.choice(list(THEMES))
    return plan if name is None else THEMES[name](plan, rng)
