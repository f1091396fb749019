"""Since when a write has all that it needs, from outside: replicas, voters and a controller that can do what they
should. V19.

well    a host runs, its disk works, and no link of it is cut, slow or breaks
sound   the same, but some links of it may be cut
good    so many replicas as a write needs, and a majority of the voters, are well, whoever is the controller; or they
        are sound, the replicas and the controller hear each other, and a majority of the voters hears the controller
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.judge.hearing import Lead
    from tests.simulation.machines.host import SimulatedHost


def good_since_s(cluster: SimulatedCluster, lead: Lead | None, replicas: list[SimulatedHost], count: int) -> float:
    """Since when there is all that a write needs; infinity where something is missing."""
    well_s = max(_majority(cluster, _well_since_s), sorted(map(_well_since_s, replicas))[count - 1])
    return min(well_s, _sound_since_s(cluster, lead, replicas, count))


def heard_since_s(cluster: SimulatedCluster, lead: Lead | None, host: SimulatedHost) -> float:
    """Since when a host can do what a controller asks of it: it is well, or sound, and the controller hears it."""
    well_s = _well_since_s(host)
    if lead is None:
        return well_s
    controller = cluster.hosts[lead.number]
    return min(well_s, max(host.sound_since_s, cluster.network.joined_since_s(host.name, controller.name)))


def _well_since_s(host: SimulatedHost) -> float:
    return host.well_since_s if host.is_well else math.inf


def _majority(cluster: SimulatedCluster, since_s: Callable[[SimulatedHost], float]) -> float:
    sets = ([cluster.hosts[number] for number in voter_ids] for voter_ids in cluster.voter_sets())
    return max(sorted(map(since_s, voters))[len(voters) // 2] for voters in sets)


def _sound_since_s(cluster: SimulatedCluster, lead: Lead | None, replicas: list[SimulatedHost], count: int) -> float:
    if lead is None or cluster.hosts[lead.number].lives != lead.life:
        return math.inf
    heard_s = functools.partial(heard_since_s, cluster, lead)
    voters_s = max(lead.since_s, cluster.hosts[lead.number].sound_since_s, _majority(cluster, heard_s))
    together_s = math.inf
    for chosen in itertools.combinations(replicas, count):
        pairs = itertools.combinations([host.name for host in chosen], 2)
        times_s = [*map(heard_s, chosen), *(cluster.network.joined_since_s(*pair) for pair in pairs)]
        together_s = min(together_s, max(times_s))
    return max(voters_s, together_s)
