"""A disk that does not answer: seen at heartbeats, and not where nobody looked."""

from __future__ import annotations

import asyncio
import threading

import pytest

from minilog_broker.server.disk.disk_stall import LEAST_STALL_MS, DiskAnswer, DiskStall
from minilog_broker.server.disk.disk_thread import DiskThread

LAG_MS, BEAT_MS = 3_600.0, 400.0


class Looking:
    """Looks at a disk thread at each beat of a clock of its own."""

    def __init__(self, disk: DiskThread, lag_ms: float = LAG_MS) -> None:
        self.now_ms = 0.0
        self.stall = DiskStall(disk, lag_ms, lambda: self.now_ms)

    def for_ms(self, duration_ms: float, beat_ms: float = BEAT_MS) -> DiskAnswer:
        """What the last look says."""
        answer = DiskAnswer.IN_TIME
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            self.now_ms += beat_ms
            answer = self.stall.look()
        return answer


def crashed(error: BaseException) -> None:
    raise error


async def hung(disk: DiskThread) -> tuple[threading.Event, asyncio.Future[object]]:
    """A call that does not return before the event is set."""
    returns, entered = threading.Event(), threading.Event()

    def work() -> bool:
        entered.set()
        return returns.wait(30.0)

    waiting = asyncio.ensure_future(disk.call(work))
    await asyncio.to_thread(entered.wait, 30.0)
    return returns, waiting


async def look_at_a_hung_disk(duration_ms: float, beat_ms: float, lag_ms: float = LAG_MS) -> DiskAnswer:
    disk = DiskThread("data-disk", asyncio.get_running_loop(), crashed)
    returns, waiting = await hung(disk)
    looking = Looking(disk, lag_ms)
    try:
        return looking.for_ms(duration_ms, beat_ms)
    finally:
        returns.set()
        await waiting
        await disk.stop()


@pytest.mark.parametrize(
    ("duration_ms", "beat_ms", "answer"),
    [
        (LAG_MS / 2, BEAT_MS, DiskAnswer.IN_TIME),
        (LAG_MS, BEAT_MS, DiskAnswer.SLOW),
        (LAG_MS + 3 * BEAT_MS, BEAT_MS, DiskAnswer.STALLED),
        (10 * LAG_MS, 5 * LAG_MS, DiskAnswer.IN_TIME),
    ],
    ids=["for half of the lag time", "for the lag time", "for longer", "seen by who was late itself"],
)
def test_a_call_that_does_not_return(duration_ms: float, beat_ms: float, answer: DiskAnswer) -> None:
    assert asyncio.run(look_at_a_hung_disk(duration_ms, beat_ms)) is answer


def test_a_slow_disk_beside_a_short_lag_time_is_not_stalled() -> None:
    assert asyncio.run(look_at_a_hung_disk(LEAST_STALL_MS - BEAT_MS, BEAT_MS, lag_ms=400.0)) is DiskAnswer.SLOW


def test_a_disk_that_nothing_waits_for_answers() -> None:
    async def look() -> DiskAnswer:
        disk = DiskThread("data-disk", asyncio.get_running_loop(), crashed)
        await disk.call(lambda: None)
        await disk.stop()  # what was told is counted as done a moment later
        return Looking(disk).for_ms(10 * LAG_MS)

    assert asyncio.run(look()) is DiskAnswer.IN_TIME


def test_each_call_that_ends_is_an_answer_and_the_next_hang_counts_anew() -> None:
    async def look() -> list[DiskAnswer]:
        disk = DiskThread("data-disk", asyncio.get_running_loop(), crashed)
        looking, found = Looking(disk), []
        for _ in range(3):
            returns, waiting = await hung(disk)
            found.append(looking.for_ms(LAG_MS - BEAT_MS))
            returns.set()
            await waiting
        await disk.stop()
        return found

    assert asyncio.run(look()) == [DiskAnswer.SLOW] * 3


def test_another_lag_time_counts_for_the_call_that_hangs() -> None:
    async def look() -> list[DiskAnswer]:
        disk = DiskThread("data-disk", asyncio.get_running_loop(), crashed)
        returns, waiting = await hung(disk)
        looking = Looking(disk, 10 * LAG_MS)
        looks = [looking.for_ms(2 * LAG_MS)]
        looking.stall.reconfigured(LAG_MS)
        looks.append(looking.for_ms(BEAT_MS))
        returns.set()
        await waiting
        await disk.stop()
        return looks

    assert asyncio.run(look()) == [DiskAnswer.IN_TIME, DiskAnswer.STALLED]
