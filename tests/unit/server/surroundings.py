"""What the parts of a server need from outside, where a test has none of it: whoever asks fails."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NoReturn

from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.clients.coordinator_calls import CallsHere
from minilog_broker.server.shells.replication_shell import Outside


def nobody(*asked: object) -> NoReturn:
    raise AssertionError(f"nobody is there to be asked for {asked}")


def outside(**given: Any) -> Outside:
    """What replicas ask for: what is `given`, and nobody else."""
    return Outside(**{each.name: given.pop(each.name, nobody) for each in fields(Outside)}, **given)


def calls_here(**given: Any) -> CallsHere:
    """What a broker answers itself: what is `given`, and nobody else."""
    return CallsHere(**{each.name: given.pop(each.name, nobody) for each in fields(CallsHere)}, **given)


def rules_of_now() -> RulesAge:
    """A controller has confirmed them, and they grow too old never."""
    age = RulesAge(1, float("inf"))
    age.confirmed(0.0)
    return age
