"""The brokers for the replicas of new partitions, and the broker that replaces a replica that moves away.

Pure: the random start is the caller's.

Replicas of one partition are spread over failure domains first (racks, where brokers have them). Then they are spread
over hosts: never two on one host while another host of such a domain is free. Then the broker with the fewest replicas
counts. Where racks get several replicas of a partition, the host with the fewest replicas comes first among equal
brokers. The first replica, which leads, goes round robin over the brokers: domains take turns, and hosts within them.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple


class Site(NamedTuple):
    """The place of a broker: the things that fail together with it. `host` None: a host without other brokers."""

    domain: str
    host: str | None = None


def place_replicas(
    sites: Mapping[int, Site], partitions: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first. `sites`: those of the usable brokers, by id.

    Raises ValueError where there are fewer brokers than replicas. The caller makes the error for users.
    """
    if not 1 <= replication_factor <= len(sites):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(sites)} brokers")
    order = _alternating(sites)
    start = rng.randrange(len(order))
    load: Counter[int] = Counter()
    placed = []
    for index in range(partitions):
        first = (start + index) % len(order)
        # Followers of one leader shift by one each round, so that a lost leader's load falls on all.
        shift = index // len(order)
        rest = [order[(first + 1 + (shift + step) % len(order)) % len(order)] for step in range(len(order))]
        chosen = _chosen(sites, order[first], rest, replication_factor, load)
        load.update(chosen)
        placed.append(chosen)
    return placed


def replacement(sites: Mapping[int, Site], staying: Iterable[int], free: Iterable[int], load: Mapping[int, int]) -> int:
    """The broker of `free` that takes the place of a replica beside those that stay, by the same rules.

    `sites`: those of all brokers. `load`: replicas by broker. Raises ValueError where no broker is free."""
    stay = [broker for broker in staying if broker in sites]
    domains = Counter(sites[broker].domain for broker in stay)
    hosts = Counter(_host(broker, sites) for broker in stay)
    order = [
        (domains[sites[broker].domain], hosts[_host(broker, sites)], load.get(broker, 0), broker) for broker in free
    ]
    return min(order)[-1]


def _chosen(
    sites: Mapping[int, Site], first: int, rest: list[int], replication_factor: int, load: Counter[int]
) -> tuple[int, ...]:
    """The replicas of one partition. `rest`: the brokers, in the order that decides among equals."""
    chosen = [first]
    domains, hosts = Counter((sites[first].domain,)), Counter((_host(first, sites),))
    host_load = _host_load(sites, replication_factor, load)
    while len(chosen) < replication_factor:
        free = (
            (
                domains[sites[candidate].domain],
                hosts[_host(candidate, sites)],
                load[candidate],
                host_load[_host(candidate, sites)],
                at,
                candidate,
            )
            for at, candidate in enumerate(rest)
            if candidate not in chosen
        )
        broker = min(free)[-1]
        chosen.append(broker)
        domains[sites[broker].domain] += 1
        hosts[_host(broker, sites)] += 1
    return tuple(chosen)


def _host_load(sites: Mapping[int, Site], replication_factor: int, load: Counter[int]) -> Counter[Hashable]:
    """The replicas by host. Empty where no domain gets two replicas of a partition: there hosts do not matter."""
    host_load: Counter[Hashable] = Counter()
    if replication_factor > len({site.domain for site in sites.values()}):
        for broker in sites:
            host_load[_host(broker, sites)] += load[broker]
    return host_load


def _host(broker: int, sites: Mapping[int, Site]) -> Hashable:
    """The host of a broker, the same for all its brokers. A broker without a label has its number, which is no
    label."""
    label = sites[broker].host
    return broker if label is None else label


def _alternating(sites: Mapping[int, Site]) -> list[int]:
    """The brokers in an order in which domains take turns, and hosts within each: first the first of each, then the
    second."""
    seen: Counter[Hashable] = Counter()
    by_domain: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for broker in sorted(sites):
        domain, host = sites[broker].domain, _host(broker, sites)
        by_domain[domain].append((seen[domain, host], broker))
        seen[domain, host] += 1
    rank = {
        broker: (index, domain)
        for domain, brokers in by_domain.items()
        for index, (_, broker) in enumerate(sorted(brokers))
    }
    return sorted(sites, key=lambda broker: rank[broker])
