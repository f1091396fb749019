"""One look for many viewers: its age, its sharing, and viewers that leave before its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from minilog_tools.console.snapshots import AGE_PER_CPU, MOST, YOUNGEST_S, Snapshots
from tests.rules import proves

pytestmark = proves("CON.7")


class Clock:
    """A clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Reads:
    """A read of the cluster that counts its calls, and ends when the test says so."""

    def __init__(self, cpu: Clock, cpu_s: float = 0.0) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._cpu, self._cpu_s = cpu, cpu_s

    async def __call__(self) -> int:
        self.count += 1
        number = self.count
        await self.gate.wait()
        self._cpu.now_s += self._cpu_s
        return number


def run(test: Callable[[Snapshots, Clock, Clock], Awaitable[None]]) -> None:
    async def body() -> None:
        clock, cpu = Clock(), Clock()
        snapshots = Snapshots(clock, cpu)
        await test(snapshots, clock, cpu)
        await snapshots.close()

    asyncio.run(body())


def test_a_snapshot_serves_everybody_until_it_is_too_old() -> None:
    async def test(snapshots: Snapshots, clock: Clock, cpu: Clock) -> None:
        read = Reads(cpu)
        assert [await snapshots.get("a", read) for _ in range(3)] == [1, 1, 1]
        clock.now_s = YOUNGEST_S - 0.1
        assert await snapshots.get("a", read) == 1
        clock.now_s = YOUNGEST_S
        assert await snapshots.get("a", read) == 2
        assert await snapshots.get("b", read) == 3

    run(test)


def test_a_snapshot_that_took_much_cpu_lives_longer() -> None:
    async def test(snapshots: Snapshots, clock: Clock, cpu: Clock) -> None:
        read = Reads(cpu, cpu_s=0.5)
        await snapshots.get("a", read)
        clock.now_s = 0.5 * AGE_PER_CPU - 1
        assert await snapshots.get("a", read) == 1
        clock.now_s = 0.5 * AGE_PER_CPU
        assert await snapshots.get("a", read) == 2

    run(test)


def test_two_hundred_viewers_at_one_time_cost_one_look() -> None:
    async def test(snapshots: Snapshots, clock: Clock, cpu: Clock) -> None:
        read = Reads(cpu)
        read.gate.clear()
        viewers = [asyncio.ensure_future(snapshots.get("a", read)) for _ in range(200)]
        await asyncio.sleep(0)
        viewers[0].cancel()
        await asyncio.sleep(0)
        read.gate.set()
        assert set(await asyncio.gather(*viewers[1:])) == {1}
        assert read.count == 1

    run(test)


def test_an_error_is_kept_as_an_answer_is() -> None:
    async def test(snapshots: Snapshots, clock: Clock, cpu: Clock) -> None:
        times = 0

        async def fail() -> None:
            nonlocal times
            times += 1
            raise OSError("down")

        for _ in range(5):
            with pytest.raises(OSError, match="down"):
                await snapshots.get("a", fail)
        assert times == 1
        clock.now_s = YOUNGEST_S
        with pytest.raises(OSError, match="down"):
            await snapshots.get("a", fail)
        assert times == 2

    run(test)


def test_after_a_change_the_next_look_is_new() -> None:
    async def test(snapshots: Snapshots, clock: Clock, cpu: Clock) -> None:
        read = Reads(cpu)
        await snapshots.get("a", read)
        snapshots.forget()
        assert await snapshots.get("a", read) == 2

    run(test)


def test_names_that_are_made_up_take_bounded_memory() -> None:
    async def test(snapshots: Snapshots, clock: Clock, cpu: Clock) -> None:
        read = Reads(cpu)
        for number in range(3 * MOST):
            await snapshots.get(number, read)
        assert await snapshots.get(3 * MOST - 1, read) == 3 * MOST, "the youngest is there still"
        assert await snapshots.get(0, read) == 3 * MOST + 1, "the oldest made room"

    run(test)
