"""How a theme narrows a plan: fewer brokers, other settings, some faults alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from tests.simulation.plan import Plan


def configured(plan: Plan, **settings: object) -> dict[int, dict[str, str]]:
    """Every broker with these besides."""
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return {number: {**dict(configs), **given} for number, configs in plan.configs.items()}


def of_brokers(plan: Plan, brokers: int) -> Plan:
    """With so many brokers, which are configured as the first is."""
    configs = {number: dict(plan.configs[1]) for number in range(1, brokers + 1)}
    rates = {number: rate for number, rate in plan.clock_rates.items() if number <= brokers}
    racks = {number: rack for number, rack in plan.racks.items() if number <= brokers}
    voters = plan.voters if plan.voters <= brokers else 3
    return replace(plan, brokers=brokers, voters=voters, configs=configs, clock_rates=rates, racks=racks)


def weights(chance: random.Random, **given: float | tuple[float, ...]) -> Mapping[str, float]:
    """Of several one is drawn; 0: not in this seed."""
    drawn = {name: chance.choice(each) if isinstance(each, tuple) else each for name, each in given.items()}
    return {name: weight for name, weight in drawn.items() if weight}
