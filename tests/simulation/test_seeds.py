"""Whole brokers on virtual time: runs are equal by seed, some seeds come right, and the loop keeps its promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.judges.violation import Violation
from tests.simulation import run
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.plan import DAMAGES, FAULTS, Plan
from tests.simulation.run import run_many
from tests.simulation.themes import DRAWN
from tests.world.loop import PROCESS, Deadlock, Process, Spin, VirtualLoop

SEEDS = (12001, 12003, 1910212)
"""In the last one a broker takes a token, since it has not yet heard that the token was expired."""
THEMED_SEED = 80  # a light one


@pytest.mark.dear("it runs whole clusters")
@pytest.mark.timeout(300)
def test_seeds_come_right_and_the_same_seed_is_the_same_run() -> None:
    results = list(run_many((*SEEDS, SEEDS[0]), 2))
    assert [(result.seed, result.failure) for result in results if result.failure] == []
    assert results[0].digest == results[-1].digest
    assert results[0].events == results[-1].events
    assert sum(result.writes["ok"] for result in results) > 500
    assert sum(result.reads for result in results) > 1_000


@pytest.mark.dear("it runs whole clusters")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "theme", [*(theme for theme in DRAWN if theme != "users"), "redriving", "shrinking", "proposing"]
)
def test_each_kind_of_trouble_comes_right(theme: str) -> None:
    """For half as long as in a search: what is proven here is that each kind is there and can come right."""
    plan = Plan.draw(THEMED_SEED, theme)
    (result,) = run_many((THEMED_SEED,), 1, plan=replace(plan, safety_s=plan.safety_s / 2))
    assert result.failure is None


@pytest.mark.dear("it runs whole clusters")
@pytest.mark.timeout(300)
def test_a_seed_with_users_is_the_same_run() -> None:
    """What ends many streams at once ends them in their order, whatever their addresses in memory are."""
    plan = Plan.draw(THEMED_SEED, "users")
    one, other = run_many((THEMED_SEED,) * 2, 2, plan=replace(plan, safety_s=plan.safety_s / 2))
    assert (one.failure, one.digest, one.events) == (None, other.digest, other.events)


def _in_no_time() -> run.Result:
    """In a process of its own."""
    run.ENDS_WITHIN_S = 0.1
    return run.run_seed(1, replace(Plan.draw(1, "calm"), safety_s=1.0))


def test_a_run_that_does_not_end_has_failed() -> None:
    assert "the run has not come to its end" in (run.apart(_in_no_time).failure or "")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_large_cluster_comes_right_in_small() -> None:
    """The theme `large` with a tenth of its brokers and partitions; the whole one takes minutes."""
    plan = replace(Plan.draw(1, "large"), brokers=6, partitions=10, silent_partitions=100, safety_s=5.0)
    (result,) = run_many((1,), 1, plan=plan)
    assert result.failure is None
    assert result.writes["ok"] > 500


def test_a_plan_has_only_faults_that_there_are() -> None:
    plans = [Plan.draw(seed) for seed in range(300)]
    elsewhere = {
        "forge": "scrubbed",
        "change_voters": "voting",
        "depose": "sharing",
        "death_of_coordinator": "sharing",
        "alter_compaction": "recompacting",
    }  # themes that are not drawn have them
    assert {name for plan in plans for name in plan.faults} == set(FAULTS) - elsewhere.keys()
    for name, theme in elsewhere.items():
        assert name in set().union(*(Plan.draw(seed, theme).faults for seed in range(20)))
    assert {plan.theme for plan in plans} == {"", *DRAWN}


def test_all_voters_of_a_plan_are_brokers() -> None:
    plans = [Plan.draw(seed, theme) for theme in (None, *DRAWN) for seed in range(60)]
    assert not [(plan.theme, plan.voters, plan.brokers) for plan in plans if plan.voters > plan.brokers]


@pytest.mark.parametrize("theme", DRAWN)
def test_a_themes_faults_are_those_that_there_are(theme: str) -> None:
    plans = [Plan.draw(seed, theme) for seed in range(20)]
    assert {plan.theme for plan in plans} == {theme}
    assert set().union(*(plan.faults for plan in plans)) <= set(FAULTS)
    assert all(plan.faults or plan.outage for plan in plans)


def test_damage_of_a_disk_meets_no_loss_of_the_other_copies() -> None:
    plans = [Plan.draw(seed) for seed in range(300)]
    damaged = [plan for plan in plans if DAMAGES & plan.faults.keys() or plan.outage]
    assert len(damaged) > 20
    for plan in damaged:
        assert not {"never_returns", "cut_to_the_end"} & plan.faults.keys()
        assert plan.least_min == plan.min_in_sync >= 2


def test_a_fault_found_by_a_clients_program_ends_the_run() -> None:
    cluster = SimulatedCluster(1, Plan())
    process, _ = cluster.client("one")

    async def find() -> None:
        await asyncio.sleep(1.0)
        raise Violation("V14", "found by a program")

    async def direct() -> None:
        cluster.run_client(process, find())
        await asyncio.sleep(1_000.0)

    with pytest.raises(Violation, match="found by a program"):
        cluster.run(direct())
    assert cluster.now_s < 2.0
    cluster.loop.close()


# -- the loop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def test_time_passes_only_where_nobody_has_anything_to_do_and_each_process_has_its_own_clock(loop: VirtualLoop) -> None:
    fast, slow = Process("fast", 100.0, 2.0), Process("slow", 5_000.0, 0.5)
    woken: list[tuple[str, float, float]] = []

    async def sleep(name: str) -> None:
        began_s = loop.time()
        await asyncio.sleep(1.0)
        woken.append((name, loop.now_s, round(loop.time() - began_s, 6)))

    async def both() -> None:
        await asyncio.gather(loop.spawn(fast, sleep("fast")), loop.spawn(slow, sleep("slow")))

    loop.run_until_complete(both())
    assert [(name, round(now_s, 6), took_s) for name, now_s, took_s in woken] == [
        ("fast", 0.5, 1.0),
        ("slow", 2.0, 1.0),
    ]


def test_a_dead_process_runs_nothing_more_not_even_its_finally(loop: VirtualLoop) -> None:
    process = Process("one")
    ran: list[str] = []

    async def live() -> None:
        try:
            await asyncio.sleep(1.0)
            ran.append("woke")
        finally:
            ran.append("finally")

    async def kill() -> None:
        loop.spawn(process, live())
        await asyncio.sleep(0.5)
        process.dead = True
        await asyncio.sleep(5.0)

    loop.run_until_complete(kill())
    assert ran == []
    for task in process.tasks:  # of this test's own: nothing is left to be collected
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_process_that_stood_still_finds_all_that_came_meanwhile_and_that_it_is_late(loop: VirtualLoop) -> None:
    process = Process("one")
    ticks: list[float] = []

    async def tick() -> None:
        for _ in range(3):
            await asyncio.sleep(0.1)
            ticks.append(round(loop.now_s, 3))

    async def hold() -> None:
        task = loop.spawn(process, tick())
        await asyncio.sleep(0.15)
        loop.stand_still(process)
        await asyncio.sleep(2.0)
        loop.go_on(process)
        await task

    loop.run_until_complete(hold())
    assert ticks == [0.1, 2.15, 2.25]


def test_a_task_belongs_to_the_process_that_made_it(loop: VirtualLoop) -> None:
    process = Process("one")

    async def inner() -> Process | None:
        return PROCESS.get()

    async def outer() -> Process | None:
        return await asyncio.get_running_loop().create_task(inner())

    async def main() -> Process | None:
        assert PROCESS.get() is None
        found: Process | None = await loop.spawn(process, outer())
        return found

    assert loop.run_until_complete(main()) is process


async def _wait() -> None:
    await asyncio.Event().wait()


async def _spin() -> None:
    while True:  # noqa: ASYNC110 - that is the point
        await asyncio.sleep(0)


@pytest.mark.parametrize(("work", "error"), [(_wait, Deadlock), (_spin, Spin)])
def test_waiting_for_nothing_and_asking_for_ever_are_said(
    loop: VirtualLoop, work: Callable[[], Coroutine[Any, Any, None]], error: type[Exception]
) -> None:
    task = loop.create_task(work())
    with pytest.raises(error):
        loop.run_until_complete(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
