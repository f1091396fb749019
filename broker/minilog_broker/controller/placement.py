"""Where the replicas of new partitions go. Pure; the random start is the caller's.

Replicas of one partition are spread over hosts first (never two on one host while another is free), then over brokers
by what each has got so far. The first replica, which leads, goes round robin over the brokers, hosts taking turns.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping


def place_replicas(
    hosts: Mapping[int, str], partitions: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first. `hosts`: host label by usable broker id.

    Raises ValueError where there are fewer brokers than replicas; what to say of it is the caller's matter.
    """
    if not 1 <= replication_factor <= len(hosts):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(hosts)} brokers")
    order = _alternating(hosts)
    start = rng.randrange(len(order))
    load: Counter[int] = Counter()
    placed = []
    for index in range(partitions):
        first = (start + index) % len(order)
        chosen = [order[first]]
        # Followers of one leader shift by one each round, so that a lost leader's load falls on all.
        shift = index // len(order)
        rest = [order[(first + 1 + (shift + step) % len(order)) % len(order)] for step in range(len(order))]
        used = Counter((hosts[order[first]],))
        while len(chosen) < replication_factor:
            free = ((used[hosts[each]], load[each], at, each) for at, each in enumerate(rest) if each not in chosen)
            broker = min(free)[-1]
            chosen.append(broker)
            used[hosts[broker]] += 1
        for broker in chosen:
            load[broker] += 1
        placed.append(tuple(chosen))
    return placed


def _alternating(hosts: Mapping[int, str]) -> list[int]:
    """The brokers so that hosts take turns: the first of each host, then the second of each, and so on."""
    by_host: defaultdict[str, list[int]] = defaultdict(list)
    for broker in sorted(hosts):
        by_host[hosts[broker]].append(broker)
    rank = {broker: (index, label) for label, brokers in by_host.items() for index, broker in enumerate(brokers)}
    return sorted(hosts, key=lambda broker: rank[broker])
