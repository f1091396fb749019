"""Jobs of a broker: when they are due, how they take turns, and what one slice may use. On virtual time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from minilog_broker.server.background.jobs import Jobs, Round
from tests.rules import proves
from tests.world.loop import VirtualLoop

pytestmark = proves("DK.8")


@dataclass
class Counting:
    """A job whose round has some slices, each of so many bytes."""

    name: str
    interval_s: float
    slices: int
    loop: VirtualLoop
    used_bytes: int = 0
    fails_at: int = -1
    ran: list[tuple[str, float]] = field(default_factory=list)
    budgets: set[int] = field(default_factory=set)

    def round(self) -> Round:
        for number in range(self.slices):

            def work(budget_bytes: int, number: int = number) -> int:
                self.ran.append((self.name, self.loop.time()))
                self.budgets.add(budget_bytes)
                if number == self.fails_at:
                    raise OSError(errno.EIO, "Input/output error")
                return self.used_bytes

            yield work


async def called(work: Callable[[], int]) -> int:
    """A disk that takes no time."""
    return work()


def run(loop: VirtualLoop, jobs: list[Counting], for_s: float, call: Callable[..., Awaitable[int]] = called) -> None:
    async def main() -> None:
        task = loop.create_task(Jobs(jobs, call, loop.time, slice_bytes=100, bytes_per_second=1000).run())
        await asyncio.sleep(for_s)
        assert not task.done()
        task.cancel()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_job_is_due_an_interval_after_the_end_of_its_last_round() -> None:
    loop = VirtualLoop()
    began_s = loop.time()
    job = Counting("a", 5.0, slices=2, loop=loop, used_bytes=1000)  # a second each
    run(loop, [job], 20.0)
    assert [round(at_s - began_s, 3) for _, at_s in job.ran] == [5.0, 6.0, 12.0, 13.0, 19.0]
    assert job.budgets == {100}


def test_jobs_that_are_due_together_take_turns() -> None:
    loop = VirtualLoop()
    shared: list[tuple[str, float]] = []
    long = Counting("long", 5.0, slices=40, loop=loop, used_bytes=100, ran=shared)
    short = Counting("short", 5.0, slices=2, loop=loop, used_bytes=100, ran=shared)
    run(loop, [long, short], 7.0)
    assert [name for name, _ in shared[:5]] == ["long", "short", "long", "short", "long"]


def test_a_slice_that_meets_an_error_of_the_disk_ends_its_round_alone() -> None:
    loop = VirtualLoop()
    failing = Counting("failing", 5.0, slices=3, loop=loop, fails_at=1)
    sound = Counting("sound", 5.0, slices=3, loop=loop)
    run(loop, [failing, sound], 11.0)
    assert len(failing.ran) == 4
    assert len(sound.ran) == 6


def test_slices_run_one_at_a_time() -> None:
    loop = VirtualLoop()
    under_way = 0

    async def slow(work: Callable[[], int]) -> int:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        await asyncio.sleep(0.5)
        under_way -= 1
        return work()

    jobs = [Counting(name, 1.0, slices=3, loop=loop) for name in "abc"]
    run(loop, jobs, 30.0, slow)
    assert all(len(job.ran) > 9 for job in jobs)


def test_another_interval_counts_from_when_the_jobs_are_looked_at_next() -> None:
    loop = VirtualLoop()
    slow, often = Counting("slow", 100.0, 1, loop), Counting("often", 5.0, 1, loop)
    loop.call_at(12.0, lambda: setattr(slow, "interval_s", 3.0))
    run(loop, [slow, often], 20.5)
    assert [at_s for _, at_s in slow.ran] == [15.0, 18.0]
