"""Clients that fail again and again ask less and less often (KIP-580)."""

from __future__ import annotations

import asyncio
import contextlib
import random
from itertools import pairwise

import pytest

from minilog.config import parse_config
from minilog.net.backoff import ExponentialBackoff
from minilog.net.metadata_refreshes import MetadataRefreshes
from minilog.net.reconnects import Reconnects
from minilog.net.runtime import now_s
from minilog.types import TopicPartition
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.consuming import Consuming, fill
from tests.world.loop import play

FIRST, MOST = 50, 500
CONFIG = parse_config({"bootstrap.servers": "h:1", "retry.backoff.ms": FIRST, "retry.backoff.max.ms": MOST})


def backoff(seed: int = 1) -> ExponentialBackoff:
    return ExponentialBackoff(FIRST, MOST, random.Random(seed))


def test_pauses_double_up_to_the_longest_and_chance_moves_each_by_up_to_a_fifth() -> None:
    for seed in range(20):
        pauses = backoff(seed)
        for middle in (50.0, 100.0, 200.0, 400.0, 500.0, 500.0):
            assert 0.8 * middle <= pauses.next() <= 1.2 * middle
    assert backoff(1).next() != backoff(2).next(), "clients do not come at one moment"


def test_a_success_makes_the_next_pause_the_first_one() -> None:
    pauses = backoff()
    for _ in range(5):
        pauses.next()
    pauses.reset()
    assert pauses.next() <= 1.2 * FIRST


def test_a_very_long_row_of_failures_overflows_nothing() -> None:
    pauses = backoff()
    assert all(pauses.next() <= 1.2 * MOST for _ in range(5_000))


def test_each_broker_has_pauses_of_its_own_which_end_with_a_stream() -> None:
    reconnects = Reconnects(CONFIG, random.Random(1))
    for _ in range(6):
        reconnects.lost(1, 0.0)
    reconnects.lost(2, 0.0)
    assert [reconnects.is_due(broker, 1.2 * FIRST) for broker in (1, 2, 3)] == [False, True, True]
    assert reconnects.is_due(1, 1.2 * MOST)
    reconnects.opened(1)
    reconnects.lost(1, 0.0)
    assert reconnects.is_due(1, 1.2 * FIRST)


def refreshes_at(wanted_s: list[float], until_s: float) -> list[float]:
    """The times of the refreshes of a client that wants metadata at these times; with -1 first it wants it always."""

    async def refresh() -> list[float]:
        refreshes = MetadataRefreshes(ExponentialBackoff(FIRST / 1e3, MOST / 1e3, random.Random(1)), 60.0)
        loop, times = asyncio.get_running_loop(), list[float]()
        is_always = wanted_s[0] < 0
        for at_s in wanted_s:
            loop.call_at(max(at_s, 0.0), refreshes.want)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until_s):
                while True:
                    await refreshes.due()
                    times.append(now_s())
                    if is_always:
                        refreshes.want()
        return times

    return play(refresh())


def test_metadata_that_does_not_help_is_fetched_less_and_less_often() -> None:
    times = refreshes_at([-1.0], until_s=20.0)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == pytest.approx(0.0)
    assert pauses[0] <= 1.2 * FIRST / 1e3
    assert all(pause >= 0.8 * MOST / 1e3 for pause in pauses[5:])
    assert len(times) < 50, "there were 400 with the first pause alone"


def test_metadata_that_is_wanted_after_a_calm_while_is_fetched_at_once() -> None:
    times = refreshes_at([1.0, 1.01, 10.0, 10.01], until_s=12.0)
    assert times == pytest.approx([1.0, 1.05, 10.0, 10.05], abs=0.02)


def test_metadata_is_fetched_again_when_it_is_old() -> None:
    assert refreshes_at([1.0], until_s=70.0) == pytest.approx([1.0, 61.05], abs=0.02)


def test_a_partition_without_a_leader_is_looked_at_when_metadata_comes_and_seldom_otherwise() -> None:
    brokers = Brokers()
    fill(brokers, 3)
    brokers.log(0).leader = -1
    cluster = Consuming(brokers, **{"retry.backoff.ms": FIRST, "retry.backoff.max.ms": MOST})
    cluster.core.assign([TopicPartition(TOPIC, 0, 0)])
    cluster.run(5_000.0)
    assert cluster.refreshes <= 12, "there were 100 with the first pause alone"
    brokers.move(1)
    cluster.cache.apply(brokers.metadata())
    cluster.core.metadata_changed(cluster.now)
    cluster.run()
    cluster.push()
    assert len(cluster.read()) == 3
