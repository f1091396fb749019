"""Placement: hosts first, then brokers, leaders round robin, the same for the same random."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from minilog_broker.controller.placement import place_replicas

HOSTS = [
    {1: "a"},
    {1: "a", 2: "b", 3: "c"},
    {1: "a", 2: "a", 3: "b"},
    {1: "a", 2: "a", 3: "b", 4: "b"},
    {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"},
    {broker: f"h{broker % 3}" for broker in range(9)},
]


@pytest.mark.parametrize("hosts", HOSTS)
def test_no_two_replicas_on_a_host_while_another_is_free_and_all_on_different_brokers(hosts: dict[int, str]) -> None:
    free = len(set(hosts.values()))
    for factor, partitions, seed in itertools.product(range(1, len(hosts) + 1), (1, 2, 7, 24), range(4)):
        for replicas in place_replicas(hosts, partitions, factor, random.Random(seed)):
            assert len(set(replicas)) == factor
            used = Counter(hosts[broker] for broker in replicas)
            assert len(used) == min(factor, free)


@pytest.mark.parametrize("hosts", HOSTS)
def test_leaders_go_round_robin(hosts: dict[int, str]) -> None:
    placed = place_replicas(hosts, 5 * len(hosts), 1, random.Random(3))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {5}


def test_replicas_are_spread_evenly_over_equal_brokers() -> None:
    hosts = {broker: f"h{broker}" for broker in range(6)}
    load = Counter(itertools.chain.from_iterable(place_replicas(hosts, 60, 3, random.Random(1))))
    assert set(load.values()) == {30}


def test_a_lost_leaders_partitions_fall_to_several_brokers() -> None:
    hosts = {broker: f"h{broker}" for broker in range(6)}
    placed = place_replicas(hosts, 60, 3, random.Random(1))
    assert len({replicas[1] for replicas in placed if replicas[0] == 0}) > 2


def test_the_start_is_random_and_the_rest_follows_from_it() -> None:
    hosts = HOSTS[1]
    assert place_replicas(hosts, 4, 2, random.Random(5)) == place_replicas(hosts, 4, 2, random.Random(5))
    assert len({place_replicas(hosts, 1, 1, random.Random(seed))[0] for seed in range(30)}) == 3


@pytest.mark.parametrize("factor", [0, 4])
def test_more_replicas_than_brokers_do_not_fit(factor: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        place_replicas(HOSTS[1], 1, factor, random.Random(0))
