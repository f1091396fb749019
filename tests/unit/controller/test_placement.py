"""Placement: racks first, then hosts, then brokers; leaders round robin; the same for the same random."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog_broker.controller.placement import Site, place_replicas
from tests.rules import proves

RACKS = [
    {1: "a"},
    {1: "a", 2: "b", 3: "c"},
    {1: "a", 2: "a", 3: "b"},
    {1: "a", 2: "a", 3: "b", 4: "b"},
    {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"},
    {broker: f"h{broker % 3}" for broker in range(9)},
]
MOST_IMBALANCE = 2
"""Replicas of a topic that one broker has more than another, where racks and hosts are equal: with host labels as
without."""


def racked(racks: Mapping[int, str]) -> dict[int, Site]:
    """Without a host label."""
    return {broker: Site(rack) for broker, rack in racks.items()}


def placed_by_racks_alone(
    hosts: Mapping[int, str], partitions: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """How it was before there were host labels: what brokers without one must get still."""
    by_host: defaultdict[str, list[int]] = defaultdict(list)
    for broker in sorted(hosts):
        by_host[hosts[broker]].append(broker)
    rank = {broker: (index, label) for label, brokers in by_host.items() for index, broker in enumerate(brokers)}
    order = sorted(hosts, key=lambda broker: rank[broker])
    start, load, placed = rng.randrange(len(order)), Counter[int](), []
    for index in range(partitions):
        first = (start + index) % len(order)
        chosen, shift = [order[first]], index // len(order)
        rest = [order[(first + 1 + (shift + step) % len(order)) % len(order)] for step in range(len(order))]
        used = Counter((hosts[order[first]],))
        while len(chosen) < replication_factor:
            free = ((used[hosts[each]], load[each], at, each) for at, each in enumerate(rest) if each not in chosen)
            chosen.append(min(free)[-1])
            used[hosts[chosen[-1]]] += 1
        load.update(chosen)
        placed.append(tuple(chosen))
    return placed


@st.composite
def clusters(draw: st.DrawFn) -> dict[int, Site]:
    """One to seven brokers; each host stands in one rack, some brokers have no host label."""
    brokers = draw(st.lists(st.integers(1, 30), min_size=1, max_size=7, unique=True))
    sites = {}
    for broker in brokers:
        rack = draw(st.sampled_from("abc"))
        host = draw(st.sampled_from([None, "1", "2", "3"]))
        sites[broker] = Site(rack, None if host is None else rack + host)
    return sites


def equal_clusters() -> st.SearchStrategy[dict[int, Site]]:
    """Racks of as many hosts, hosts of as many brokers, the numbers of the brokers anyhow."""

    def made(racks: int, hosts: int, brokers: int, seed: int) -> dict[int, Site]:
        places = [
            Site(f"r{rack}", f"r{rack}h{host}")
            for rack, host, _ in itertools.product(range(racks), range(hosts), range(brokers))
        ]
        random.Random(seed).shuffle(places)
        return dict(enumerate(places))

    return st.builds(made, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 9))


def unevenness(labels: Iterable[object]) -> int:
    """The smaller, the better spread: the sum of squares of how often each is there."""
    return sum(count * count for count in Counter(labels).values())


def host(sites: Mapping[int, Site], broker: int) -> object:
    return sites[broker].host or broker


@pytest.mark.parametrize("racks", RACKS)
def test_no_two_replicas_in_a_rack_while_another_is_free_and_all_on_different_brokers(racks: dict[int, str]) -> None:
    free = len(set(racks.values()))
    for factor, partitions, seed in itertools.product(range(1, len(racks) + 1), (1, 2, 7, 24), range(4)):
        for replicas in place_replicas(racked(racks), partitions, factor, random.Random(seed)):
            assert len(set(replicas)) == factor
            used = Counter(racks[broker] for broker in replicas)
            assert len(used) == min(factor, free)


@proves("MD.23")
@given(st.data(), clusters(), st.integers(1, 30), st.integers(0, 99))
def test_without_host_labels_nothing_is_another(
    data: st.DataObject, sites: dict[int, Site], partitions: int, seed: int
) -> None:
    racks = {broker: site.domain for broker, site in sites.items()}
    factor = data.draw(st.integers(1, len(sites)))
    before = placed_by_racks_alone(racks, partitions, factor, random.Random(seed))
    assert place_replicas(racked(racks), partitions, factor, random.Random(seed)) == before
    alone = {broker: Site(rack, f"host {broker}") for broker, rack in racks.items()}
    assert place_replicas(alone, partitions, factor, random.Random(seed)) == before


@proves("MD.23")
@given(st.data(), clusters(), st.integers(1, 20), st.integers(0, 99))
def test_racks_are_spread_over_as_before_and_hosts_as_far_as_that_allows(
    data: st.DataObject, sites: dict[int, Site], partitions: int, seed: int
) -> None:
    factor = data.draw(st.integers(1, len(sites)))
    every = list(itertools.combinations(sites, factor))
    best_racks = min(unevenness(sites[each].domain for each in chosen) for chosen in every)
    acceptable = [chosen for chosen in every if unevenness(sites[each].domain for each in chosen) == best_racks]
    best_hosts = min(unevenness(host(sites, each) for each in chosen) for chosen in acceptable)
    most_hosts = max(len({host(sites, each) for each in chosen}) for chosen in acceptable)
    racks = {broker: site.domain for broker, site in sites.items()}
    before = placed_by_racks_alone(racks, partitions, factor, random.Random(seed))
    for replicas, former in zip(place_replicas(sites, partitions, factor, random.Random(seed)), before, strict=True):
        assert len(set(replicas)) == factor
        by_rack = unevenness(sites[each].domain for each in replicas)
        assert by_rack == best_racks == unevenness(racks[each] for each in former)
        assert unevenness(host(sites, each) for each in replicas) == best_hosts
        assert len({host(sites, each) for each in replicas}) == most_hosts


@given(st.data(), clusters(), st.integers(0, 99))
def test_a_host_that_stands_in_two_racks_is_one_host(data: st.DataObject, sites: dict[int, Site], seed: int) -> None:
    """Labels that contradict each other, as while brokers get another rack in turn: two replicas still never share a
    host where the rack has another one that is free."""
    sites = {broker: Site(site.domain, site.host and site.host[1:]) for broker, site in sites.items()}
    (replicas,) = place_replicas(sites, 1, data.draw(st.integers(1, len(sites))), random.Random(seed))
    for at, each in enumerate(replicas):
        before = {host(sites, other) for other in replicas[:at]}
        free = [other for other in sites if other not in replicas[:at] and sites[other].domain == sites[each].domain]
        if at > 0 and host(sites, each) in before:
            assert all(host(sites, other) in before for other in free)


@given(st.data(), clusters(), st.integers(1, 5), st.integers(0, 99))
def test_leaders_go_round_robin(data: st.DataObject, sites: dict[int, Site], rounds: int, seed: int) -> None:
    factor = data.draw(st.integers(1, len(sites)))
    placed = place_replicas(sites, rounds * len(sites), factor, random.Random(seed))
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(sites, rounds)


@proves("MD.23")
@settings(max_examples=300)
@given(st.data(), equal_clusters(), st.integers(1, 60), st.integers(0, 99))
def test_equal_hosts_leave_the_brokers_as_evenly_loaded_as_before(
    data: st.DataObject, sites: dict[int, Site], partitions: int, seed: int
) -> None:
    factor = data.draw(st.integers(1, len(sites)))
    racks = {broker: site.domain for broker, site in sites.items()}

    def imbalance(placed: list[tuple[int, ...]]) -> int:
        load = Counter(itertools.chain.from_iterable(placed))
        return max(load[each] for each in sites) - min(load[each] for each in sites)

    assert imbalance(placed_by_racks_alone(racks, partitions, factor, random.Random(seed))) <= MOST_IMBALANCE
    assert imbalance(place_replicas(sites, partitions, factor, random.Random(seed))) <= MOST_IMBALANCE


def test_a_host_with_fewer_replicas_comes_first_among_equal_brokers() -> None:
    """A case in which one broker got three replicas more than another."""
    places = [Site(f"r{rack}", f"r{rack}h{number}") for rack in range(2) for number in range(3) for _ in range(3)]
    random.Random(8).shuffle(places)
    sites = dict(enumerate(places))
    load = Counter(itertools.chain.from_iterable(place_replicas(sites, 19, 5, random.Random(5))))
    assert max(load.values()) - min(load[broker] for broker in sites) <= MOST_IMBALANCE


def test_replicas_are_spread_evenly_over_equal_brokers() -> None:
    racks = {broker: f"h{broker}" for broker in range(6)}
    load = Counter(itertools.chain.from_iterable(place_replicas(racked(racks), 60, 3, random.Random(1))))
    assert set(load.values()) == {30}


def test_a_lost_leaders_partitions_fall_to_several_brokers() -> None:
    racks = {broker: f"h{broker}" for broker in range(6)}
    placed = place_replicas(racked(racks), 60, 3, random.Random(1))
    assert len({replicas[1] for replicas in placed if replicas[0] == 0}) > 2


def test_the_start_is_random_and_the_rest_follows_from_it() -> None:
    sites = racked(RACKS[1])
    assert place_replicas(sites, 4, 2, random.Random(5)) == place_replicas(sites, 4, 2, random.Random(5))
    assert len({place_replicas(sites, 1, 1, random.Random(seed))[0] for seed in range(30)}) == 3


@pytest.mark.parametrize("factor", [0, 4])
def test_more_replicas_than_brokers_do_not_fit(factor: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        place_replicas(racked(RACKS[1]), 1, factor, random.Random(0))
